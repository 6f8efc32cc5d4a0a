"""Kubernetes' quantities, as whole numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Final

_UNITS: Final[Mapping[str, int]] = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
}

#: What the database's columns hold; more than any machine has.
MOST: Final = 2**31 - 1
#: A number with more digits before its point is too large in any unit. Computing with one of a million
#: digits takes half a minute.
_DIGITS: Final = 30
#: How many characters of a quantity an error shows.
_SHOWN: Final = 40


def milli(quantity: str | float) -> int:
    """`2`, `0.5` or `500m` CPUs, in thousandths, rounded up."""
    text = str(quantity).strip()
    value = _number(text.removesuffix("m"), text) * (1 if text.endswith("m") else 1000)
    return _whole(value, text)


def mebibytes(quantity: str | int) -> int:
    """`4Gi`, `512Mi` or a number of bytes, in MiB, rounded up."""
    text = str(quantity).strip()
    match = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text)
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{text[:_SHOWN]!r} is no amount of memory: write 512Mi or 4Gi")
    return _whole(_number(match[1], text) * _UNITS[match[2]] / 2**20, text)


def _number(text: str, shown: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{shown[:_SHOWN]!r} is no quantity: write 2, 500m or 4Gi") from None
    if not value.is_finite() or value < 0:
        raise ValueError(f"{shown[:_SHOWN]!r} is no quantity: it is at least 0")
    if value.adjusted() > _DIGITS:
        raise _too_large(shown)
    return value


def _whole(value: Decimal, shown: str) -> int:
    whole = int(value.to_integral_value(rounding="ROUND_CEILING"))
    if whole > MOST:
        raise _too_large(shown)
    return whole


def _too_large(shown: str) -> ValueError:
    return ValueError(f"{shown[:_SHOWN]!r} is more than any machine has")
