"""Random inputs until the time is up: shared by `make fuzz` and `tests/fuzz`.

A target is a strategy and a check. The check returns one word for the outcome of an input (`202`,
`refused`), and raises if it finds a defect. Inputs come in rounds, each from its own seed. So a
finding can be repeated from its round's seed alone, independent of the run before.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import hypothesis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

T = TypeVar("T")

#: Whether this is `make fuzz`. Otherwise there is one short round, which is the same every time.
IS_LONG: Final = bool(os.environ.get("PADDOCK_FUZZ_SECONDS"))
#: How long each target runs; its first round is always completed.
SECONDS: Final = float(os.environ.get("PADDOCK_FUZZ_SECONDS") or 0)
SEED: Final = int(
    os.environ.get("PADDOCK_FUZZ_SEED") or (random.randrange(2**32) if IS_LONG else 0)
)
#: The inputs of a round. A failing round is repeated to find a smaller input: it has to be short.
EXAMPLES: Final = 100 if IS_LONG else 20


@dataclass
class Fuzzer:
    target: str
    tried: int = 0
    rounds: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)

    def run(
        self,
        strategy: st.SearchStrategy[T],
        check: Callable[[T], str],
        *,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        """`after` is called after each round, for checks that are too slow for each input."""
        began = time.monotonic()
        while True:
            seed = SEED + self.rounds
            try:
                self._round(strategy, check, seed)
                after()
            except BaseException as error:
                error.add_note(f"Again: make fuzz SEED={seed} SECONDS=0 ARGS='-k {self.target}'")
                raise
            finally:
                self.rounds += 1
                self.seconds = time.monotonic() - began
            if self.seconds >= SECONDS:
                return

    def _round(self, strategy: st.SearchStrategy[T], check: Callable[[T], str], seed: int) -> None:
        @hypothesis.seed(seed)
        @settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(strategy)
        def attempt(value: T) -> None:
            self.tried += 1
            try:
                self.outcomes[check(value)] += 1
            except Exception as error:
                error.add_note(f"The input: {value!r:.3000}")
                raise

        attempt()

    @property
    def report(self) -> str:
        became = ", ".join(f"{word} {count}" for word, count in self.outcomes.most_common(8))
        return f"{self.tried} inputs, {self.rounds} rounds, {self.seconds:.0f} s: {became}"


#: Values of a wrong type, too large, too small, or impossible to store.
ODD: Final[list[Any]] = [
    *(None, True, 0, -1, 1.5, 2**31, 2**53, 2**63 - 1, 2**63, 2**70, 5e-324, 1e18, 1e308),
    *("", "x", "\0", "a\0b", "\ud800", "\udc00\ud800", "é" * 300, "x" * 5000, "\u202e\x1b[2J\r\n"),
    *("1", "-1", "null", "[]", "../../etc/passwd", "'; DROP TABLE jobs; --", "{{ 7*7 }}", "%s%n"),
    *([], {}, [None], [[]], [{}], {"": ""}, {"id": {}}, ["x"] * 300),
]
#: Moments at the limits of Python, PostgreSQL and time zones.
MOMENTS: Final[list[Any]] = [
    *("2026-01-05T09:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59"),
    *("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-23:59", "1970-01-01T00:00:00Z"),
    *("2026-01-05T09:00:00", "2026-01-05", "2026-02-30T00:00:00Z", "2026-01-05T23:59:60Z"),
    *("10000-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "2026-01-05T09:00:00.123456789+00:00"),
]


def json_values() -> st.SearchStrategy[Any]:
    odd = st.one_of(st.sampled_from(ODD), st.sampled_from(MOMENTS), st.text(max_size=20))
    return st.recursive(
        st.one_of(odd, st.integers(), st.floats()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=4)
        ),
        max_leaves=8,
    )


@st.composite
def altered(draw: st.DrawFn, base: st.SearchStrategy[Any]) -> Any:
    """A copy of it with up to three values replaced, removed or added."""
    value = json.loads(json.dumps(draw(base)))
    for _ in range(draw(st.integers(0, 3))):
        path = _path(draw, value)
        if not path:
            return deepcopy(draw(json_values()))
        *above, last = path
        at = value
        for key in above:
            at = at[key]
        match draw(st.integers(0, 4)):
            case 0:
                del at[last]
            case 1 if isinstance(at, dict):
                at[draw(st.one_of(st.text(max_size=5), st.just("id")))] = deepcopy(
                    draw(json_values())
                )
            case _:
                at[last] = deepcopy(draw(json_values()))
    return value


def _path(draw: st.DrawFn, value: Any) -> list[Any]:
    path: list[Any] = []
    while isinstance(value, dict | list) and value:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        path.append(draw(st.sampled_from(keys)))
        value = value[path[-1]]
        if not draw(st.integers(0, 2)):
            break
    return path


@st.composite
def encodings(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> bytes:
    """JSON of it, as encoders write it and as only an attacker does."""
    value = draw(values)
    if draw(st.booleans()):
        text = json.dumps(value).encode()
    else:
        text = json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")
    return draw(damaged(text)) if not draw(st.integers(0, 3)) else text


#: Pieces to insert into a text, or to replace a part of it.
_PIECES: Final = [
    *(b"\0", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\\ud800", b"\\u0000", b'"', b"{", b"}", b"["),
    *(
        b"]",
        b",",
        b":",
        b"-",
        b"1e400",
        b"1" * 400,
        b"NaN",
        b"-0",
        b"\r\n",
        b" " * 5000,
        b"\xef\xbb\xbf",
    ),
    *(b'{"a":' * 2000, b"[" * 2000, b'"id":7,', b"\x1b[2J", b"\r\n\r\n", b"%00", b"&payload="),
    b"\xef\xbb\xbf",
]


@st.composite
def damaged(draw: st.DrawFn, text: bytes) -> bytes:
    """Cuts the text, or inserts up to four pieces, beside some of its bytes or in their place."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        match draw(st.integers(0, 3)):
            case 0:
                text = text[:at]
            case 1:
                text = text[:at] + draw(st.sampled_from(_PIECES)) + text[at:]
            case 2:
                text = text[:at] + draw(st.binary(min_size=1, max_size=4)) + text[at + 1 :]
            case _:
                text = text[:at] + text[at + draw(st.integers(1, 20)) :]
    return text
