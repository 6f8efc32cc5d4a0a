"""What Pods and GitHub runners are called.

GitHub's events are matched to a row by the runner's name while its id is unknown, so two mints must
never share a name. A mint whose name is too long fails every time (I19). The way names are built here
ensures both:

    pool                                    1 to 63 characters, a DNS label
    Pod     = pool part "-" suffix          at most 44 characters, a DNS label
    runner  = Pod "-" generation            at most 64 characters

A Pod's name leaves room for 19 digits, every generation a PostgreSQL bigint can count to. The last
hyphen of a name is always ours (neither suffix nor generation contains one), so a name can be taken
apart in one way only.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final, NewType

PoolName = NewType("PoolName", str)
PodName = NewType("PodName", str)
RunnerName = NewType("RunnerName", str)

DNS_LABEL_MAX: Final = 63
#: GitHub answers 422 to anything longer.
RUNNER_NAME_MAX: Final = 64
#: What is left of a runner's name beside a hyphen and the 19 digits of the greatest bigint.
POD_NAME_MAX: Final = RUNNER_NAME_MAX - 1 - 19

#: Ids.suffix draws from 27 characters: a pool would make ten million Pods before the chance of two
#: of the same name reached one in four. The store's constraint refuses the second one even then.
SUFFIX_LENGTH: Final = 10

#: Pool names shorter than this stand in their Pods' names as they are. Longer ones are cut and
#: hashed to exactly this length, so a cut name cannot be the same as a name that was left alone.
_POOL_PART: Final = POD_NAME_MAX - 1 - SUFFIX_LENGTH
_POOL_DIGEST: Final = 10  # 50 bits, for the few pools of one installation
_RUNNER_DIGEST: Final = 26  # 130 bits, for every runner there ever was

_DNS_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_SUFFIX: Final = re.compile(rf"[a-z0-9]{{1,{SUFFIX_LENGTH}}}")


def pool_name_problem(name: str) -> str | None:
    """Why this cannot be a pool's name, in a sentence for the pool's author; `None` if it can."""
    if not name:
        return "a pool needs a name"
    if len(name) > DNS_LABEL_MAX:
        return f"a pool's name has at most {DNS_LABEL_MAX} characters; this one has {len(name)}"
    if strange := sorted(set(re.sub(r"[a-z0-9-]", "", name))):
        listed = " ".join(repr(character) for character in strange)
        return f"a pool's name is made of a–z, 0–9 and hyphens; {name!r} has {listed}"
    if not _DNS_LABEL.fullmatch(name):
        return f"a pool's name begins and ends with a letter or a digit; {name!r} does not"
    return None


def pod_name(pool: PoolName, suffix: str) -> PodName:
    if not _SUFFIX.fullmatch(suffix):
        raise ValueError(
            f"a Pod's suffix is 1 to {SUFFIX_LENGTH} lower-case letters and digits, not {suffix!r}"
        )
    return PodName(f"{_pool_part(pool)}-{suffix}")


def runner_name(pod: PodName, generation: int) -> RunnerName:
    """The name of one mint for one Pod, never used for another."""
    if generation < 0:
        raise ValueError(f"a generation counts from 0; {generation} is none")
    name = f"{pod}-{generation}"
    if len(name) > RUNNER_NAME_MAX:
        # Only an adopted Pod can have so long a name. The underscore cannot be part of a Pod's name, so
        # no other mint has such a name.
        head = pod[: RUNNER_NAME_MAX - 1 - _RUNNER_DIGEST]
        name = f"{head}_{_digest(name, _RUNNER_DIGEST)}"
    return RunnerName(name)


def pod_of(runner: str) -> tuple[PodName, int] | None:
    """The Pod and the generation that a runner's name was made from; `None` if it was not made here.
    (A Pod whose name is so long that a digest replaces it is never minted for: it was adopted.)"""
    pod, _, generation = runner.rpartition("-")
    if not pod or not generation.isascii() or not generation.isdecimal():
        return None
    return PodName(pod), int(generation)


def _pool_part(pool: PoolName) -> str:
    if len(pool) < _POOL_PART:
        return pool
    head = pool[: _POOL_PART - 1 - _POOL_DIGEST]
    return f"{head}-{_digest(pool, _POOL_DIGEST)}"


def _digest(text: str, length: int) -> str:
    """Lower-case letters and digits, five bits each."""
    digest = base64.b32encode(hashlib.sha256(text.encode()).digest())
    return digest.decode().lower()[:length]
