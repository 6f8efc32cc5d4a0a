"""Makes pf enforce the wanted rules: validate, flush, load, verify; then the main rules, which must
name the anchor.

Tables outlive a reload of their anchor. If a table is left of an earlier load, pf refuses to define it
again ("cannot define table vm_sources: Resource busy") and loads none of the rules. So the anchor is
flushed first, with its tables. Rules that are in force already are not touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paddock.host import files
from paddock.host.anchor import NAME, Anchor, normal
from paddock.host.tools import StepFailed, Tool, ToolFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketFilter:
    pfctl: Tool
    #: The directory of pf's own files: /etc.
    root: Path

    @property
    def _rules(self) -> Path:
        return self.root / "pf.anchors" / NAME

    @property
    def _main(self) -> Path:
        return self.root / "pf.conf"

    def apply(self, wanted: Anchor) -> list[str]:
        """Returns what was done; empty if nothing was needed. Raises StepFailed."""
        done = []
        candidate = self._rules.with_name(f"{NAME}.new")
        files.write(candidate, wanted.text)
        # Nothing was changed before this line: if the rules have a mistake, the old ones stay.
        self._pf("validate", "-n", "-f", str(candidate))
        if self._difference(wanted) is not None:
            self._replace(wanted, candidate)
            done.append("loaded the rules")
        if files.text(self._rules) != wanted.text:
            candidate.replace(self._rules)
        candidate.unlink(missing_ok=True)
        return [*done, *self._attach()]

    def _replace(self, wanted: Anchor, candidate: Path) -> None:
        self._pf("flush", "-F", "all")
        try:
            self._pf("load", "-f", str(candidate))
            self._verify(wanted)
        except StepFailed as failed:
            raise StepFailed(failed.step, f"{failed}; {self._restored()}") from failed

    def _verify(self, wanted: Anchor) -> None:
        if difference := self._difference(wanted):
            raise StepFailed("verify", f"the rules were loaded, but {difference}")

    def _restored(self) -> str:
        """Load the previous rules: after the flush nothing is filtered, so any are better than none."""
        if not self._rules.exists():
            return "no rules are in force"
        try:
            self._pf("flush", "-F", "all")
            self._pf("load", "-f", str(self._rules))
        except StepFailed:
            return "no rules are in force"
        return "the rules of before are in force again"

    def _difference(self, wanted: Anchor) -> str | None:
        """How the rules that pf shows differ from the wanted ones; `None` if they do not."""
        try:
            shown = self._pf("verify", "-s", "rules")
        except StepFailed as failed:
            return f"pf cannot show them: {failed}"  # the anchor was never loaded
        missing = [label for label in wanted.labels if f'label "{label}"' not in shown]
        if missing:
            return f"{len(missing)} of {len(wanted.labels)} are not in force"
        for table, entries in wanted.tables.items():
            if self._entries(table) != entries:
                return f"the table {table} has other entries"
        return None

    def _entries(self, table: str) -> set[str]:
        try:
            shown = self._pf("verify", "-t", table, "-T", "show")
        except StepFailed:
            return set()  # the table does not exist
        return {normal(line) for line in shown.splitlines() if line.strip()}

    def _attach(self) -> list[str]:
        """Make pf apply the anchor: the main rules must name it, and pf must be on."""
        done = []
        if f'anchor "{NAME}"' not in self._run("attach", "-s", "rules"):
            self._name_anchor()
            done.append("named the anchor in the main rules")
        if "Status: Enabled" not in self._run("attach", "-s", "info"):
            # Each -E adds a reference that keeps pf on, so it is not called when pf is on already.
            self._run("attach", "-E")
            done.append("turned pf on")
        return done

    def _name_anchor(self) -> None:
        """Add no `load anchor`: that would load the anchor again with the main rules, over existing
        tables."""
        before = files.text(self._main) or ""
        line = f'anchor "{NAME}"'
        if line not in before.splitlines():
            after = f"{before.rstrip()}\n{line}\n".lstrip()
            candidate = self._main.with_name(f"{self._main.name}.paddock")
            files.write(candidate, after)
            self._run("attach", "-n", "-f", str(candidate))
            candidate.replace(self._main)
        self._run("attach", "-f", str(self._main))

    def _pf(self, step: str, *arguments: str) -> str:
        return self._run(step, "-a", NAME, *arguments)

    def _run(self, step: str, *arguments: str) -> str:
        try:
            return self.pfctl.run(*arguments)
        except ToolFailed as failed:
            raise StepFailed(step, str(failed)) from failed
