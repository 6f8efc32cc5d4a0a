"""RunnerPool objects mirrored into a real store, and pool files. The properties themselves are in
`tests/unit/test_pool_fuzz.py`; here objects also go by the way they really go, beside a good one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st

from paddock.domain.pools.objects import PoolObject, PoolStatus
from paddock.pools.mirror import PoolMirror
from paddock.store.embedded import EmbeddedPostgres
from paddock.store.store import PgStore
from paddock.system import SystemIds
from tests.store.test_mirror import Objects
from tests.support.database import Loop, fresh_database
from tests.support.fuzzing import Fuzzer, damaged, encodings
from tests.support.github import NoWakeups
from tests.support.pool_objects import ANY_SPEC, SOUND
from tests.support.time import ManualClock
from tests.unit.test_pool_fuzz import made, mistakes, read

_HEAD = "apiVersion: paddock.dev/v1alpha1\nkind: RunnerPool\nmetadata: {name: linux}\nspec: "
_ALIASES = [
    "&a ",
    "*a",
    "<<: *a",
    "!!binary ",
    "!!python/name:os.system",
    "? ",
    "| \n",
    "---\n",
    "%TAG ",
]


@pytest.fixture(scope="module")
def loop(postgres: EmbeddedPostgres) -> Iterator[Loop]:
    with fresh_database(postgres) as found:
        yield found


def test_pool_objects(loop: Loop, fuzzer: Fuzzer) -> None:
    """Any object is mirrored or its error reported; the one after it is mirrored."""

    def check(spec: bytes) -> str:
        objects, clock = Objects(), ManualClock()
        objects.pools["bad"] = PoolObject(
            name="bad",
            uid="uid-of-bad",
            version="1",
            generation=1,
            spec=spec,
            status=PoolStatus(),
            finalizers=(),
        )
        objects.describe("good", labels=["good"])

        async def scenario(database: Any) -> None:
            store = PgStore(database, clock=clock, ids=SystemIds(), actor="test")
            mirror = PoolMirror(
                store=store, pools=objects, trial=objects, clock=clock, wakeups=NoWakeups()
            )
            for _ in range(3):
                await mirror.round()
                clock.advance(120)

        loop.run(scenario)
        assert objects.accepted("good")[0] == "True"
        status, reason, message = objects.accepted("bad")
        assert reason != "InternalError", message
        assert (status == "True") == (message == "")
        message.encode()
        return reason

    fuzzer.run(encodings(ANY_SPEC), check)


def test_pods_of_pool_objects(fuzzer: Fuzzer) -> None:
    """A description that is accepted makes a Pod, or says why not."""

    def check(spec: Any) -> str:
        pool = read(spec)
        if isinstance(pool, str):
            return "refused"
        return "a Pod" if isinstance(made(pool.spec), dict) else "no Pod"

    fuzzer.run(ANY_SPEC, check)


@st.composite
def pool_files(draw: st.DrawFn) -> str:
    spec = draw(SOUND)
    text = _HEAD + (json.dumps(spec) if draw(st.booleans()) else "\n  " + _block(spec))
    if draw(st.booleans()):
        return draw(damaged(text.encode())).decode(errors="surrogateescape")
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(_ALIASES)) + text[at:]
    return text


def _block(spec: Any) -> str:
    return yaml.safe_dump(spec).replace("\n", "\n  ")


def test_pool_files(fuzzer: Fuzzer) -> None:
    def check(text: str) -> str:
        found = mistakes(text)
        assert all(each.encode() for each in found)
        return "refused" if found else "read"

    fuzzer.run(pool_files(), check)
