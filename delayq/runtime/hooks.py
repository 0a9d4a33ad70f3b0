"""The functions that a consumer calls beside its handlers: at its start and stop, and for messages that die."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from delayq.errors import InvalidInput, StartFailed
from delayq.log import is_interrupt, log, own_frames
from delayq.model import outcome as oc
from delayq.model.delivery import Delivery
from delayq.model.message_info import MessageInfo, death_of
from delayq.model.middleware import Middleware, name_of
from delayq.runtime.effects import Call, Effects


class Hooks(NamedTuple):
    """The functions that a consumer calls, in their order.

    Attributes:
        starts: before it takes the first message.
        stops: after the last handler.
    """

    starts: Sequence[Callable[[Any], object]] = ()
    stops: Sequence[Callable[[Any], object]] = ()

    @classmethod
    def of(cls, middlewares: Iterable[Middleware], awaits: bool) -> Hooks:
        """Return the registered functions, of each Middleware once.

        Args:
            awaits: whether the consumer can run async functions.

        Raises:
            InvalidInput: a function is async, and the consumer cannot run it.
        """
        different = list({id(each): each for each in middlewares}.values())
        for function in () if awaits else (hook for each in different for hook in each.hooks):
            if oc.is_coroutine_function(function):
                raise InvalidInput(
                    f"hook {name_of(function)} is async: give a plain function, or use the Consumer of delayq.aio"
                )
        starts = [function for each in different for function in each.starts]
        stops = [function for each in different for function in each.stops]
        return cls(tuple(starts), tuple(reversed(stops)))

    def starting(self, consumer: object) -> Effects[None]:
        """Call the functions for a start.

        Raises:
            StartFailed: one of them failed; those after it were not called.
        """
        for function in self.starts:
            try:
                yield Call(function, consumer)
            except HookFailed as failed:
                error = failed.error
                log.error("on_start function failed", function=name_of(function), exc_info=own_frames(error))
                text = f"on_start function {name_of(function)} failed, so the consumer did not start"
                raise StartFailed(f"{text}: {oc.error_text(error)}") from error

    def stopping(self, consumer: object) -> Effects[None]:
        """Call the functions for a stop, and log their errors."""
        for function in self.stops:
            try:
                yield Call(function, consumer)
            except HookFailed as failed:
                log.error("on_stop function failed", function=name_of(function), exc_info=own_frames(failed.error))


class Deaths:
    """The functions to call with each message that becomes a dead letter, and the dead letters to call them with.

    Attributes:
        unreported: dead letters that the functions were not yet called with.
    """

    def __init__(self, functions: Sequence[Callable[[MessageInfo], object]]) -> None:
        self.functions = tuple(functions)
        self.unreported: list[MessageInfo] = []

    def note(self, message: Delivery) -> None:
        """Note a settled delivery whose message has died."""
        if (info := death_of(message)) is not None:
            self.unreported.append(info)

    def tell(self) -> Effects[None]:
        """Call the functions with the messages that died since the last call."""
        dead, self.unreported = self.unreported, []
        yield from tell_dead(self.functions, dead)


def tell_dead(functions: Sequence[Callable[[Any], object]], dead: Iterable[MessageInfo]) -> Effects[None]:
    """Call functions with each message that died, and log their errors."""
    for info in dead:
        for function in functions:
            try:
                yield Call(function, info)
            except HookFailed as failed:
                line = log.bind(queue=info.queue, id=info.id)
                line.error("on_dead function failed", function=name_of(function), exc_info=own_frames(failed.error))


class HookFailed(Exception):  # it carries the error
    """One of the user's functions has raised `error`, which may be anything: SystemExit must end no consumer."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


def call(effect: Call) -> None:
    """Perform a hook's call; raises HookFailed."""
    try:
        effect()
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise HookFailed(error) from error


async def call_async(effect: Call) -> None:
    """Perform a hook's call, and await it if it is async; raises HookFailed.

    A cancel of the caller cancels the hook. A CancelledError that the hook raises itself is its own failure: therefore
    it runs in a task.
    """
    try:
        returned = effect()
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise HookFailed(error) from error
    if not inspect.isawaitable(returned):
        return
    task = asyncio.create_task(_error_of(returned), name="delayq-hook")
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        raise
    raised = asyncio.CancelledError() if task.cancelled() else task.result()
    if raised is not None:
        raise HookFailed(raised) from raised


async def _error_of(awaitable: Awaitable[object]) -> BaseException | None:
    """Return what a hook raises: a task that raises SystemExit would end its event loop."""
    try:
        await awaitable
    except BaseException as error:
        if is_interrupt(error):
            raise
        return error
    return None
