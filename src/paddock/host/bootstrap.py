"""One attempt at all steps, in order: the rules are in force before a program that needs them starts.

Each attempt begins with the first step and does only what is not done yet. So it may follow an
attempt that broke off anywhere, and may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from paddock.host import files
from paddock.host.anchor import Anchor, render
from paddock.host.configuration import Configuration, ConfigurationRefused
from paddock.host.launchd import LaunchdJobs
from paddock.host.packet_filter import PacketFilter
from paddock.host.reports import AttemptResult
from paddock.host.tools import StepFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """`read` reads the configuration for each attempt: a corrected file needs no restart."""

    read: Callable[[], Configuration]
    file: Path
    lock: Path
    filtering: PacketFilter
    launching: LaunchdJobs
    reload: bool = False

    def attempt(self) -> AttemptResult:
        try:
            with files.alone(self.lock):
                done = self._all()
        except ConfigurationRefused as error:
            return AttemptResult(failed="configuration", words=str(error))
        except StepFailed as error:
            return AttemptResult(failed=error.step, words=f"{error}.")
        except OSError as error:
            name = f"{error.filename}: " if error.filename else ""
            return AttemptResult(failed="write", words=f"{name}{error.strerror}.")
        return AttemptResult(words=f"{'; '.join(done) or 'all was as it should be'}.")

    def _all(self) -> list[str]:
        configuration = self.read()
        done = [
            *self.filtering.apply(anchor(configuration)),
            *self.launching.apply(self.launching.keeper(self.file), reload=True),
        ]
        if configuration.program:
            machines = self.launching.machines(configuration.program)
            done += self.launching.apply(machines, reload=self.reload)
        return done


def anchor(configuration: Configuration) -> Anchor:
    """Raises ConfigurationRefused."""
    rules = configuration.network.rules
    try:
        return render(configuration.network, rules.read_text("utf-8") if rules else "")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationRefused(f"{rules} cannot be read: {error}.") from error
