"""Brings pf to the rules that are wanted: validate, flush, load, verify; then the main rules, which
must name the anchor.

Tables outlive a reload of their anchor: where one is left of an earlier load, defining it again is
refused ("cannot define table vm_sources: Resource busy") and none of the rules are loaded. So the
anchor is flushed first, tables and all. What is in force already is not touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paddock.host import files
from paddock.host.anchor import NAME, Anchor, normal
from paddock.host.errors import StepFailed
from paddock.host.tools import Tool, ToolFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtering:
    pfctl: Tool
    #: Where pf's own files are: /etc.
    root: Path

    @property
    def _rules(self) -> Path:
        return self.root / "pf.anchors" / NAME

    @property
    def _main(self) -> Path:
        return self.root / "pf.conf"

    def apply(self, wanted: Anchor) -> list[str]:
        """What was done; nothing if all was so already. Raises StepFailed."""
        done = []
        candidate = self._rules.with_name(f"{NAME}.new")
        files.write(candidate, wanted.text)
        # Nothing has been changed until here: with a mistake in the rules the old ones stay.
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
        """After the flush nothing is filtered, so what was there is better than nothing."""
        if not self._rules.exists():
            return "no rules are in force"
        try:
            self._pf("flush", "-F", "all")
            self._pf("load", "-f", str(self._rules))
        except StepFailed:
            return "no rules are in force"
        return "the rules of before are in force again"

    def _difference(self, wanted: Anchor) -> str | None:
        """Between what is in force and what is wanted, by pf's own word."""
        try:
            shown = self._pf("verify", "-s", "rules")
        except StepFailed as failed:
            return f"pf cannot show them: {failed}"  # an anchor that was never loaded is no anchor
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
            return set()  # there is no such table
        return {normal(line) for line in shown.splitlines() if line.strip()}

    def _attach(self) -> list[str]:
        """The anchor is passed through only where the main rules name it, and pf is on."""
        done = []
        if f'anchor "{NAME}"' not in self._run("attach", "-s", "rules"):
            self._name_anchor()
            done.append("named the anchor in the main rules")
        if "Status: Enabled" not in self._run("attach", "-s", "info"):
            # -E counts those who want it on, each time: not when it is on already.
            self._run("attach", "-E")
            done.append("turned pf on")
        return done

    def _name_anchor(self) -> None:
        """Without `load anchor`: that would load it anew with the main rules, over tables that are
        there."""
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
