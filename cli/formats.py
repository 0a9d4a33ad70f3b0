"""What people write and read on the command line: times, positions in a topic, counts, sizes, payloads."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal

import msgspec
from msgspec.structs import asdict, astuple

from delayq.errors import InvalidInput, InvalidTime, PayloadNotSerializable
from delayq.model import show
from delayq.model.task_runs import TaskRuns
from delayq.model.text import printable
from delayq.model.units import parse_moment

_POSITION = re.compile(r"[-+$]|\(?\d+(-\d+)?", re.ASCII)


def parse_position(text: str) -> str | dt.datetime:
    """Return a position in a topic: a record's id, ``-``, ``+`` or ``$`` as it is, or a moment.

    Raises:
        InvalidTime: anything else.
    """
    written = text.strip()
    if _POSITION.fullmatch(written):
        return written
    try:
        return parse_moment(written)
    except InvalidTime as error:
        raise InvalidTime(
            f"{text!r} is not an id of a record, such as 1700000000000-0, and not a time: {error}"
        ) from error


def show_moment(moment: dt.datetime | None, long: bool = True) -> str:
    """Return how far a moment is from now and, if `long`, the moment in local time; ``-`` for None."""
    if moment is None:
        return "-"
    away = show.show_away(moment, dt.datetime.now(dt.UTC))
    return f"{away} ({show_date(moment)})" if long else away


show_date = show.show_moment

MOST_TASKS = 5


def tasks_text(tasks: Mapping[str, TaskRuns]) -> str:
    """Return the runs of the tasks of a queue; of more than five, those with the most runs."""
    most = sorted(tasks.items(), key=lambda each: (-sum(astuple(each[1])), each[0]))
    texts = [f"{printable(name)} {_runs_text(runs)}" for name, runs in most[:MOST_TASKS]]
    hidden = len(most) - MOST_TASKS
    return "; ".join([*texts, f"{hidden:,} more"] if hidden > 0 else texts)


def _runs_text(runs: TaskRuns) -> str:
    counts = asdict(runs)
    return ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items() if count or outcome == "acked")


UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
"""Bytes per unit, as in Redis' own `maxmemory`: multiples of 1,024."""

MOST = 10**18

_COUNT = re.compile(r"\d+(\.\d+)?(e\d{1,2})?|\d{1,3}([,_]\d{3})+", re.ASCII | re.IGNORECASE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kmgt]?)(?:i?b)?", re.ASCII | re.IGNORECASE)


def parse_count(text: str) -> int:
    """Return the whole number that ``1000000``, ``1,000,000``, ``1e6`` or ``2.5e6`` means.

    Raises:
        InvalidInput: anything else, not a whole number, or more than 10^18.
    """
    written = text.strip()
    value = Decimal(re.sub("[,_]", "", written)) if _COUNT.fullmatch(written) else None
    if value is None or value > MOST or value != int(value):
        raise InvalidInput(f"{text!r} is not a whole number: write it as in 1000000, 1,000,000 or 1e6")
    return int(value)


def parse_size(text: str) -> int:
    """Return the bytes that ``300``, ``2k``, ``512m`` or ``16g`` means, rounded down; ``16GiB`` is 16g.

    Raises:
        InvalidInput: anything else, or more than 10^18.
    """
    match = _SIZE.fullmatch(text.strip())
    value = Decimal(match[1]) * UNITS[match[2].lower()] if match else None
    if value is None or value > MOST:
        raise InvalidInput(f"{text!r} is not a number of bytes: write it as in 300, 2k, 512m or 16g")
    return int(value)


Kind = Literal["auto", "json", "text", "raw"]


def payload_of(body: bytes, kind: Kind) -> Any:
    """Return what to send.

    Args:
        kind: "json": JSON, kept as written; "text": a string; "raw": bytes as they are; "auto": JSON if it is valid
            JSON, else a string.

    Raises:
        PayloadNotSerializable: the bytes are not of that kind.
    """
    if kind == "raw":
        return body
    if kind != "text":
        try:
            return checked_json(body)
        except PayloadNotSerializable:
            if kind == "json":
                raise
    try:
        return body.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise PayloadNotSerializable(
            "the payload is not UTF-8 text: give --as raw to send bytes as they are"
        ) from error


def checked_json(body: bytes) -> msgspec.Raw:
    """Return JSON that is sent exactly as written, down to the last digit of its numbers.

    Raises:
        PayloadNotSerializable: the bytes are not JSON.
    """
    try:
        msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadNotSerializable(f"the payload is not JSON: {error}") from error
    return msgspec.Raw(body.strip())
