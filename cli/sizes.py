"""Counts and sizes as people write them: ``1e9`` messages, ``16g`` of memory; and as people read them."""

from __future__ import annotations

import re
from decimal import Decimal

from delayq.errors import InvalidInput

UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
"""Bytes, as Redis' own `maxmemory` counts them: by 1,024."""

NAMES = ("bytes", "KiB", "MiB", "GiB", "TiB")
MOST = 10**18

_COUNT = re.compile(r"\d+(\.\d+)?(e\d{1,2})?|\d{1,3}([,_]\d{3})+", re.ASCII | re.IGNORECASE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kmgt]?)(?:i?b)?", re.ASCII | re.IGNORECASE)


def parse_count(text: str) -> int:
    """Return the whole number that ``1000000``, ``1,000,000``, ``1e6`` or ``2.5e6`` stands for.

    Raises:
        InvalidInput: anything else, no whole number, or more than 10^18.
    """
    written = text.strip()
    value = Decimal(re.sub("[,_]", "", written)) if _COUNT.fullmatch(written) else None
    if value is None or value > MOST or value != int(value):
        raise InvalidInput(f"{text!r} is not a whole number: write it as in 1000000, 1,000,000 or 1e6")
    return int(value)


def parse_size(text: str) -> int:
    """Return the bytes that ``300``, ``2k``, ``512m`` or ``16g`` stand for, rounded down; ``16GiB`` is 16g.

    Raises:
        InvalidInput: anything else, or more than 10^18.
    """
    match = _SIZE.fullmatch(text.strip())
    value = Decimal(match[1]) * UNITS[match[2].lower()] if match else None
    if value is None or value > MOST:
        raise InvalidInput(f"{text!r} is not a number of bytes: write it as in 300, 2k, 512m or 16g")
    return int(value)


def show_size(size: float) -> str:
    """Return a number of bytes with three digits and its unit: ``14.2 GiB``."""
    power = next((power for power in range(4) if size < 1000 * 1024**power), 4)
    value = size / 1024**power
    return f"{value:.3g} {NAMES[power]}" if value < 1000 else f"{value:,.0f} {NAMES[power]}"
