"""Names of time zones: those that mean the same on every machine, and what to write instead of others."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from delayq.errors import InvalidInput
from delayq.late_import import late_import
from delayq.model.show import nearest

if TYPE_CHECKING:
    import zoneinfo

_NOT_EVERYWHERE = {"localtime", "Factory", "posixrules"}  # the machine's own zone, none, and a file for old programs
_PLACE = re.compile(r"(?:Africa|America|Antarctica|Arctic|Asia|Atlantic|Australia|Canada|Europe|Indian|Pacific|US)/.+")
_OFFSET = re.compile(r"(?:UTC|GMT)?\s*([+-])(\d{1,2})(?::?00)?", re.IGNORECASE)
_SHORT = {
    "ACST": "Australia/Adelaide",
    "AEDT": "Australia/Sydney",
    "AEST": "Australia/Sydney",
    "AKST": "America/Anchorage",
    "AWST": "Australia/Perth",
    "BRT": "America/Sao_Paulo",
    "BST": "Europe/London",
    "CAT": "Africa/Johannesburg",
    "CDT": "America/Chicago",
    "CEST": "Europe/Berlin",
    "CST": "America/Chicago' or 'Asia/Shanghai",
    "EAT": "Africa/Nairobi",
    "EDT": "America/New_York",
    "EEST": "Europe/Helsinki",
    "HKT": "Asia/Hong_Kong",
    "IST": "Asia/Kolkata', 'Asia/Jerusalem' or 'Europe/Dublin",
    "JST": "Asia/Tokyo",
    "KST": "Asia/Seoul",
    "MDT": "America/Denver",
    "MSK": "Europe/Moscow",
    "NZST": "Pacific/Auckland",
    "PDT": "America/Los_Angeles",
    "PST": "America/Los_Angeles",
    "SGT": "Asia/Singapore",
    "WEST": "Europe/Lisbon",
}
_WINDOWS = {
    "AUS EASTERN": "Australia/Sydney",
    "CENTRAL": "America/Chicago",
    "CENTRAL EUROPE": "Europe/Budapest",
    "CHINA": "Asia/Shanghai",
    "E. SOUTH AMERICA": "America/Sao_Paulo",
    "EASTERN": "America/New_York",
    "GMT": "Europe/London",
    "INDIA": "Asia/Kolkata",
    "MOUNTAIN": "America/Denver",
    "PACIFIC": "America/Los_Angeles",
    "ROMANCE": "Europe/Paris",
    "TOKYO": "Asia/Tokyo",
    "W. EUROPE": "Europe/Berlin",
}


def load_zone(name: str) -> zoneinfo.ZoneInfo:
    """Return the time zone with this name, as this machine knows it; raises InvalidInput."""
    with late_import:
        import zoneinfo  # noqa: PLC0415
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError, OSError, AttributeError) as error:
        raise _unknown(name) from error


def check_zone(name: str) -> None:
    """Raise InvalidInput unless this is the name of a time zone that means the same on every machine."""
    load_zone(name)
    if name in _NOT_EVERYWHERE or name not in _known_zones():
        raise _unknown(name)


@functools.cache
def _known_zones() -> frozenset[str]:
    """Return the names of this machine's zones, which takes 30 ms the first time: each zone's file is opened."""
    with late_import:
        import zoneinfo  # noqa: PLC0415

    return frozenset(zoneinfo.available_timezones())


def _unknown(name: object) -> InvalidInput:
    text = repr(name)
    shown = text if len(text) <= 50 else f"{text[:50]}…"
    known = _known_zones()
    if not known:
        return InvalidInput(f"unknown timezone {shown}: this machine has no time zone data; install the package tzdata")
    return InvalidInput(f"unknown timezone {shown}: {_remedy(str(name)[:200].strip(), known)}")


def _remedy(name: str, known: frozenset[str]) -> str:
    if name in _NOT_EVERYWHERE:
        return "it is not the same on every machine; use a name such as 'Europe/Berlin'"
    _, _, inner = name.partition("/")
    if name.startswith(("right/", "posix/")) and inner in known:
        return f"not every machine has it; use {inner!r}"
    upper = name.upper()
    if upper in {"UTC", "Z"}:
        return "did you mean 'UTC'?"
    if place := _SHORT.get(upper):
        return f"an abbreviation does not say which clock changes apply; use a place such as '{place}'"
    if match := _OFFSET.fullmatch(name):
        hours = int(f"{match[1]}{match[2]}")
        fixed = f"Etc/GMT{-hours:+d}" if hours else "UTC"
        if fixed in known:
            ahead = f"{abs(hours)} hours {'ahead of' if hours > 0 else 'behind'} UTC"
            return f"use a place such as 'Europe/Berlin', or {fixed!r} for always {ahead}"
    if upper.endswith((" STANDARD TIME", " DAYLIGHT TIME")):
        place = _WINDOWS.get(upper.rsplit(" ", 2)[0], "Europe/Berlin")
        return f"this is a name that Windows uses; use an IANA name such as {place!r}"
    places = {each.lower(): each for each in known if _PLACE.fullmatch(each)}
    cities = {each.rpartition("/")[2]: each for each in places}
    lower = name.lower().replace(" ", "_")
    for names, full in ((places, str), (cities, cities.get)):
        if near := nearest(lower, names, 0.75):
            return f"did you mean {places[str(full(near))]!r}?"
    return "use a name such as 'Europe/Berlin'"
