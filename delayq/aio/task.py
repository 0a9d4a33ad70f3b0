"""Tasks of the async API: functions that messages call by their names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from delayq.errors import InvalidInput, NoResult
from delayq.model.delivery import Outgoing, SentMessage
from delayq.model.other_libraries import OF_TASK, answers_attributes
from delayq.model.task import IsTask, SendOptions, TaskDefinition, check_options, keeping
from delayq.model.units import Seconds

P = ParamSpec("P")
R = TypeVar("R")  # what the function returns, awaited
C = TypeVar("C")  # what a call of the function returns: R, or a coroutine


class SentTask(SentMessage, Generic[R]):
    """The result of sending a task: as `SentMessage`; R is what its function returns."""

    _result: Callable[[str, Seconds | None], Any]  # of the task; it takes the message's token and a timeout

    async def result(self, timeout: Seconds | None = 30) -> R:
        """Return what the task returned, once it has run: as its annotation says, or else as JSON holds it.

        Args:
            timeout: seconds (0 or more) or a timedelta to wait; None for no limit.

        Raises:
            TaskFailed: it has failed permanently, or expired.
            ResultTimeout: it has not ended in time; call this again, or cancel the message.
            NoResult: the message is gone, and no result of it is kept: it was cancelled, purged or replaced, its result
                has expired, or the task was registered without `results`. If `created` is False because a message with
                this id existed and was kept, this is about that message.
            InvalidInput: a handler would wait for its own queue; or this object was unpickled: use `Task.result`.
            ServerError
        """
        if "_result" not in vars(self):
            raise InvalidInput(f"message {self.id} was sent by another program: use result({self.id!r}) of its task")
        value: R = await self._result(self.id, timeout)
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(self)


@answers_attributes(OF_TASK)
class TaskSender(IsTask, Generic[P, R]):
    """A task with options for its messages: see `Task.options`.

    Attributes:
        name: of the task.
    """

    def __init__(
        self,
        task: TaskDefinition,
        send: Callable[..., Any],
        result: Callable[[TaskDefinition, str, str, Seconds | None], Any],
        options: Mapping[str, Any],
    ) -> None:
        self.name = task.name
        self._result = result
        self.definition = task
        self.settings = options
        self._send = send

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def options(self, **options: Unpack[SendOptions]) -> TaskSender[P, R]:
        """Return the same task with other options for its messages: those of `Queue.send`.

        They take precedence over those that the task was registered with; None means the queue's own setting.
        """
        check_options(options)
        return TaskSender(self.definition, self._send, self._result, {**self.settings, **options})

    async def send(self, /, *args: P.args, **kwargs: P.kwargs) -> SentTask[R]:
        """Send a message that calls the function with these arguments.

        Raises:
            WrongArguments: the function does not take them, or one of them has another type; nothing was sent.
            PayloadNotSerializable: JSON cannot represent one of them; nothing was sent.
            DelayqError: as `Queue.send`.
        """
        payload = self.definition.arguments.payload(args, kwargs)
        options, token = keeping(self.settings)
        sent: SentTask[R] = SentTask(*(await self._send(payload, task=self.name, **options)))
        is_ours = sent.created or options.get("on_conflict") == "replace"
        vars(sent)["_result"] = functools.partial(self._result_of, token if is_ours else "")
        return sent

    async def result(self, id: str, timeout: Seconds | None = 0) -> R:
        """Return what the latest message with this id returned; see `SentTask.result`, which knows its own message."""
        value: R = await self._result(self.definition, id, "", timeout)
        return value

    async def _result_of(self, token: str, id: str, timeout: Seconds | None) -> Any:
        if not token and self.settings.get("results") is None:
            raise NoResult(f"message {id} keeps no result: register task {self.name!r} with results=")
        return await self._result(self.definition, id, token, timeout)

    def message(self, /, *args: P.args, **kwargs: P.kwargs) -> Outgoing:
        """Return a message that calls the function with these arguments, for `send_many`, `Ack` or `Schedules.add`.

        Raises:
            WrongArguments, PayloadNotSerializable: as for `send`.
            InvalidInput: the options have `wait_replicas`.
        """
        return self.definition.outgoing(args, kwargs, self.settings)


class Task(TaskSender[P, R], Generic[P, R, C]):
    """A function that messages call by its name: made by `Queue.task`. A call of it is a plain call of the function."""

    __name__: str

    def __init__(
        self,
        task: TaskDefinition,
        send: Callable[..., Any],
        result: Callable[[TaskDefinition, str, str, Seconds | None], Any],
    ) -> None:
        super().__init__(task, send, result, task.options)
        functools.update_wrapper(self, task.function, updated=())  # its own attributes might replace those of the task

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> C:
        """Call the function here and now, without a message."""
        result: C = self.definition.function(*args, **kwargs)
        return result


class TaskDecorator(Protocol):
    """Registers a function as a task: what ``@queue.task(…)`` returns."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...
