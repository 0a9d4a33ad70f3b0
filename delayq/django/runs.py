"""The run of a task in a consumer: with Django's signals, its context, and its database connections."""

from __future__ import annotations

import datetime as dt
import inspect
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
from delayq.errors import DelayqError, InvalidInput, PayloadMismatch, TaskFailed, UnknownTask
from delayq.log import log
from delayq.model.delivery import Delivery
from delayq.model.envelope import RAW, Envelope, decode_json
from delayq.model.message_info import result_of
from delayq.model.outcome import RemoteTraceback
from delayq.model.result import DEAD, failure
from delayq.model.task import value_kept
from delayq.model.typed_payload import reading_first
from delayq.types import MessageInfo
from delayq.types import TaskResult as Record

try:
    from django.utils.json import normalize_json
except ImportError:  # Django 5.2
    from django_tasks.utils import normalize_json


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
        self._consumer = ""  # a pool process does not know its consumer

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
        return reading_first(partial(self._run, path), partial(self._look, path))

    def _look(self, path: str, message: Delivery[Any]) -> None:
        """Raise what a run of the message would raise before the task's own code."""
        call = _call_of(message)
        task = results.called(self._alias, self._queue.name, path, message.headers)
        context = (None,) if task.takes_context else ()
        inspect.signature(task.func).bind(*context, *call.args, **call.kwargs)

    def _started(self, consumer: Any) -> None:
        self._consumer = consumer.name

    def _run(self, path: str, message: Message) -> Any:
        with _fresh_connections():
            call = _call_of(message)
            sender = type(task_backends[self._alias])
            task = results.called(self._alias, self._queue.name, path, message.headers)
            result = self._begun(task, call, message)
            signals.task_started.send_robust(sender, task_result=result)
            context = (TaskContext(task_result=result),) if task.takes_context else ()
            value = _json(message, task.call(*context, *result.args, **result.kwargs))
            kept = value_kept(message, value)
            _set(result, status=TaskResultStatus.SUCCESSFUL, finished_at=_now(), _return_value=value)
            signals.task_finished.send_robust(sender, task_result=result)
            return kept

    def _begun(self, task: Task, call: Call, message: Message) -> TaskResult:
        record = self._record(message.id) if message.attempt > 1 else None
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
            worker_ids=[*earlier, self._consumer or f"{platform.node()}-{os.getpid()}"],
        )

    def _died(self, info: MessageInfo) -> None:
        """Send the signal for a task that has failed: its run, its pool or a later consumer has found that."""
        with _fresh_connections():
            record = self._record(info.id)
            if record is None or record.status != DEAD:  # such as where somebody has requeued it meanwhile
                record = result_of(info)
            failed = failure(record)
            try:
                result = results.of_record(self._alias, record)
                raise failed from RemoteTraceback(failed.traceback) if failed.traceback else None
            except TaskResultDoesNotExist:  # another program has sent the message
                return
            except TaskFailed:  # Django's receiver logs the exception that is being handled
                signals.task_finished.send_robust(type(task_backends[self._alias]), task_result=result)

    def _record(self, id: str) -> Record | None:
        """Return the record of a message; None also if it cannot be read, which must not fail a run."""
        try:
            return self._queue.result(id)
        except DelayqError as error:
            log.warning("record of a task cannot be read", queue=self._queue.name, id=id, error=str(error))
            return None


def _call_of(message: Delivery[Any]) -> Call:
    return message.read(_read)  # type: ignore[no-any-return]


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
