"""When a schedule fires, in words: "Every weekday at 09:00, Europe/Berlin"."""

from __future__ import annotations

import datetime as dt
import re

from cronsim import CronSim, CronSimError

from delayq.model.cron_expression import ALIASES

_ANY_TIME = dt.datetime(2000, 1, 1)  # noqa: DTZ001  # the words do not depend on it
_ORDINAL = re.compile(r"\b(\d*[02-9])?([123])th\b", re.ASCII)
_ENDINGS = {"1": "st", "2": "nd", "3": "rd"}
_WEEKDAYS = re.compile(r"At (.*) on Monday through Friday")


def words(when: str, timezone: str) -> str:
    """Return a schedule's expression in words, or the expression itself if there are none."""
    text = when.strip()
    if text.lower().startswith("every"):
        return text[0].upper() + text[1:]
    try:
        told = CronSim(ALIASES.get(text.lower(), text), _ANY_TIME).explain()
    except (CronSimError, AssertionError, ValueError):
        told = text
    if weekdays := _WEEKDAYS.fullmatch(told):
        told = f"Every weekday at {weekdays[1]}"
    # If both days are given and neither starts with a star, cron fires on either: "and" would be wrong.
    told = _ORDINAL.sub(lambda match: match[0][:-2] + _ENDINGS[match[2]], told.replace(" and on ", " or on "))
    return f"{told}, {timezone}"
