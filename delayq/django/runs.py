"""The run of a task in a consumer: with Django's signals, its context, and its database connections."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
from django.db import close_old_connections, connections, reset_queries

from delayq import Message, Queue
from delayq.django import results
from delayq.django.framework import (
    Task,
    TaskContext,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    signals,
    task_backends,
)
from delayq.django.paths import load
from delayq.errors import InvalidInput, PayloadMismatch, UnknownTask
from delayq.log import is_interrupt
from delayq.model import outcome as oc
from delayq.model.envelope import RAW, Envelope, decode_json
from delayq.model.task import value_kept
from delayq.types import MessageInfo

try:
    from django.utils.json import normalize_json
except ImportError:  # Django 5.2
    from django_tasks.utils import normalize_json

WITHOUT_RUN = frozenset(
    {
        oc.REASON_CONSUMER_LOST,
        oc.REASON_PAYLOAD_MISSING,
        oc.REASON_UNREADABLE,
        oc.REASON_UNFETCHED,
        oc.REASON_MISMATCH,
        oc.REASON_UNKNOWN_TASK,
    }
)
"""Why a message dies although its task has raised nothing."""


class Call(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of a task's message."""

    args: list[Any] = []
    kwargs: dict[str, Any] = {}


_decode = msgspec.json.Decoder(Call).decode


class Runs:
    """Runs the tasks of a queue.

    Args:
        alias: of the queue's backend.
    """

    def __init__(self, alias: str, queue: Queue) -> None:
        self._alias = alias
        self._queue = queue
        self._worker = f"{platform.node()}-{os.getpid()}"  # in a pool process, which does not know its consumer

    def install(self) -> None:
        """Let the queue's consumers run tasks."""
        self._queue.handlers.find_task = self.find
        self._queue.middleware.on_start(self._started)
        self._queue.middleware.on_dead(self._died)

    def find(self, path: str) -> Callable[[Message], Any]:
        """Return the function that runs the task at a path; raises UnknownTask."""
        try:
            load(path)
        except InvalidInput as error:
            raise UnknownTask(str(error), path) from error
        return partial(self._run, path)

    def _started(self, consumer: Any) -> None:
        self._worker = consumer.name

    def _run(self, path: str, message: Message) -> Any:
        with _fresh_connections():
            call: Call = message.read(_read)
            sender = type(task_backends[self._alias])
            task = results.called(self._alias, self._queue.name, path, message.headers)
            result = self._begun(task, call, message)
            signals.task_started.send_robust(sender, task_result=result)
            context = (TaskContext(task_result=result),) if task.takes_context else ()
            try:
                value = _json(message, task.call(*context, *result.args, **result.kwargs))
                kept = value_kept(message, value)
            except BaseException as error:
                if not is_interrupt(error):
                    _failed(sender, result, message, error)
                raise
            _set(result, status=TaskResultStatus.SUCCESSFUL, finished_at=_now(), _return_value=value)
            signals.task_finished.send_robust(sender, task_result=result)
            return kept

    def _begun(self, task: Task, call: Call, message: Message) -> TaskResult:
        record = self._queue.result(message.id) if message.attempt > 1 else None
        now = _now()
        earlier = results.padded(record.consumers if record else (), message.attempt - 1)
        return TaskResult(
            task=task,
            id=message.id,
            status=TaskResultStatus.RUNNING,
            enqueued_at=results.shown(message.created_at),
            started_at=results.shown(record.started_at) if record and record.started_at else now,
            last_attempted_at=now,
            finished_at=None,
            args=call.args,
            kwargs=call.kwargs,
            backend=self._alias,
            errors=results.errors_of(record),
            worker_ids=[*earlier, self._worker],
        )

    def _died(self, info: MessageInfo) -> None:
        """Tell that a task has failed without a run: its consumer was lost, or none has the task."""
        if info.reason not in WITHOUT_RUN:
            return
        with _fresh_connections():
            try:
                backend = task_backends[self._alias]
                result = backend.get_result(info.id)
            except TaskResultDoesNotExist:  # another program has sent the message
                return
            signals.task_finished.send_robust(type(backend), task_result=result)


def _failed(sender: type, result: TaskResult, message: Message, error: BaseException) -> None:
    """Tell that a run has failed for good; a task that will be retried has not finished."""
    result.errors.append(results.raised(error))
    found = oc.of_error(error, message)
    if isinstance(found, oc.Dead) or (isinstance(found, oc.Failed) and message.dies_of(found.counts)):
        _set(result, status=TaskResultStatus.FAILED, finished_at=_now())
        signals.task_finished.send_robust(sender, task_result=result)


def _read(envelope: Envelope) -> Call:
    if envelope.kind == RAW:
        raise PayloadMismatch("the payload of a Django task is bytes, not an object with args and kwargs")
    try:
        return decode_json(envelope.body, _decode, typed=True)  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        raise PayloadMismatch(f"the payload of a Django task is not an object with args and kwargs: {error}") from error


def _json(message: Message, value: Any) -> Any:
    """Return what a task returned as JSON holds it; if it cannot, the task has failed and is not run again."""
    try:
        return normalize_json(value)
    except Exception:
        message.is_final = True
        raise


@contextmanager
def _fresh_connections() -> Iterator[None]:
    """Do for the database connections of this thread what Django does for those of a request."""
    if not any(each.in_atomic_block for each in connections.all(initialized_only=True)):  # as in a TestCase
        reset_queries()
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


def _now() -> Any:
    return results.shown(dt.datetime.now(dt.UTC))


def _set(result: TaskResult, **fields: Any) -> None:
    for name, value in fields.items():  # it is frozen; Django's own backends do the same
        object.__setattr__(result, name, value)
