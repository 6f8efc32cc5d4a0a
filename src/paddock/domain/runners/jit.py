"""A JIT configuration's one field that paddock changes: `DisableUpdate`.

GitHub may tell a runner to install another version of itself before it gets a job. actions/runner then
exits with 3 or 4 and expects its own start script to restart it. In a Pod that is the end of a runner
that holds a JIT. The configuration that GitHub mints does not forbid it (seen:
github-aws-runners/terraform-aws-github-runner#4052), so paddock does. The image determines the version,
and `runner_versions` reports one that GitHub will refuse.

The format is the runner's, and not documented: base64 of {file name: base64 of the file}. A
configuration that cannot be read so is handed over as it came.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

_SETTINGS: Final = ".runner"
_FLAG: Final = "DisableUpdate"
#: As a text: github-act-runner refuses other types.
_SET: Final = "True"

_UNREADABLE: Final = (ValueError, KeyError, RecursionError, msgspec.MsgspecError)


def without_self_update(encoded: str) -> str:
    """The JIT configuration with self-updates disabled."""
    try:
        files = msgspec.json.decode(base64.b64decode(encoded, validate=True), type=dict[str, str])
        content = base64.b64decode(files[_SETTINGS], validate=True)
        settings = msgspec.json.decode(content, type=dict[str, Any])
    except _UNREADABLE:
        return encoded
    # Runners read names and values in any case.
    given = [name for name in settings if name.lower() == _FLAG.lower()]
    if given and all(str(settings[name]).lower() == "true" for name in given):
        return encoded
    kept = {name: value for name, value in settings.items() if name not in given}
    files[_SETTINGS] = _encoded({**kept, _FLAG: _SET})
    return _encoded(files)


def _encoded(object_: object) -> str:
    return base64.b64encode(msgspec.json.encode(object_)).decode()
