"""What Django's TaskResult says of a message: of one that waits or runs, of the record of one that has ended."""

from __future__ import annotations

import builtins
import datetime as dt
import traceback
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.utils import timezone

from delayq import Queue, errors
from delayq.django.framework import (
    InvalidTask,
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from delayq.django.paths import load
from delayq.errors import InvalidInput
from delayq.model.consumer_info import holders
from delayq.model.message_info import MessageInfo
from delayq.types import TaskError as StoredError
from delayq.types import TaskResult as Record

RUN_AFTER = "django-run-after"
"""The header with the time that `Task.using(run_after=…)` gave."""

UNKNOWN = "unknown"
"""The name of a worker that left none: its consumer was lost."""

LEASE = dt.timedelta(seconds=30)
"""The lease of all queues."""

_STATUS = {"done": TaskResultStatus.SUCCESSFUL, "retry": TaskResultStatus.READY}


def of_record(alias: str, record: Record) -> TaskResult:
    """Return the result of a task that has ended; raises TaskResultDoesNotExist if its record cannot be read."""
    call = _call(alias, record.id, record.queue, record.task, record.arguments, record.headers or {})
    result = TaskResult(
        **call,
        status=_STATUS.get(record.status, TaskResultStatus.FAILED),
        enqueued_at=shown(record.created_at),
        started_at=shown(record.started_at),
        last_attempted_at=shown(record.last_attempted_at),
        finished_at=shown(record.finished_at),
        errors=errors_of(record),
        worker_ids=padded(record.consumers, record.attempts),
    )
    object.__setattr__(result, "_return_value", record.value)
    return result


def of_live(alias: str, queue: Queue, message_id: str) -> TaskResult:
    """Return the state of a task that waits or runs; raises TaskResultDoesNotExist if it has gone meanwhile."""
    info, record = queue.get(message_id), queue.result(message_id)
    if info is None or info.envelope is None:
        if record is None:
            raise TaskResultDoesNotExist(message_id)
        return of_record(alias, record)
    workers = padded(record.consumers if record else (), info.attempts - (info.state == "unack"))
    started, attempted = (record.started_at, record.last_attempted_at) if record else (None, None)
    if info.state == "unack":
        worker, attempted = _runner(queue, info)
        workers.append(worker)
        started = started or attempted
    return TaskResult(
        **_call(alias, info.id, info.queue, info.task, info.payload, info.headers or {}),
        status=TaskResultStatus.RUNNING if info.state == "unack" else TaskResultStatus.READY,
        enqueued_at=shown(info.created_at),
        started_at=shown(started),
        last_attempted_at=shown(attempted),
        finished_at=None,
        errors=errors_of(record),
        worker_ids=workers,
    )


def errors_of(record: Record | None) -> list[Any]:
    """Return the errors of a record, which has the last one only."""
    return [] if record is None or record.error is None else [_error(record.error)]


def padded(workers: Sequence[str], attempts: int) -> list[str]:
    """Return as many workers as there were attempts: Django counts the attempts by them."""
    return [*[UNKNOWN] * max(0, attempts - len(workers)), *workers]


def shown(moment: dt.datetime | None) -> dt.datetime | None:
    """Return a time as Django shows it: naive, and in TIME_ZONE, with USE_TZ = False."""
    return moment if moment is None or settings.USE_TZ else timezone.make_naive(moment, timezone.get_default_timezone())


def called(alias: str, queue: str, path: str, headers: dict[str, Any]) -> Task:
    """Return the task of a message, with what `Task.using` gave; raises InvalidInput if it cannot be had."""
    task, written = load(path), headers.get(RUN_AFTER)
    changes: dict[str, Any] = {} if task.queue_name == queue else {"queue_name": queue}
    if task.backend != alias:
        changes["backend"] = alias
    try:
        if written is not None:
            changes["run_after"] = dt.datetime.fromisoformat(written)
        return task.using(**changes) if changes else task
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the header {RUN_AFTER} is {written!r}, not a time in ISO 8601: {error}") from error
    except InvalidTask as error:  # such as for a queue that QUEUES has lost
        raise InvalidInput(f"the task {path!r} cannot run here: {error}") from error


def _call(alias: str, id: str, queue: str, path: str | None, arguments: Any, headers: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a TaskResult that say what was called."""
    if path is None or not isinstance(arguments, dict):
        raise TaskResultDoesNotExist(id)
    try:
        task = called(alias, queue, path, headers)
    except InvalidInput as error:
        raise TaskResultDoesNotExist(f"{id}: {error}") from error
    return {
        "task": task,
        "id": id,
        "args": arguments.get("args", []),
        "kwargs": arguments.get("kwargs", {}),
        "backend": alias,
    }


def _error(error: StoredError) -> Any:
    kind = error.type
    if "." not in kind:  # it is one of Python's, or delayq's, or nobody has raised it
        modules = [each for each in (builtins, errors) if isinstance(getattr(each, kind or "-", None), type)]
        kind = f"{modules[0].__name__}.{kind}" if modules else _path(errors.TaskFailed)
    return TaskError(exception_class_path=kind, traceback=error.traceback or error.cause)


def raised(error: BaseException) -> Any:
    """Return the TaskError of an error that a task has raised."""
    return TaskError(exception_class_path=_path(type(error)), traceback="".join(traceback.format_exception(error)))


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _runner(queue: Queue, info: MessageInfo) -> tuple[str, dt.datetime | None]:
    """Return who runs a message, and since when, as consumers report it every ten seconds.

    Before the first report, the lease has not been renewed either, so its end says when it began.
    """
    reports = holders(queue.consumers(), info.id, info.attempts)
    if reports:
        consumer, held = reports[-1]
        return consumer.name, held.since
    return UNKNOWN, None if info.lease_until is None else info.lease_until - LEASE
