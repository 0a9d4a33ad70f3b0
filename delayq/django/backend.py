"""The backend of Django's tasks framework."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

import msgspec
from django.apps import apps
from django.core import checks
from django.db import connections, transaction
from django.utils import timezone

from delayq import NoResult, Outgoing, Queue, ResultTimeout
from delayq.django import results
from delayq.django.framework import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    signals,
    task_backends,
)
from delayq.django.options import Options
from delayq.django.outbox import write
from delayq.django.paths import load
from delayq.django.queues import looked_into, queue_of
from delayq.django.task import DelayqTask
from delayq.errors import InvalidInput
from delayq.model import server_url
from delayq.model.backoff import check_retries
from delayq.model.message_ids import new_uuids
from delayq.operations.encode import encode_message
from delayq.outbox.statements import BY_DIALECT

NO_DATABASE = "django.db.backends.dummy"  # what Django takes for a site without DATABASES


class DelayqBackend(BaseTaskBackend):
    """Enqueues tasks as messages of delayq: the queue of a task is the queue of that name.

    The id of a result is the queue's name, a colon, and a UUID of version 7; it is also the id of the message. So tasks
    that a process enqueues for the same time run in their order.
    """

    task_class = DelayqTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = False

    @cached_property
    def _options(self) -> Options:
        return Options.of(self.options)

    def queue(self, name: str) -> Queue:
        """Return a queue of this backend, such as for its schedules; raises InvalidInput for a bad name or OPTIONS."""
        return queue_of(self.alias, name, self._options)

    def message(self, task: Task, *args: Any, **kwargs: Any) -> Outgoing:
        """Return the message of a call, such as for ``backend.queue(…).schedules.add(…, message=…)``.

        Raises:
            InvalidTask: this backend cannot run the task.
            TypeError: an argument is of a type that JSON cannot hold.
        """
        self.validate_task(task)
        return msgspec.structs.replace(self._outgoing(self._result(task, args, kwargs)), id=None)

    def validate_task(self, task: Task) -> None:
        """Refuse a task that this backend cannot run; it asks no server."""
        super().validate_task(task)
        retries = _max_retries(task)
        try:
            if retries is not None:
                check_retries(retries)
        except InvalidInput as error:
            raise InvalidTask(str(error)) from error

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Send a task: at once, or once the transaction commits that is open in ``enqueue_on_commit``."""
        self.validate_task(task)
        result = self._result(task, args, kwargs)
        outgoing = self._outgoing(result)
        encode_message(outgoing)  # what could not be sent is refused here, and not after the commit
        if (alias := self._options.enqueue_on_commit) is None:
            self._send(result, outgoing)
        elif self._options.outbox:
            write(alias, self.queue(task.queue_name), outgoing, self._options.outbox_notify)
            transaction.on_commit(partial(self._sent, result, dt.datetime.now(dt.UTC)), using=alias)
        else:
            transaction.on_commit(partial(self._send, result, outgoing), using=alias)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Return the state of a task and its result; raises TaskResultDoesNotExist, also once the result has expired.

        Raises:
            ServerError: the server cannot be asked.
        """
        of, _, _ = str(result_id).rpartition(":")
        names = [of] if of in self.queues or not self.queues else sorted(self.queues)  # a schedule chooses its own ids
        for name in names:
            with suppress(NoResult, InvalidInput), looked_into(self.alias, name, self._options) as queue:
                return self._found(queue, result_id)
        raise TaskResultDoesNotExist(result_id)

    def _found(self, queue: Queue, result_id: str) -> TaskResult:
        try:
            record = queue.result(result_id, 0)
        except ResultTimeout:
            return results.of_live(self.alias, queue, result_id)
        assert record is not None  # as it has looked at the message, too
        return results.of_record(self.alias, record)

    def check(self, **kwargs: Any) -> Iterator[checks.CheckMessage]:
        """Check the settings of this backend; it asks no server."""
        yield from super().check(**kwargs)
        where = f"TASKS[{self.alias!r}]"
        if not apps.is_installed("delayq.django"):
            yield checks.Warning(
                "'delayq.django' is not in INSTALLED_APPS, which brings the command manage.py delayq.", id="delayq.W001"
            )
        try:
            options = self._options
        except msgspec.ValidationError as error:
            yield checks.Error(f"{where}['OPTIONS']: {error}.", id="delayq.E001")
            return
        for name in sorted(self.queues) or ["default"]:
            try:
                if options.url is not None:
                    server_url.check(options.url)
                self.queue(name)
                encode_message(Outgoing({}, task="check", results=options.results, max_retries=options.max_retries))
            except InvalidInput as error:
                yield checks.Error(f"{where}, queue {name!r}: {error}.", id="delayq.E002")
        alias = options.enqueue_on_commit
        database = None if alias is None else connections.settings.get(alias)
        if alias is not None and (database is None or database["ENGINE"] == NO_DATABASE):
            yield checks.Error(
                f"{where}['OPTIONS']['enqueue_on_commit'] is {alias!r}, which is not a database in DATABASES.",
                hint="Give the alias of a database, or None to send at once.",
                id="delayq.E003",
            )
        if options.outbox:
            yield from self._check_outbox(options, where)

    def _check_outbox(self, options: Options, where: str) -> Iterator[checks.CheckMessage]:
        alias = options.enqueue_on_commit
        if alias is None:
            yield checks.Error(
                f"{where}['OPTIONS'] has outbox, and enqueue_on_commit is None.",
                hint="Give the alias of the database that has the outbox as enqueue_on_commit.",
                id="delayq.E004",
            )
        elif alias in connections.settings and connections[alias].vendor not in BY_DIALECT:
            yield checks.Error(
                f"{where}['OPTIONS'] has outbox, which works with PostgreSQL and SQLite, not with "
                f"{connections[alias].vendor}.",
                id="delayq.E005",
            )
        mine = (True, alias, options.url)
        for other in task_backends.all():
            given = other.options.get
            theirs = given("outbox", False), given("enqueue_on_commit", "default"), given("url")
            if isinstance(other, DelayqBackend) and theirs[:2] == mine[:2] and theirs != mine:
                yield checks.Error(
                    f"{where} and TASKS[{other.alias!r}] have one outbox, and different servers: a relay would send "
                    "all tasks to its own.",
                    hint="Give them the same url, or enqueue_on_commit with another database.",
                    id="delayq.E006",
                )

    def _result(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        return TaskResult(
            task=task,
            id=f"{task.queue_name}:{new_uuids(1)[0].replace('-', '')}",
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    def _outgoing(self, result: TaskResult) -> Outgoing:
        task, options = result.task, self._options
        try:
            load(task.module_path)
        except InvalidInput as error:  # no consumer would find it
            raise InvalidTask(str(error)) from error
        retries = _max_retries(task)
        return Outgoing(
            {"args": result.args, "kwargs": result.kwargs},
            id=result.id,
            at=_aware(task.run_after),
            task=task.module_path,
            headers=None if task.run_after is None else {results.RUN_AFTER: task.run_after.isoformat()},
            results=options.results,
            max_retries=options.max_retries if retries is None else retries,
        )

    def _send(self, result: TaskResult, outgoing: Outgoing) -> None:
        options = msgspec.structs.asdict(outgoing)
        sent = self.queue(result.task.queue_name).send(options.pop("payload"), **options)
        enqueued = sent.due_at if outgoing.at is None else dt.datetime.now(dt.UTC)  # of the server, if it says it
        self._sent(result, enqueued)

    def _sent(self, result: TaskResult, enqueued: dt.datetime) -> None:
        object.__setattr__(result, "enqueued_at", results.shown(enqueued))
        signals.task_enqueued.send_robust(type(self), task_result=result)


def _max_retries(task: Task) -> Any:
    return getattr(task, "max_retries", None)  # a task that another backend has made has none


def _aware(run_after: dt.datetime | None) -> dt.datetime | None:
    """Return when a task is due; a naive time is one of TIME_ZONE, as Django allows with USE_TZ = False."""
    if run_after is None or timezone.is_aware(run_after):
        return run_after
    aware: dt.datetime = timezone.make_aware(run_after, timezone.get_default_timezone())
    return aware
