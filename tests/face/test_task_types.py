"""What type checkers know about tasks: mypy refuses each line here that is marked as wrong, and no other.

`make types` checks this file, also that every mark is needed. Pyright agrees on all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

import pytest

from delayq import Ack, Message, Outgoing, Queue, SentTask, Task, aio, current_message
from delayq.errors import WrongArguments
from delayq.testing import Clock

clock = Clock()
queue = clock.queue("jobs")
awaited = aio.Queue("jobs", url="redis://127.0.0.1:1/0")


@queue.task
def welcome(user_id: int, *, language: str = "en") -> str:
    return f"{language} {user_id}"


@queue.task(name="goodbye", max_retries=3, retry_for=(OSError, TimeoutError))
def part(user_id: int) -> Ack:
    return Ack(then=[welcome.message(user_id)])


@queue.cron("@daily")
@queue.task
def nightly() -> None:
    assert_type(current_message(), Message[Any] | None)


@awaited.task
async def fetch(url: str) -> bytes:
    return url.encode()


@queue.task(results=60)
def measure(user_id: int) -> float:
    return user_id / 2


@awaited.task(name="fetch again", timeout=5)
async def fetch_again(url: str) -> bytes:
    return url.encode()


@awaited.task
def compute(number: int) -> float:
    return number / 2


def test_sends_have_the_types_of_the_functions():
    assert_type(nightly, Task[[], None, None])
    assert_type(welcome(42), str)
    assert_type(welcome.send(42, language="de"), SentTask[str])
    assert_type(welcome.options(delay=60, id="a").send(user_id=42), SentTask[str])
    assert_type(welcome.message(42), Outgoing)
    assert_type(part.send(42), SentTask[Ack])
    assert_type(nightly.send(), SentTask[None])


def results() -> None:
    assert_type(measure.send(1).result(timeout=5), float)
    assert_type(measure.options(results=3600).send(1).result(None), float)
    assert_type(measure.result("a", timeout=0), float)
    measure.result(5)  # type: ignore[arg-type]
    measure.send(1).result("5 s")  # type: ignore[arg-type]
    measure.options(results="1h")  # type: ignore[arg-type]
    assert_type(len(measure.send(1).result()), int)  # type: ignore[arg-type]


async def sends() -> None:
    assert_type(await (await fetch.send("x")).result(timeout=5), bytes)
    assert_type(await fetch.result("a"), bytes)
    assert_type(await fetch.send("x"), aio.SentTask[bytes])
    assert_type(await fetch_again.options(delay=1).send("x"), aio.SentTask[bytes])
    assert_type(await compute.send(1), aio.SentTask[float])
    assert_type(await fetch("x"), bytes)
    assert_type(compute(1), float)
    await fetch.send(5)  # type: ignore[arg-type]
    await compute.send()  # type: ignore[call-arg]


WRONG: list[Callable[[], object]] = [
    lambda: welcome.send("x"),  # type: ignore[arg-type]
    lambda: welcome.send(language="de"),  # type: ignore[call-arg]
    lambda: welcome.send(1, "de"),  # type: ignore[call-arg]
    lambda: welcome.send(1, langage="de"),  # type: ignore[call-arg]
    lambda: welcome.options(delay=5).send("x"),  # type: ignore[arg-type]
    lambda: welcome.message(None),  # type: ignore[arg-type]
    lambda: part.send("x"),  # type: ignore[arg-type]
    lambda: nightly.send(1),  # type: ignore[call-arg]
    lambda: fetch.message(5),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("call", WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_what_a_type_checker_refuses_is_refused_when_it_is_called(call: Callable[[], object]):
    with pytest.raises(WrongArguments):
        call()


def test_options_are_checked():
    with pytest.raises(TypeError, match="delay"):
        welcome.options(delaay=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Queue("other", url="redis://127.0.0.1:1/0").task(retries=5)  # type: ignore[call-overload]
