"""The order in which middleware runs, and what happens to errors in it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, ClassVar

import pytest
from structlog.testing import capture_logs

from delayq import Middleware, Outgoing, Reject, Sending
from delayq.errors import InvalidInput, ReturnedFalse

Handler = Callable[[Any], Any]


class Fake:
    """The part of a message that middleware uses."""

    id = "a"
    labels: ClassVar[dict[str, Any]] = {"queue": "jobs", "id": "a", "attempt": 1}


MESSAGE = Fake()


@pytest.fixture
def middleware() -> Middleware:
    return Middleware()


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest, middleware: Middleware) -> Callable[[Handler], Any]:
    """``run(handler)``: run a handler, plain or as a coroutine function, within the middleware."""

    def run(handler: Handler) -> Any:
        if request.param == "sync":
            return middleware.wrap(handler)(MESSAGE)

        async def coroutine(message: Any) -> Any:
            return handler(message)

        wrapped = middleware.wrap(coroutine)
        assert inspect.iscoroutinefunction(wrapped)
        with pytest.raises(StopIteration) as stopped:
            wrapped(MESSAGE).send(None)
        return stopped.value.value

    return run


def broken(*_: Any) -> Any:
    raise ValueError("boom")


def raising(error: BaseException) -> Handler:
    def handler(_: Any) -> None:
        raise error

    return handler


def test_handler_without_middleware_is_not_wrapped(middleware: Middleware):
    middleware.before_send(lambda _: None)
    assert middleware.wrap(print) is print
    assert Middleware().has_sends is False


def test_layers_nest_in_the_order_of_their_registration(middleware: Middleware, run: Callable[[Handler], Any]):
    seen: list[str] = []

    @middleware.around_delivery
    def outer(message: Any) -> Iterator[None]:
        seen.append(f"outer {message.id}")
        yield
        seen.append("/outer")

    middleware.after_delivery(lambda message, error: seen.append(f"after {message.id} {error}"))
    middleware.before_delivery(lambda message: seen.append(f"before {message.id}"))

    @middleware.around_delivery
    @contextmanager
    def inner(_: Any) -> Iterator[None]:
        seen.append("inner")
        yield
        seen.append("/inner")

    assert run(lambda _: seen.append("handler") or 5) == 5  # type: ignore[func-returns-value]
    assert seen == ["outer a", "before a", "inner", "handler", "/inner", "after a None", "/outer"]


def test_registering_returns_the_function(middleware: Middleware):
    def around(_: Any) -> Iterator[None]:
        yield

    assert middleware.around_delivery(around) is around
    assert middleware.around_send(around) is around
    hooks = (middleware.before_delivery, middleware.after_delivery, middleware.before_send, middleware.after_send)
    assert [hook(print) for hook in hooks] == [print] * 4


def test_error_in_before_keeps_the_handler_from_running(middleware: Middleware, run: Callable[[Handler], Any]):
    seen: list[Any] = []
    middleware.after_delivery(lambda _, error: seen.append(error))
    middleware.before_delivery(raising(Reject("not today")))
    middleware.before_delivery(seen.append)
    with pytest.raises(Reject, match="not today"):
        run(seen.append)
    assert [type(each) for each in seen] == [Reject]


def test_error_in_after_delivery_is_only_logged(middleware: Middleware, run: Callable[[Handler], Any]):
    middleware.after_delivery(broken)
    with capture_logs() as lines:
        assert run(lambda _: 5) == 5
        with pytest.raises(KeyError):
            run(raising(KeyError("k")))
    assert [(line["event"], line["function"], line["id"], line["log_level"]) for line in lines] == [
        ("middleware failed", "broken", "a", "error")
    ] * 2


def test_after_delivery_gets_the_handler_s_error(middleware: Middleware, run: Callable[[Handler], Any]):
    seen: list[BaseException | None] = []
    middleware.after_delivery(lambda _, error: seen.append(error))
    error = SystemExit(3)
    with pytest.raises(SystemExit):
        run(raising(error))
    assert seen == [error]


def test_middleware_sees_false_as_a_failure_and_false_is_still_returned(
    middleware: Middleware, run: Callable[[Handler], Any]
):
    seen: list[BaseException | None] = []
    middleware.after_delivery(lambda _, error: seen.append(error))
    assert run(lambda _: False) is False
    assert [type(error) for error in seen] == [ReturnedFalse]
    assert run(lambda _: 0) == 0
    assert seen[1:] == [None]


def test_middleware_sees_work_that_nobody_would_do_as_a_failure(middleware: Middleware, run: Callable[[Handler], Any]):
    seen: list[BaseException | None] = []
    middleware.after_delivery(lambda _, error: seen.append(error))
    with pytest.raises(TypeError, match="the handler returned an object of type generator, which would never run"):
        run(lambda _: (each for each in [0]))
    assert [type(error) for error in seen] == [TypeError]


def test_around_may_swallow_or_replace_an_error(middleware: Middleware, run: Callable[[Handler], Any]):
    @middleware.around_delivery
    def translate(_: Any) -> Iterator[None]:
        try:
            yield
        except LookupError as error:
            raise Reject("no such thing") from error

    middleware.around_delivery(lambda _: suppress(ZeroDivisionError))
    assert run(raising(ZeroDivisionError())) is None
    with pytest.raises(Reject):
        run(raising(KeyError("k")))


def test_error_after_the_yield_counts_as_the_handler_s(middleware: Middleware, run: Callable[[Handler], Any]):
    @middleware.around_delivery
    def commit(_: Any) -> Iterator[None]:
        yield
        raise ConnectionError("not committed")

    with pytest.raises(ConnectionError):
        run(lambda _: None)


def test_middleware_added_later_does_not_affect_a_wrapped_handler(middleware: Middleware):
    seen: list[Any] = []
    middleware.before_delivery(seen.append)
    wrapped = middleware.wrap(lambda _: None)
    middleware.before_delivery(broken)
    wrapped(MESSAGE)
    assert seen == [MESSAGE]


async def coroutine(*_: Any) -> None:
    pass


async def asynchronous_generator(_: Any) -> Any:
    yield


def generator(*_: Any) -> Iterator[None]:
    yield


HOOKS = [name for name in dir(Middleware()) if name.startswith(("before", "after", "around"))]
NOT_RUN_BY_A_CALL = [None, 5, coroutine, asynchronous_generator]


@pytest.mark.parametrize(
    ("hook", "function"),
    [
        *[(hook, function) for hook in HOOKS for function in NOT_RUN_BY_A_CALL],
        *[(hook, generator) for hook in HOOKS if not hook.startswith("around")],
    ],
)
def test_middleware_that_does_not_run_when_called_is_refused(middleware: Middleware, hook: str, function: Any):
    with pytest.raises(InvalidInput, match="middleware"):
        getattr(middleware, hook)(function)
    assert not middleware.has_sends
    assert middleware.wrap(print) is print


def test_swallowed_send_error_is_raised_anyway(middleware: Middleware):
    middleware.around_send(lambda _: suppress(ValueError))
    with pytest.raises(ValueError, match="of the send"), middleware.sending(Sending("jobs", [])):
        raise ValueError("of the send")
    middleware.before_send(broken)
    with pytest.raises(ValueError, match="boom"), middleware.sending(Sending("jobs", [Outgoing(1)])):
        pytest.fail("it went on")


@pytest.mark.parametrize(
    ("hook", "function"),
    [
        ("before_delivery", lambda: None),
        ("after_delivery", lambda _: None),
        ("around_delivery", lambda _a, _b, _c: nullcontext()),
        ("before_send", lambda _a, _b: None),
        ("after_send", lambda _a, _b, _c: None),
        ("around_send", lambda _a, _b: nullcontext()),
    ],
)
def test_function_with_a_wrong_signature_is_refused_at_registration(middleware: Middleware, hook: str, function: Any):
    with pytest.raises(
        InvalidInput,
        match=r"(?s)middleware .*lambda.* cannot be called with only the (message|send).*; let it take the",
    ):
        getattr(middleware, hook)(function)
    assert not middleware.has_sends
    assert middleware.wrap(print) is print


def test_generator_function_without_an_argument_is_refused_at_registration(middleware: Middleware):
    def around() -> Iterator[None]:
        yield

    with pytest.raises(InvalidInput, match=r"around cannot be called with only the message"):
        middleware.around_delivery(around)  # type: ignore[type-var]


class NoManager:
    def __init__(self, _: Any) -> None: ...


@pytest.mark.parametrize("hook", ["around_delivery", "around_send"])
def test_class_that_is_no_context_manager_is_refused_at_registration(middleware: Middleware, hook: str):
    expected = "middleware NoManager is, not a context manager: write a generator function with one yield"
    with pytest.raises(InvalidInput, match=expected):
        getattr(middleware, hook)(NoManager)
    assert not middleware.has_sends
    assert middleware.wrap(print) is print


class Instance:
    def __call__(self, _: Any) -> Iterator[None]:
        yield


def only_raises(_: Any) -> Any:
    raise Reject("not today")


@pytest.mark.parametrize("function", [nullcontext, lambda _: nullcontext(), only_raises, functools.partial(generator)])
def test_around_that_may_work_is_accepted(middleware: Middleware, function: Any):
    assert middleware.around_delivery(function) is function


def test_object_with_a_generator_call_works_as_around(middleware: Middleware, run: Callable[[Handler], Any]):
    middleware.around_delivery(Instance())
    assert run(lambda _: "done") == "done"


def test_signature_of_a_wrapper_is_checked_and_not_of_what_it_wraps(middleware: Middleware):
    def with_an_argument_more(_message: Any, _more: Any) -> None: ...

    @functools.wraps(with_an_argument_more)
    def wrapper(message: Any) -> None:
        with_an_argument_more(message, "more")

    assert middleware.before_delivery(wrapper) is wrapper


@pytest.mark.parametrize("returned", [4, None])  # None: its yield was forgotten
def test_around_that_does_not_return_a_context_manager_is_named(middleware: Middleware, returned: Any):
    def counts(_: Any) -> Any:
        return returned

    middleware.around_delivery(counts)
    middleware.around_send(counts)
    expected = f"counts returned {returned}, not a context manager: write a generator function with one yield"
    with pytest.raises(InvalidInput, match=expected):
        middleware.wrap(print)(Fake())
    with pytest.raises(InvalidInput, match=expected), middleware.sending(Sending("mails", [])):
        pass
