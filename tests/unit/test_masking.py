"""Secrets in logs: a corpus of what is masked and of what stays, and hostile lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.forensics.masking import MASK, mask
from paddock.forensics.post_mortem import READ_BYTES, TAIL_BYTES, TAIL_LINES, fit_to_keep

_CORPUS = Path(__file__).with_name("masking_corpus.txt")


def _cases() -> Iterator[str]:
    for paragraph in _CORPUS.read_text("utf-8").replace("¦", "").strip("\n").split("\n\n"):
        if not paragraph.startswith("# "):
            yield paragraph


CASES = [*_cases()]
SECRETS = [case for case in CASES if "«" in case]
ORDINARY = [case for case in CASES if "«" not in case]


def _text(case: str) -> str:
    return case.replace("«", "").replace("»", "")


def _masked(case: str) -> str:
    return re.sub("«[^»]*»", MASK, case)


def test_the_corpus_is_read() -> None:
    assert len(SECRETS) > 100
    assert len(ORDINARY) > 40


@pytest.mark.parametrize("case", SECRETS)
def test_a_secret_is_masked_and_nothing_else(case: str) -> None:
    assert mask(_text(case)) == _masked(case)


@pytest.mark.parametrize("case", ORDINARY)
def test_an_ordinary_line_stays_as_it_is(case: str) -> None:
    assert mask(case) == case


@pytest.mark.parametrize("case", CASES)
def test_masking_twice_changes_nothing_more(case: str) -> None:
    assert mask(mask(_text(case))) == mask(_text(case))


@given(st.lists(st.sampled_from(CASES), min_size=2, max_size=6))
def test_each_is_masked_in_any_surrounding_text(cases: list[str]) -> None:
    """But what lies at the edge of a tail, which may be a part of a key."""
    cases = [case for case in cases if "KEY-----" not in case and "q83v" not in case]
    text = "\n--\n".join(map(_text, cases))
    assert mask(text) == "\n--\n".join(map(_masked, cases))


def test_colours_between_a_name_and_its_value_hide_nothing() -> None:
    kept = fit_to_keep("\x1b[36mtoken\x1b[0m=\x1b[32mhunter2hunter2\x1b[0m level=info")
    assert kept == f"token={MASK} level=info"


def test_character_sets_between_a_name_and_its_value_hide_nothing() -> None:
    """`tput sgr0` writes them."""
    assert fit_to_keep("DB_PASSWORD\x1b(B\x1b[m=\x1b(Bhunter2") == f"DB_PASSWORD={MASK}"


@pytest.mark.parametrize("after", ["an ordinary line\n", "password=" + "x" * 1000 + "\n"])
@pytest.mark.parametrize("limit", [READ_BYTES, TAIL_BYTES])
def test_a_secret_is_masked_wherever_the_log_is_cut(after: str, limit: int) -> None:
    """A fleet reads the last bytes of a log, from the middle of a line, and what is kept is cut again.
    The text is shorter after it was masked, so that its first line may be among what is kept."""
    line = "DB_PASSWORD=correct horse battery\n"
    for cut in range(0, len(line), 5):
        rest = (after * (limit // len(after) + 1))[cut - limit :]
        log = "before\n" * READ_BYTES + line + rest
        assert "battery" not in fit_to_keep(log[-READ_BYTES:])


def test_the_end_of_a_log_that_is_one_line_is_kept() -> None:
    kept = fit_to_keep("progress " * READ_BYTES)
    assert TAIL_BYTES - 9 < len(kept) <= TAIL_BYTES


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        "a", "A1", "-", "----", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "-----END ",
        "-----END A-----", "eyJ", "ghp_", "token", "token ", "token=", "token_", "token: ",
        "password'", 'password"', 'password="', "password=\\", 'password=\\"', "name: password\n",
        '"name": "token", "value": ', "://", "://a", "://a:", "://:@", "https://a@", "@", ":", "=",
        " ", "\t", "\n", "\r", "\\", '"', "'", "&", "&a=", ";a=", "--token ", "--a", "login ",
        "login -p", "-u a:", "cookie: ", "authorization: ", "authorization: bearer ", "bearer ",
        "secret_", "SECRET", "Secret", "key", "api_key", "apikey=a", "q83vEjRW", "MIIE" * 16 + "\n",
        "\x1b", "\x1b[", "\x1b[0m", "A" * 64 + "\n", "aB3/" * 16 + "\n", "</", "<", ">",
        "hooks.slack.com/",
    ],
)  # fmt: skip
def test_no_line_takes_more_than_linear_time(part: str) -> None:
    """As long as any that is looked at. In quadratic time it would take hours, and the test's time-out
    would end it."""
    size = 4 * TAIL_BYTES
    for before in ("", "password=", "-----BEGIN A-----\n")[: 1 + 2 * (len(part) < 9)]:
        kept = fit_to_keep(before + part * (size // len(part)))
        assert len(kept.encode()) <= TAIL_BYTES
        assert len(kept.splitlines()) <= TAIL_LINES
