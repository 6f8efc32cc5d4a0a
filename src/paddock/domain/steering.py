"""Which hosts new Pods keep away from.

A host that is Ready may still be unable to start Pods. One that was out of cgroups took every Pod its
scheduler gave it and started none, while 111 jobs waited for hours (I51). So a host with repeated
failed starts is avoided for a while. This is a preference, for a minority of the hosts at most, and
never because of an image, which fails on every host alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from paddock.domain.pods import Host

#: One failed start is an accident, two are bad luck.
REPEATED: Final = 3
#: Then it gets another chance: a host that is still broken costs three more Pods.
REMEMBERED: Final = timedelta(minutes=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailures:
    """Starts that failed on a host since the last one there that did not."""

    host: str
    count: int


def hosts_to_avoid(failures: Iterable[StartFailures], hosts: Collection[Host]) -> tuple[str, ...]:
    """The worst first, and only a minority: where most hosts fail, the hosts are not the cause."""
    usable = {host.name for host in hosts if host.ready and not host.leaving}
    failing = [each for each in failures if each.count >= REPEATED and each.host in usable]
    minority = max(0, (len(usable) - 1) // 2)
    failing.sort(key=lambda each: (-each.count, each.host))
    return tuple(each.host for each in failing[:minority])
