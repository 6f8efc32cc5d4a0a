"""Self-updates are disabled in a JIT configuration, and nothing else in it is changed."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from paddock.domain.runners.jit import without_self_update

SETTINGS = {"AgentId": "42", "AgentName": "r1", "Ephemeral": "True", "UseV2Flow": "True"}


def encoded(content: object) -> str:
    return base64.b64encode(json.dumps(content).encode()).decode()


def configuration(settings: object) -> str:
    return encoded({".runner": encoded(settings), ".credentials": "e30="})


def settings_of(jit: str) -> dict[str, Any]:
    files = json.loads(base64.b64decode(jit))
    assert files.pop(".credentials") == "e30="
    [content] = files.values()
    settings: dict[str, Any] = json.loads(base64.b64decode(content))
    return settings


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"DisableUpdate": "False"},
        {"disableUpdate": False},
        {"disableUpdate": "true", "DisableUpdate": None},
    ],
)
def test_the_flag_is_set_as_a_text(given: dict[str, Any]) -> None:
    """github-act-runner refuses other types."""
    changed = without_self_update(configuration({**SETTINGS, **given}))
    assert settings_of(changed) == {**SETTINGS, "DisableUpdate": "True"}


@pytest.mark.parametrize("value", ["True", "true", True])
def test_a_configuration_that_has_it_stays_as_it_is(value: object) -> None:
    given = configuration({**SETTINGS, "disableUpdate": value})
    assert without_self_update(given) == given


@pytest.mark.parametrize(
    "given",
    [
        "",
        "not base64!",
        "jit-1",
        "ünicode",
        encoded([]),
        encoded({}),
        encoded({".runner": 7}),
        encoded({".runner": "?"}),
        configuration([]),
        configuration("{}"),
        base64.b64encode(b'{".runner":"' + base64.b64encode(b"[" * 100_000) + b'"}').decode(),
        base64.b64encode(b'{".runner":"\xff"}').decode(),
    ],
)
def test_what_cannot_be_read_is_handed_over_as_it_came(given: str) -> None:
    assert without_self_update(given) == given
