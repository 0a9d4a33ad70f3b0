"""Rates as text, such as "100/s": a number of messages in a span of time."""

from __future__ import annotations

import math
import re

from delayq.errors import InvalidInput

MOST_MESSAGES = 100_000  # each delivery of a period is kept in Redis
DAY_MS = 86_400_000

_UNITS = {"d": DAY_MS, "h": 3_600_000, "min": 60_000, "m": 60_000, "s": 1000, "ms": 1}
_COUNT = re.compile(r"\d{1,9}", re.ASCII)
_SPAN = re.compile(r"(\d{0,9})(ms|s|min|m|h|d)", re.ASCII)


def parse_rate(rate: object) -> tuple[int, int]:
    """Read a rate as a number of messages and a number of milliseconds; raises InvalidInput."""
    number, slash, span = rate.partition("/") if isinstance(rate, str) else (str(rate), "", "")
    if _COUNT.fullmatch(number) and 1 <= int(number) <= MOST_MESSAGES:
        if not slash:
            raise InvalidInput(f'rate {rate!r} has no unit of time: write it as "{number}/s"')
        if 1 <= _span_ms(span) <= DAY_MS:
            return int(number), _span_ms(span)
    raise InvalidInput(
        f"rate {rate!r} is not 1 to {MOST_MESSAGES:,} messages in 1 ms to 1 d: "
        'write it as "100/s", "5/10s", "20/100ms", "9/min", "500/h" or "10000/d"'
    )


def per_second(rate: float | str, what: str = "rate") -> float:
    """Return a rate as a number a second. It is given as a number, or as text for `parse_rate`.

    Raises:
        InvalidInput: it is neither, or not a finite number above 0.
    """
    number, slash, span = rate.partition("/") if isinstance(rate, str) else (rate, "", "")
    try:
        value = -1.0 if isinstance(rate, bool) else float(number) * (1000 / _span_ms(span.strip()) if slash else 1)
    except (TypeError, ValueError, ArithmeticError):
        value = -1.0
    if not 0 < value < math.inf:
        raise InvalidInput(f'{what} {rate!r} is not a number above 0: write it as 100, "100/s", "5/10s" or "30/min"')
    return value


def _span_ms(text: str) -> int:
    """Return the milliseconds that the part of a rate after the slash means; 0 if it is not a span of time."""
    match = _SPAN.fullmatch(text)
    return int(match[1] or 1) * _UNITS[match[2]] if match else 0


def show_rate(most: int, period_ms: int) -> str:
    """Return a rate as text, in the largest unit that fits."""
    unit, ms = next((unit, ms) for unit, ms in _UNITS.items() if period_ms % ms == 0)
    return f"{most}/{'' if period_ms == ms else period_ms // ms}{unit}"
