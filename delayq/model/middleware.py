"""Functions that run around each delivery and send of a queue, and when consumers start, stop or bury a message."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeAlias, TypeVar

import msgspec

from delayq.errors import InvalidInput, ReturnedFalse
from delayq.log import is_interrupt, log, log_of
from delayq.model.delivery import Delivery, Outgoing, SentMessage
from delayq.model.message_info import MessageInfo
from delayq.model.other_libraries import OF_MIDDLEWARE, answers_attributes
from delayq.model.outcome import called, check_takes, is_coroutine_function, unusable


class Sending(msgspec.Struct):
    """A running send, as middleware sees it.

    Attributes:
        queue: the queue's name.
        messages: the messages to send. Until they are sent, each may be replaced (`msgspec.structs.replace`).
        is_batch: whether they were given to `send_many`.
        sent: the results, in the order of the messages; empty until they are sent.
    """

    queue: str
    messages: list[Outgoing]
    is_batch: bool = False
    sent: list[SentMessage] = msgspec.field(default_factory=list)


T = TypeVar("T")
Around: TypeAlias = Callable[[T], AbstractContextManager[Any]]
Within: TypeAlias = Generator[None, Any, Any]
"""The layers around one delivery: takes what the handler returned or raised, and returns or raises what counts."""
BeforeDelivery = TypeVar("BeforeDelivery", bound=Callable[[Any], object])
AfterDelivery = TypeVar("AfterDelivery", bound=Callable[[Any, BaseException | None], object])
AroundDelivery = TypeVar("AroundDelivery", bound=Callable[[Any], Iterator[None] | AbstractContextManager[Any]])
BeforeSend = TypeVar("BeforeSend", bound=Callable[[Outgoing], Outgoing | None])
AfterSend = TypeVar("AfterSend", bound=Callable[[Outgoing, SentMessage], object])
Hook = TypeVar("Hook", bound=Callable[[Any], object])
DeathHook = TypeVar("DeathHook", bound=Callable[[MessageInfo], object])
AroundSend = TypeVar("AroundSend", bound=Callable[[Sending], Iterator[None] | AbstractContextManager[Any]])


@answers_attributes(OF_MIDDLEWARE)
class Middleware:
    """Functions that run around the deliveries and sends of a queue, or of several queues that share them.

    Each method registers a function and can be used as a decorator. The functions nest in the order in which you
    register them: the first is the outermost, so it begins first and ends last. They are plain functions in both APIs;
    those of `on_start`, `on_stop` and `on_dead` may be async in the async API. Register them before you make a
    `Consumer`, which uses those that exist by then.

    A delivery is the run of a consumer's handler; a message taken by `Queue.receive` has none.

    Attributes:
        sends: the layers around each send, the outermost first.
        starts, stops, deaths: the functions of `on_start`, `on_stop` and `on_dead`, in the order of registration.
    """

    def __init__(self) -> None:
        self._deliveries: list[Around[Any]] = []
        self.sends: list[Around[Sending]] = []
        self.starts: list[Callable[[Any], object]] = []
        self.stops: list[Callable[[Any], object]] = []
        self.deaths: list[Callable[[MessageInfo], object]] = []

    def before_delivery(self, function: BeforeDelivery) -> BeforeDelivery:
        """Call ``function(message)`` before the handler. An error it raises counts as raised by the handler."""
        _check(function, "the message")

        @contextmanager
        def layer(message: Delivery[Any]) -> Iterator[None]:
            function(message)
            yield

        self._deliveries.append(layer)
        return function

    def after_delivery(self, function: AfterDelivery) -> AfterDelivery:
        """Call ``function(message, error)`` after the handler, with the error that it raised, or None.

        If the handler returned False, the error is ReturnedFalse. If `function` raises, that is logged and changes
        nothing about the delivery.
        """
        _check(function, "the message", "its error")

        @contextmanager
        def layer(message: Delivery[Any]) -> Iterator[None]:
            try:
                yield
            except BaseException as error:
                _observe(log_of(message), function, message, error)
                raise
            _observe(log_of(message), function, message, None)

        self._deliveries.append(layer)
        return function

    def around_delivery(self, function: AroundDelivery) -> AroundDelivery:
        """Run the handler within ``function(message)``: a generator function that yields once, or a context manager.

        An error of the handler is raised at the ``yield``. The function may replace it, or swallow it, which acks the
        message. An error raised after the ``yield`` counts as raised by the handler.
        """
        self._deliveries.append(_around(function, "the message"))
        return function

    def before_send(self, function: BeforeSend) -> BeforeSend:
        """Call ``function(outgoing)`` for each message before it is sent; it may return a replacement.

        If it raises, the send raises that error and sends nothing.
        """
        _check(function, "the message")

        @contextmanager
        def layer(sending: Sending) -> Iterator[None]:
            sending.messages = [_chosen(message, function(message), function) for message in sending.messages]
            yield

        self.sends.append(layer)
        return function

    def after_send(self, function: AfterSend) -> AfterSend:
        """Call ``function(outgoing, sent)`` for each message of a send that succeeded.

        If `function` raises, that is logged and changes nothing: the message is sent.
        """
        _check(function, "the message", "what became of it")

        @contextmanager
        def layer(sending: Sending) -> Iterator[None]:
            yield
            for message, sent in zip(sending.messages, sending.sent, strict=False):
                _observe(log.bind(queue=sending.queue, id=sent.id), function, message, sent)

        self.sends.append(layer)
        return function

    def around_send(self, function: AroundSend) -> AroundSend:
        """Send within ``function(sending)``: a generator function that yields once, or a context manager.

        An error of the send is raised at the ``yield``. The function may replace it; if it swallows it, the send raises
        it anyway. If the part after the ``yield`` raises, the send raises that error, although the messages are sent.
        """
        self.sends.append(_around(function, "the send"))
        return function

    def on_start(self, function: Hook) -> Hook:
        """Call ``function(consumer)`` in the consumer's process when it runs, before it takes the first message.

        If it raises, the run ends with StartFailed: no message is taken, and no function of `on_stop` is called. A
        consumer of several queues that share this middleware calls it once. With pool="process", it is called in the
        consumer's process; `initializer` is called in each process of the pool.
        """
        _check_hook(function, "the consumer")
        self.starts.append(function)
        return function

    def on_stop(self, function: Hook) -> Hook:
        """Call ``function(consumer)`` at the end of each run that had started, the last registered function first.

        By then handlers have ended, except those in threads that outlasted the shutdown timeout. If it raises, that is
        logged.
        """
        _check_hook(function, "the consumer")
        self.stops.append(function)
        return function

    def on_dead(self, function: DeathHook) -> DeathHook:
        """Call ``function(info)`` for each message that a consumer of the queue moved to the dead letters.

        It is called once, in that consumer's process, between its other work, so it must be quick. `info` is a
        `MessageInfo`, as `Queue.get` returns it, with `reason` and `error`; its envelope is None if the payload is
        gone. If it raises, that is logged. It is not called if the consumer is killed after the move, or for a message
        that a program takes by `Queue.receive` and rejects.
        """
        _check_hook(function, "the message's info")
        self.deaths.append(function)
        return function

    @property
    def hooks(self) -> list[Callable[[Any], object]]:
        """All functions of `on_start`, `on_stop` and `on_dead`."""
        return [*self.starts, *self.stops, *self.deaths]

    @classmethod
    def of(cls, given: object) -> Middleware:
        """Return the given middleware, or a new one for None; raises InvalidInput for anything else."""
        if given is None:
            return cls()
        if not isinstance(given, Middleware):
            raise InvalidInput(f"middleware={given!r} is not a Middleware: make one with delayq.Middleware()")
        return given

    @property
    def count(self) -> int:
        """How many functions are registered for deliveries."""
        return len(self._deliveries)

    @property
    def has_sends(self) -> bool:
        """Whether any function is registered for sends."""
        return bool(self.sends)

    @contextmanager
    def sending(self, sending: Sending) -> Iterator[None]:
        """Enter all layers around a send."""
        with ExitStack() as stack:
            failed: BaseException | None = None
            try:
                _enter(stack, self.sends, sending)
                yield
            except BaseException as error:
                failed = error
                raise
        if failed is not None:  # a layer swallowed it, but the send has nothing to return
            raise failed

    def within(self) -> Callable[[Delivery[Any]], Within] | None:
        """Return a function that makes the layers around a message's delivery; None if nothing is registered."""
        layers = tuple(self._deliveries)

        def within(message: Delivery[Any]) -> Within:
            try:
                with ExitStack() as stack:
                    _enter(stack, layers, message)
                    return _usable((yield))
            except ReturnedFalse:
                return False

        return within if layers else None

    def wrap(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return the handler wrapped in all registered layers; the handler itself if there are none."""
        layers = tuple(self._deliveries)
        if not layers:
            return handler
        if is_coroutine_function(handler):

            async def handle_async(message: Delivery[Any]) -> Any:
                try:
                    with ExitStack() as stack:
                        _enter(stack, layers, message)
                        return _usable(await handler(message))
                except ReturnedFalse:
                    return False

            return handle_async

        def handle(message: Delivery[Any]) -> Any:
            try:
                with ExitStack() as stack:
                    _enter(stack, layers, message)
                    return _usable(handler(message))
            except ReturnedFalse:
                return False

        return handle


def _enter(stack: ExitStack, layers: Iterable[Around[T]], subject: T) -> None:
    for layer in layers:
        stack.enter_context(layer(subject))


def _usable(value: Any) -> Any:
    """Return what a handler returned; raise an error for the layers to see if that makes the delivery a failure."""
    if value is False:
        raise ReturnedFalse("the handler returned False")
    if (error := unusable(value)) is not None:
        raise error
    return value


def _observe(line: Any, function: Callable[..., object], *arguments: Any) -> None:
    try:
        function(*arguments)
    except BaseException as error:  # it is the user's function
        if is_interrupt(error):
            raise
        line.exception("middleware failed", function=name_of(function))


def _chosen(message: Outgoing, returned: object, function: object) -> Outgoing:
    if returned is None:
        return message
    if not isinstance(returned, Outgoing):
        raise InvalidInput(f"middleware {name_of(function)} returned {returned!r}: return an Outgoing or None")
    return returned


def _around(function: Any, argument: str) -> Around[Any]:
    if _is_generator_function(function):
        check_takes(function, f"middleware {name_of(function)}", argument)
        return contextmanager(function)
    _check(function, argument)
    if isinstance(function, type) and not issubclass(function, AbstractContextManager):
        raise _no_manager(function, "is")

    def layer(subject: Any) -> AbstractContextManager[Any]:
        manager = function(subject)
        if not isinstance(manager, AbstractContextManager):
            raise _no_manager(function, f"returned {manager!r}")
        return manager

    return layer


def _no_manager(function: Any, how: str) -> InvalidInput:
    remedy = "write a generator function with one yield"
    return InvalidInput(f"middleware {name_of(function)} {how}, not a context manager: {remedy}")


def _is_generator_function(function: Any) -> bool:
    return any(inspect.isgeneratorfunction(each) for each in called(function))


def _check_hook(function: Any, argument: str) -> None:
    if not callable(function):
        raise InvalidInput(f"hook {function!r} is not callable")
    if _is_generator_function(function) or any(inspect.isasyncgenfunction(each) for each in called(function)):
        raise InvalidInput(
            f"hook {name_of(function)} is a generator function, so a call would not run it: use a plain function"
        )
    check_takes(function, f"hook {name_of(function)}", argument)


def _check(function: Any, *arguments: str) -> None:
    if not callable(function):
        raise InvalidInput(f"middleware {function!r} is not callable")
    is_generator = _is_generator_function(function)
    if is_generator or is_coroutine_function(function) or inspect.isasyncgenfunction(function):
        kind = "generator" if is_generator else "coroutine"
        raise InvalidInput(
            f"middleware {name_of(function)} is a {kind} function, so a call would not run it: use a plain "
            "function, or give a generator function to around_…"
        )
    check_takes(function, f"middleware {name_of(function)}", *arguments)


def name_of(function: Any) -> str:
    """Return a function's name for messages."""
    return getattr(function, "__qualname__", None) or repr(function)
