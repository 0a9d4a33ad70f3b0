"""The functions that handle a queue's messages, and which of them handles a given message."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from delayq.errors import HandlerMissing, InvalidInput, UnknownTask
from delayq.model import outcome as oc
from delayq.model.batch_handler import BatchHandler
from delayq.model.delivery import Delivery, Outgoing, headers_and_limit, running
from delayq.model.envelope import TASK, Headers
from delayq.model.middleware import Middleware
from delayq.model.occurrence import NAME, Plan
from delayq.model.task import IsTask, TaskDefinition
from delayq.model.typed_payload import adapt, reader_of, reading_first
from delayq.model.units import Seconds
from delayq.operations import schedules
from delayq.operations.encode import encode_message
from delayq.operations.queue_context import QueueContext
from delayq.runtime.fork_guard import guarded
from delayq.runtime.handler_thread import awaited
from delayq.runtime.time_limit import TimeLimit

Handler: TypeAlias = Callable[[Any], Any]
Given = TypeVar("Given", bound=Handler | IsTask)


class Kind(NamedTuple):
    """A kind of handler with several functions per queue: a message says by a header which of them it is for.

    Attributes:
        header: what the messages of this kind have.
        name_of: returns the name of a message's function; None if its header is not as delayq writes it. It never
            raises, although another program may have written the header. None if the header is the name itself.
        missing: called with the queue's name and a message whose function is not here. It returns the error that fails
            the delivery, as if a handler had raised it; None lets the queue's main function handle the message.
        returns_values: what the functions return is a value, and the message is always acked.
    """

    header: str
    name_of: Callable[[Delivery[Any]], str | None] | None
    missing: Callable[[str, Delivery[Any]], Exception | None]
    returns_values: bool = False


def _no_cron(queue: str, message: Delivery[Any]) -> HandlerMissing | None:
    found = message.occurrence
    if found is None or not found.plan.own:
        return None
    remove = shlex.join(["delayq", "cron", "remove", queue, found.name])
    return HandlerMissing(
        f"schedule {found.name!r} has no handler here: this consumer lacks its @queue.cron function; if that was "
        f"renamed or removed, remove the old schedule: {remove}"
    )


def _no_task(queue: str, message: Delivery[Any]) -> UnknownTask | None:
    if (task := message.task) is None:  # delayq does not write such a name
        return None
    return UnknownTask(
        f"this consumer of queue {queue} has no task {task!r}: register its function with @queue.task, or with "
        f"name={task!r} if the function has another name",
        task,
    )


def _is_cancelled() -> bool:
    """Whether the running asyncio task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


CRON = Kind(NAME, lambda message: message.schedule, _no_cron)
TASKS = Kind(TASK, None, _no_task, returns_values=True)
KINDS = (TASKS, CRON)


class HandlerRegistry:
    """The functions registered by `Queue.handler`, `Queue.batch_handler`, `Queue.task` and `Queue.cron`.

    Attributes:
        queue: the queue's name.
        main: the function for messages that are for no other, or a BatchHandler; None without one.
        named: the functions of the kinds in `KINDS`, by the header of the kind and their own name.
        find_task: returns the function of a task that is not registered, for the first of its messages, or raises
            UnknownTask: a framework has its own tasks. What the function returns is a value. None to find none.
        tasks: those of `Queue.task`, by their names.
        prepared: the schedules of `Queue.cron`.
        is_replaceable: another function may replace `main`, as in a test.
    """

    def __init__(self, queue: str) -> None:
        self.main: Handler | None = None
        self.named: dict[tuple[str, str], Handler] = {}
        self.find_task: Callable[[str], Handler] | None = None
        self.tasks: dict[str, TaskDefinition] = {}
        self.prepared: list[schedules.Prepared] = []
        self.is_replaceable = False
        self.queue = queue

    def __bool__(self) -> bool:
        """Whether any function is registered."""
        return self.main is not None or self.has_named

    @property
    def has_named(self) -> bool:
        """Whether there is, or may be found, a function of the kinds in `KINDS`."""
        return bool(self.named) or self.find_task is not None

    @property
    def task_names(self) -> Collection[str] | None:
        """The names of the tasks; None for those that `find_task` finds, which are known once they have run."""
        return self.tasks if self.find_task is None else None

    def register(self, handler: Handler) -> None:
        """Register the main function; raise InvalidInput if there is one: only one of the two could run."""
        if self.main is not None and not self.is_replaceable:
            there = "batch_handler" if isinstance(self.main, BatchHandler) else "handler"
            raise InvalidInput(
                f"queue {self.queue} already has a function of @queue.{there}: give the second one its own queue, or "
                "let one function choose by the message"
            )
        self.main = handler

    def register_named(self, kind: Kind, name: str, function: Handler) -> None:
        """Register a function for the messages that name it."""
        handler = adapt(function)
        if kind.returns_values:
            handler = reading_first(oc.returning_value(handler), reader_of(handler))
        self.named[kind.header, name] = handler

    def task(self, context: QueueContext, task: TaskDefinition) -> None:
        """Register a task; raise InvalidInput for another one with its name, or a bad option of its messages."""
        if (TASKS.header, task.name) in self.named:
            raise InvalidInput(f"queue {self.queue} already has a task {task.name!r}: give one of them another name=")
        encode_message(Outgoing({}, task=task.name, **task.options))
        self.register_named(TASKS, task.name, task.handler(_is_cancelled))
        self.tasks[task.name] = task
        if task.backoff is not None:
            context.task_backoffs[task.name] = task.backoff

    def cron(
        self,
        context: QueueContext,
        check: Callable[[object], None],
        plan: Plan,
        name: str | None,
        payload: Any,
        max_retries: int | None,
        headers: Headers | None,
        timeout: Seconds | None,
    ) -> Callable[[Given], Given]:
        """Return the decorator for `Queue.cron`.

        Args:
            check: raises InvalidInput for a function that the queue's consumers could not run.
        """
        options: dict[str, Any] = {"max_retries": max_retries, "headers": headers, "timeout": timeout}

        def register(function: Given) -> Given:
            chosen = getattr(function, "__name__", "") if name is None else name
            if isinstance(function, IsTask):
                chosen = function.definition.name if name is None else name
                prepared = schedules.prepare(context, chosen, plan, message=self._call(function, payload, options))
            else:
                check(function)
                prepared = schedules.prepare(context, chosen, plan, payload, **options)
            if any(each.name == prepared.name for each in self.prepared):
                raise InvalidInput(f"schedule {prepared.name!r} already has a handler: give one of them another name=")
            if not isinstance(function, IsTask):
                self.register_named(CRON, prepared.name, function)
            self.prepared.append(prepared)
            return function

        return register

    def _call(self, task: IsTask, arguments: Any, options: Mapping[str, Any]) -> Outgoing:
        """Return the message that calls a task with these arguments; raises InvalidInput or WrongArguments."""
        name = task.definition.name
        if self.tasks.get(name) is not task.definition:
            raise InvalidInput(f"task {name!r} is not one of queue {self.queue}: use the queue of its @queue.task")
        if not isinstance(arguments, dict | None):
            raise InvalidInput(f"payload={arguments!r} is not a dict of the arguments of task {name!r}")
        given = {option: value for option, value in options.items() if value is not None}
        return task.definition.outgoing((), arguments or {}, {**task.settings, **given})

    def main_of(self, given: Handler | None, check: Callable[[object], None]) -> Handler | None:
        """Return a consumer's main function: the given one, or else the registered one; None if it has only named ones.

        Raises:
            HandlerMissing: there is no function at all.
            InvalidInput: `check` raises it for the function.
        """
        main = self.main if given is None else given
        if main is None and not self.has_named:
            raise HandlerMissing(
                f"queue {self.queue} has no handler: decorate a function with @queue.handler or @queue.task, or pass "
                "one"
            )
        if main is None:
            return None
        check(main)
        return main if isinstance(main, BatchHandler) else adapt(main)

    def functions(self, main: Handler | None) -> list[Handler | None]:
        """Return the functions of a consumer with this main function."""
        return [main.function if isinstance(main, BatchHandler) else main, *self.named.values()]

    def judge(self) -> Callable[[Delivery[Any]], Exception | None]:
        """Return a function that chooses a message's function as a consumer does, but only lets it read the message.

        It returns the error with which the delivery would fail before the program's own code runs; None if it would
        not. Middleware does not run.
        """
        readers, find = HandlerRegistry(self.queue), self.find_task
        readers.named = {name: reader_of(handler) for name, handler in self.named.items()}
        readers.find_task = None if find is None else lambda task: reader_of(find(task))
        main = self.main
        if main is not None:
            main = main.read if isinstance(main, BatchHandler) else reader_of(main)
        handle = ConsumerHandlers(readers, main, Middleware(), None).handle

        def judged(message: Delivery[Any]) -> Exception | None:
            try:
                handle(message)
            except Exception as error:  # noqa: BLE001  # a type's own check may raise any
                return error.with_traceback(None)  # whose frames hold the payload
            return None

        return judged

    def wrap(self, around: Callable[[Handler], Handler]) -> None:
        """Replace each function by what `around` makes of it."""
        self.named = {name: around(handler) for name, handler in self.named.items()}
        if self.main is not None:
            self.main = around(self.main)


class ConsumerHandlers:
    """The functions of a queue as a consumer runs them, and which of them handles a given message.

    Args:
        registry: of the queue.
        main: the consumer's main function, or a BatchHandler; None if it has only named functions.
        middleware: of the queue.
        limit: how long each function may run; None for no limit, not even that of a message.
        awaits: every function becomes an async one.

    Attributes:
        main: the main function, as the others within its middleware and under its time limit.
    """

    def __init__(
        self,
        registry: HandlerRegistry,
        main: Handler | None,
        middleware: Middleware,
        limit: TimeLimit | None,
        awaits: bool = False,
    ) -> None:
        self._queue = registry.queue
        self._find_task = registry.find_task

        def refuse(_: Delivery[Any]) -> None:
            raise HandlerMissing(
                f"queue {registry.queue} has no handler here, only tasks or handlers of schedules: see @queue.handler"
            )

        self._around = partial(surrounded, middleware=middleware, limit=limit, awaits=awaits)
        self._named = {name: self._around(handler) for name, handler in registry.named.items()}
        found = refuse if main is None else main
        self.main = self._around(found)
        # For messages without a limit of their own, which most are: quicker where the consumer has no limit, either.
        has_limit = limit is not None and limit.seconds is not None
        self._plain, self._plain_named = self.main, self._named
        self._around_plain = around = partial(surrounded, middleware=middleware, limit=None, awaits=awaits)
        if not has_limit:
            self._plain_named = {name: around(handler) for name, handler in registry.named.items()}
            if not isinstance(found, BatchHandler):  # batches have the consumer's limit
                self._plain = around(found)
        is_bare = not (isinstance(found, BatchHandler) or has_limit or middleware.count)
        runs_here = not awaits or oc.is_coroutine_function(found)
        self._bare = found if is_bare and runs_here else self._plain

    def choose(self, message: Delivery[Any]) -> Handler:
        """Return the function that handles a message: the one that its headers name, or else the main one.

        If that function is not here, `Kind.missing` decides between the main one and one that raises an error.
        """
        headers, timeout_ms = headers_and_limit(message)
        for header, name_of, missing, _ in KINDS if headers else ():
            if header in headers:
                name: Any = headers[header] if name_of is None else name_of(message)
                named = self._plain_named if timeout_ms is None else self._named
                if (handler := named.get((header, name))) is not None:
                    return handler
                if header == TASK and self._find_task is not None and isinstance(name, str):
                    return self._found(name, self._find_task, timeout_ms is not None)
                if name is not None and (error := missing(self._queue, message)) is not None:
                    return self._around(partial(_raise, error))
        return self._plain if timeout_ms is None else self.main

    def _found(self, name: str, find: Callable[[str], Handler], has_limit: bool) -> Handler:
        """Return the function of a task that is not registered, and keep it for its next messages."""
        try:
            handler = oc.returning_value(find(name))
        except UnknownTask as error:
            return self._around(partial(_raise, error))
        self._named[TASK, name] = self._around(handler)
        if self._plain_named is not self._named:
            self._plain_named[TASK, name] = self._around_plain(handler)
        return (self._named if has_limit else self._plain_named)[TASK, name]

    def is_alone(self, message: Delivery[Any]) -> bool:
        """Whether another function than the main one handles a message, which so joins no batch."""
        return self.choose(message) not in (self.main, self._plain)

    def function_for(self, message: Delivery[Any]) -> Handler:
        """Return the function that a pool calls with a message: without anything around it, where nothing is asked for.

        The pool must check whether it has forked the process, as `guarded` does.
        """
        envelope = message._envelope  # noqa: SLF001  # without a call for each message
        return self._bare if not envelope.headers and envelope.timeout_ms is None else self.choose(message)

    def handle(self, message: Delivery[Any]) -> Any:
        """Call the function that handles a message."""
        before = running.set(message)
        try:
            return self.choose(message)(message)
        finally:
            running.reset(before)

    async def handle_async(self, message: Delivery[Any]) -> Any:
        """Await the function that handles a message."""
        running.set(message)  # for this task only; a coroutine that is thrown away could not reset it
        return await self.choose(message)(message)


def surrounded(handler: Handler, middleware: Middleware, limit: TimeLimit | None, awaits: bool = False) -> Handler:
    """Return a handler within its middleware, guarded against forks, and with a time limit unless it `keeps_time`.

    Args:
        handler: a function, or a BatchHandler, whose middleware runs around each message: see `Batching`.
        limit: None for no limit, not even that of a message.
        awaits: make it an async function if it is a plain one.
    """
    if isinstance(handler, BatchHandler):
        return handler.around(partial(surrounded, middleware=Middleware(), limit=limit, awaits=awaits))
    wrapped = middleware.wrap(guarded(handler))
    if limit is not None and not getattr(handler, "keeps_time", False):
        wrapped = limit.wrap(wrapped)
    return awaited(wrapped) if awaits else wrapped


def _raise(error: Exception, _: Delivery[Any]) -> None:
    raise error
