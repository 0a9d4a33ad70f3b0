"""A query's filters as bounds of what is fetched, if the option `pushFilters` lets Spark push them down.

The classes of filters came with Spark 4.1. Older versions push down nothing and call nothing here.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import Any, NamedTuple

from pyspark.sql import datasource as spark

from delayq.model.placement import State
from delayq.model.units import MAX_TIME_MS
from delayq.spark.reading.pages import SCORES

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


class Wanted(NamedTuple):
    """Which messages to read.

    Attributes:
        states: the states that they are in.
        after, before: bounds of their scores, ms: from `after` on, until before `before`.
        ids: None for all.
    """

    states: list[State]
    after: float = -math.inf
    before: float = math.inf
    ids: frozenset[str] | None = None


def narrowed(wanted: Wanted, condition: spark.Filter) -> Wanted | None:
    """Return what is wanted if a filter holds; None if Spark has to apply the filter."""
    if isinstance(condition, spark.Not):
        return _without(wanted, condition.child)
    column = _column(condition)
    if column in SCORES.values():
        return _in_time(wanted, column, condition)
    if column not in ("id", "state"):
        return None
    if isinstance(condition, spark.IsNotNull):
        return wanted
    texts = _texts(condition)
    if texts is None:
        return None
    if column == "state":
        return wanted._replace(states=[state for state in wanted.states if state in texts])
    if any("\\" in text for text in texts):  # the display form of ids that are not text, which cannot be looked up
        return None
    return wanted._replace(ids=texts if wanted.ids is None else texts & wanted.ids)


def _without(wanted: Wanted, condition: spark.Filter) -> Wanted | None:
    texts = _texts(condition)
    if texts is None or _column(condition) != "state":
        return None
    return wanted._replace(states=[state for state in wanted.states if state not in texts])


def _in_time(wanted: Wanted, column: str, condition: spark.Filter) -> Wanted | None:
    bounds = (-math.inf, math.inf) if isinstance(condition, spark.IsNotNull) else _bounds(condition)
    if bounds is None:
        return None
    states = [state for state in wanted.states if SCORES.get(state) == column]
    return wanted._replace(states=states, after=max(wanted.after, bounds[0]), before=min(wanted.before, bounds[1]))


def _bounds(condition: spark.Filter) -> tuple[float, float] | None:
    value: Any = getattr(condition, "value", None)
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        return None
    micros = (value - _EPOCH) // _MICROSECOND
    at, behind = -(-micros // 1000), micros // 1000 + 1  # the first ms at or after the time, and the first one after it
    if not 0 < at < MAX_TIME_MS:  # cells show the nearest end for times outside the calendar
        return None
    kinds: dict[type[spark.Filter], tuple[float, float]] = {
        spark.EqualTo: (at, behind),
        spark.GreaterThanOrEqual: (at, math.inf),
        spark.GreaterThan: (behind, math.inf),
        spark.LessThan: (-math.inf, at),
        spark.LessThanOrEqual: (-math.inf, behind),
    }
    return kinds.get(type(condition))


def _column(condition: spark.Filter) -> str:
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    return path[0].lower() if len(path) == 1 else ""


def _texts(condition: spark.Filter) -> frozenset[str] | None:
    """Return the values that a column must be one of; None for another kind of filter."""
    values: tuple[Any, ...] = ()
    if isinstance(condition, spark.In):
        values = condition.value
    elif isinstance(condition, spark.EqualTo | spark.EqualNullSafe):
        values = (condition.value,)
    return frozenset(values) if values and all(isinstance(value, str) for value in values) else None
