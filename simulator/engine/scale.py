"""How large a world is: its accounts, repositories, pools and nodes.

Most seeds are small worlds, in which every part has something to do and a run takes seconds. Every
fifth is large: it shows what goes wrong only between many pools, accounts and waiting Pods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from paddock.domain.limits import Limits
from paddock.domain.pools.pool import PoolFacts
from paddock.pools.spec import PoolSpec, ProvisioningSpec, ResourceSpec, facts

LINUX: Final = ("self-hosted", "linux")
MACOS: Final = ("self-hosted", "macos")
#: One of this many seeds is a large world.
LARGE_EVERY: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A pool as its owner describes it."""

    name: str
    labels: tuple[str, ...]
    single: bool = False
    vcpu: int = 2
    memory: str = "4Gi"
    min_idle: int = 4
    #: Exactly this many Pods, busy or waiting.
    size: int | None = None
    starting: int = 8

    def facts(self) -> PoolFacts:
        spec = PoolSpec(
            labels=list(self.labels),
            shape="single" if self.single else "gated",
            min_idle=0 if self.size is not None else self.min_idle,
            size=self.size,
            resources=ResourceSpec(vcpu=self.vcpu, memory=self.memory),
            provisioning=ProvisioningSpec(max_starting=self.starting),
        )
        return facts(self.name, spec)

    @property
    def idle(self) -> int:
        return self.min_idle if self.size is None else self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    name: str
    #: Organisations, then people; each with its repositories.
    organizations: tuple[tuple[str, tuple[str, ...]], ...]
    users: tuple[tuple[str, tuple[str, ...]], ...]
    pools: tuple[Described, ...]
    #: The limits from the first minute on, of accounts and of repositories.
    limits: dict[str, Limits]
    repository_limits: dict[str, Limits]
    nodes: int
    jobs: int
    #: How often faults hit Pods, compared with a small world.
    busier: float = 1.0

    def __str__(self) -> str:
        accounts, idle = len(self.organizations) + len(self.users), sum(p.idle for p in self.pools)
        return f"{self.name} ({len(self.pools)} pools, {accounts} accounts, {idle} waiting Pods)"


_POOLS: Final = (
    Described(name="linux", labels=LINUX),
    Described(name="macos", labels=MACOS, single=True, vcpu=4, memory="8Gi", min_idle=2),
)
_LIMITS: Final = {
    "acme": Limits(vcpu_milli=16_000),
    "umbrella": Limits(runners=3),
    "ana": Limits(memory_mib=16_384),
}

SMALL: Final = Scale(
    name="small",
    organizations=(("acme", ("site", "api")), ("umbrella", ("core",))),
    users=(("ana", ("dotfiles",)),),
    pools=_POOLS,
    limits=_LIMITS,
    repository_limits={"acme/api": Limits(runners=3)},
    nodes=4,
    jobs=40,
)

_MANY: Final = tuple(f"org-{number:02}" for number in range(3, 85))

LARGE: Final = Scale(
    name="large",
    organizations=(*SMALL.organizations, *((login, ("one", "two")) for login in _MANY)),
    users=(*SMALL.users, *((f"user-{number:02}", ("own",)) for number in range(15))),
    pools=(
        Described(name="linux", labels=LINUX, min_idle=60, starting=40),
        Described(
            name="macos", labels=MACOS, single=True, vcpu=4, memory="8Gi", min_idle=20, starting=40
        ),
        *(
            Described(
                name=f"pool-{number:02}",
                labels=("self-hosted", f"pool-{number:02}"),
                single=number % 4 == 0,
                min_idle=23,
                starting=40,
            )
            for number in range(10)
        ),
    ),
    limits=_LIMITS | {login: Limits(runners=4) for login in _MANY[::3]},
    repository_limits=SMALL.repository_limits
    | {f"{login}/one": Limits(runners=1 + number % 3) for number, login in enumerate(_MANY[:10])},
    nodes=12,
    jobs=400,
    busier=6.0,
)


def scale_of(seed: int) -> Scale:
    return LARGE if seed % LARGE_EVERY == LARGE_EVERY - 1 else SMALL
