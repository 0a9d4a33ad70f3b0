"""Counts, rates, sizes, durations, ages and moments as text for people: pages, terminals and reports use the same."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable

from delayq.late_import import late_import

_SHORT = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB")


def or_dash(show: Callable[..., str], dash: str = "–") -> Callable[..., str]:
    """Return a function that shows as `show` does, but a dash for None and for what is not a finite number."""

    def shown(value: float | dt.timedelta | None, *options: object) -> str:
        is_known = value is not None and (isinstance(value, dt.timedelta) or math.isfinite(value))
        return show(value, *options) if is_known else dash

    return shown


def nearest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the name that is most like `name`, at least by `cutoff` (0 to 1); None if there is none."""
    with late_import:
        import difflib  # noqa: PLC0415

    return next(iter(difflib.get_close_matches(name, list(names), 1, cutoff)), None)


def plural(count: int, noun: str) -> str:
    """Return a count and its noun, such as ``1 message`` or ``2,000 messages``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def show_ranges(numbers: Iterable[int], most: int = 5) -> str:
    """Return rising numbers as ranges, such as "0, 4–7"; after `most` ranges, "…"."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ", ".join("–".join(map(str, each)) for each in ranges[:most]) + ("…" if len(ranges) > most else "")


def show_count(count: float, digits: int = 0) -> str:
    """Return a number in full: ``1,234,567``."""
    return f"{count:,.{digits}f}"


def show_short(count: float) -> str:
    """Return a round number in short form, for an axis: ``20k`` for 20,000."""
    size, unit = next((each for each in _SHORT if count >= each[0]), (1, ""))
    return f"{count / size:g}{unit}"


def show_per_second(rate: float) -> str:
    """Return a rate per second with three significant digits, or all before the point: ``1,234``, ``3.64``."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def show_size(size: float) -> str:
    """Return a number of bytes with three digits and its unit: ``14.2 GiB``."""
    power = next((power for power in range(4) if size < 1000 * 1024**power), 4)
    value = size / 1024**power
    return f"{value:.3g} {_SIZES[power]}" if value < 1000 else f"{value:,.0f} {_SIZES[power]}"


def show_duration(seconds: float | dt.timedelta) -> str:
    """Return a duration in its two longest units: ``1h 30m``, ``9.8s``, ``120ms``."""
    if isinstance(seconds, dt.timedelta):
        seconds = seconds.total_seconds()
    if seconds == math.inf:  # another program may have stored any score
        return "more than a century"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}s".replace(".0s", "s")
    left = round(seconds)
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0"))


def show_moment(moment: dt.datetime, now: dt.datetime | None = None) -> str:
    """Return a moment in local time and, if `now` is given, its distance from that."""
    try:
        shown = moment.astimezone().isoformat(sep=" ", timespec="milliseconds")
    except OverflowError:  # the last hours of the year 9999, in a zone east of UTC
        shown = moment.isoformat(sep=" ", timespec="milliseconds")
    return shown if now is None else f"{shown} ({show_away(moment, now)})"


def show_away(moment: dt.datetime, now: dt.datetime) -> str:
    """Return how far a moment is from `now`: ``in 1h 30m``, ``9.8s ago``, ``in 1y 93d``."""
    away = (moment - now).total_seconds()
    years, days = divmod(round(abs(away) / 86_400), 365)  # not in `show_duration`: `parse_duration` knows no years
    shown = f"{years}y {days}d".removesuffix(" 0d") if years else show_duration(abs(away))
    return f"in {shown}" if away > 0 else f"{shown} ago"
