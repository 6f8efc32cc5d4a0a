"""The settings for display: for a secret only whether it is set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from paddock.domain.reading.rows import ReadModel


class SettingLine(ReadModel, frozen=True, kw_only=True):
    """A setting in force. The `value` of a secret is whether it is set."""

    name: str
    value: Any
    secret: bool
    description: str


def shown(settings: BaseModel, prefix: str = "") -> Iterator[SettingLine]:
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from shown(value, f"{prefix}{name}.")
            continue
        yield SettingLine(
            name=f"{prefix}{name}",
            value=_plain(value),
            secret="SecretStr" in str(field.annotation),
            description=field.description or "",
        )


def _plain(value: Any) -> Any:
    match value:
        case SecretStr():
            return True
        case BaseModel():
            return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
        case tuple() | list():
            return [_plain(each) for each in value]
        case Path():
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)
