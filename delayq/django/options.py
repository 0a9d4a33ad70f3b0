"""The OPTIONS of the backend in the setting TASKS."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Self

import msgspec


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The OPTIONS.

    Attributes:
        url: of the server; None for DELAYQ_URL, or else the embedded store.
        prefix: of all keys.
        results: for how long a result is kept after the task's end, seconds or a timedelta, 0.001 s to 366 days.
        max_retries: deliveries after the first one, 0 to 1,000,000, for tasks that do not say it.
        enqueue_on_commit: the alias of the database whose commit sends a task that is enqueued within a transaction; a
            rollback drops it. None sends at once.
        outbox: write tasks into the outbox of that database instead, from which ``manage.py delayq relay`` sends them.
        outbox_notify: wake relays at a commit on PostgreSQL; if False, they look every second.
    """

    url: str | None = None
    prefix: str = "delayq"
    results: int | float | dt.timedelta = 7 * 86400
    max_retries: int = 0
    enqueue_on_commit: str | None = "default"
    outbox: bool = False
    outbox_notify: bool = True

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the OPTIONS as given; raises msgspec.ValidationError."""
        return msgspec.convert(dict(given), cls)
