"""Capacity: what a runner costs, what an account may use, and whether one more fits.

`None` is "no limit"; zero is zero (I54). A limit lowered below what is in use lets nothing new in
and touches nothing that runs.
"""

from __future__ import annotations

import msgspec


class Resources(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a runner occupies. A Pod's runtime overhead is part of its cost (I48)."""

    runners: int = 1
    vcpu_milli: int = 0
    memory_mib: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            runners=self.runners + other.runners,
            vcpu_milli=self.vcpu_milli + other.vcpu_milli,
            memory_mib=self.memory_mib + other.memory_mib,
        )

    def at_least(self, other: Resources) -> Resources:
        """The greater of each."""
        return Resources(
            runners=max(self.runners, other.runners),
            vcpu_milli=max(self.vcpu_milli, other.vcpu_milli),
            memory_mib=max(self.memory_mib, other.memory_mib),
        )


NOTHING = Resources(runners=0)


class Limits(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    runners: int | None = None
    vcpu_milli: int | None = None
    memory_mib: int | None = None

    def admit(self, used: Resources, cost: Resources) -> bool:
        """Whether `cost` more may be taken beside what is `used`."""
        return (
            (self.runners is None or used.runners + cost.runners <= self.runners)
            and (self.vcpu_milli is None or used.vcpu_milli + cost.vcpu_milli <= self.vcpu_milli)
            and (self.memory_mib is None or used.memory_mib + cost.memory_mib <= self.memory_mib)
        )


UNLIMITED = Limits()
