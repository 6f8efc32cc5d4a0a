"""Logs of jobs with any content are masked in bounded time, kept, and shown as text."""

from __future__ import annotations

import time

from hypothesis import strategies as st

from paddock.domain.plain_text import escaped_lines
from paddock.forensics.masking import MASK, mask
from paddock.forensics.post_mortem import TAIL_BYTES, TAIL_LINES, fit_to_keep
from tests.support.fuzzing import Fuzzer
from tests.support.hostile import controls
from tests.unit.test_masking import CASES

#: Seconds of processor time for a whole tail. An ordinary tail takes a hundredth of it; with a pattern
#: that is not linear it takes minutes.
_SECONDS = 5.0
#: No keyword, no common word, and in no form that is known: only what stands around it tells.
PLANTED = "Zq7vXw3kTr9m"
#: Where a secret stands in ordinary logs; ¤ is it.
_PLACES = [
    *("DB_PASSWORD=¤", "export API_TOKEN=¤", 'password: "¤"', "  client_secret: ¤", "--password ¤"),
    *(
        '{"access_key": "¤"}',
        "Authorization: Bearer ¤",
        "https://user:¤@example.org/x",
        "PGPASSWORD='¤'",
    ),
    *(
        "X-Api-Key: ¤",
        "AWS_SECRET_ACCESS_KEY = ¤",
        "curl -u me:¤ https://x",
        "::add-mask::¤",
        "Cookie: a=¤",
    ),
    *(
        "set NPM_TOKEN=¤",
        "<password>¤</password>",
        "--token=¤",
        "secret => '¤'",
        "mysql://root:¤@db/x",
    ),
]
#: What stands before such a place in real logs.
_BEFORE = [
    *(
        "",
        "2026-01-05T09:00:00.123Z ",
        "[12:00:01] ",
        "#7 0.123 ",
        "+ ",
        "\t",
        "app_1  | ",
        "INFO: ",
    ),
    *("\x1b[36m", "\x1b[0m\x1b[1m", "##[debug]", "ERROR ", "env: ", "stdout F ", "(x) "),
]
#: What patterns repeat over: many of one make a pattern slow that is not linear.
_REPEATED = [
    *(
        "a",
        "A",
        "0",
        "=",
        "-",
        "_",
        " ",
        "\t",
        '"',
        "'",
        "\\",
        '\\"',
        "/",
        ":",
        "@",
        "://",
        "?",
        "&",
    ),
    *("eyJ", "key", "token", "password", "secret=", "PASSWORD_", "--", "-u ", "name: ", "value: "),
    *(
        "-----BEGIN X-----",
        "-----END X-----",
        "LS0tLS1",
        "login -p",
        "\n",
        "A\n",
        "a:a@",
        "=\\",
        "\x1b[",
    ),
    *(
        "auth",
        "Authorization: ",
        "Key",
        "_key",
        "identified by '",
        "http://",
        "cookie:",
        "gl",
        "k_",
        "SG.",
    ),
]


def test_planted_secrets(fuzzer: Fuzzer) -> None:
    """Known forms, with ordinary lines around them, of which none changes what is masked."""

    def check(lines: list[str]) -> str:
        kept = fit_to_keep("\n".join(lines))
        assert PLANTED not in kept, kept
        assert MASK in kept
        return "masked"

    place = st.tuples(st.sampled_from(_BEFORE), st.sampled_from(_PLACES)).map(
        lambda both: both[0] + both[1].replace("¤", PLANTED)
    )
    ordinary = st.sampled_from([case.replace("«", "").replace("»", "") for case in CASES])
    noise = st.one_of(ordinary, st.text(max_size=60))
    lines = st.tuples(st.lists(noise, max_size=3), place, st.lists(noise, max_size=3))
    fuzzer.run(lines.map(lambda parts: [*parts[0], parts[1], *parts[2]]), check)


def test_lines_of_any_text(fuzzer: Fuzzer) -> None:
    """They are bounded, can be stored, mean no more to a terminal than text, and take bounded time."""

    def check(text: str) -> str:
        began = time.process_time()
        kept = fit_to_keep(text)
        assert time.process_time() - began < _SECONDS, "masking took too long"
        assert len(kept.encode()) <= TAIL_BYTES
        assert len(kept.splitlines()) <= TAIL_LINES
        assert "\0" not in kept
        shown = "\n".join(escaped_lines(kept))
        assert controls(shown) == set()
        assert mask(kept) == mask(mask(kept))
        return "masked" if MASK in kept else "as it was"

    piece = st.one_of(
        st.sampled_from(_REPEATED),
        st.sampled_from(CASES),
        st.text(max_size=10),
        st.from_regex(r"[A-Za-z0-9+/=_.-]{1,40}", fullmatch=True),
    )
    part = st.tuples(piece, st.sampled_from([1, 1, 1, 2, 50, 5000, 70_000]))
    texts = st.lists(part, min_size=1, max_size=4).map(
        lambda parts: "".join((text * times)[:TAIL_BYTES] for text, times in parts)[-TAIL_BYTES:]
    )
    fuzzer.run(texts, check)
