"""The name of the task that a message is for, which is in one of its headers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from delayq.errors import InvalidInput, InvalidName
from delayq.model.envelope import TASK, CheckedJson, encode_json, exact
from delayq.model.validation import check_task_name


def header_of(task: str | None, payload: object) -> dict[str, str] | None:
    """Return the header that names a task, or None for None.

    Raises:
        InvalidName: the name is not valid.
        InvalidInput: the payload is not an object, as the arguments of a task are.
    """
    if task is None:
        return None
    name: str = exact(check_task_name(task))
    if not (isinstance(payload, dict) or _is_object(payload)):
        raise InvalidInput(f"the payload of task {name!r} is not an object: give a dict of its arguments")
    return {TASK: name}


def _is_object(payload: object) -> bool:
    if isinstance(payload, bytes | bytearray | memoryview) and not isinstance(payload, CheckedJson):
        return False
    body = payload if isinstance(payload, CheckedJson) else encode_json(payload)
    return body.lstrip().startswith(b"{")


def task_of(headers: Mapping[str, Any] | None) -> str | None:
    """Return the task that a message names; None if there is none, or not as delayq writes it."""
    name = headers.get(TASK) if headers else None
    return _valid(name) if isinstance(name, str) else None


@lru_cache(1000)
def _valid(name: str) -> str | None:
    try:
        return check_task_name(name)
    except InvalidName:
        return None
