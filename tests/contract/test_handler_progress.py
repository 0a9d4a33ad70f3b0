"""HandlerProgress: what a handler reports is seen while its delivery runs, and never of another one."""

from __future__ import annotations

import time
from typing import Any

import pytest

from delayq import Queue
from delayq.errors import InvalidInput, StaleReceipt
from delayq.model.handler_progress import EVERY_SECONDS, MAX_TEXT, HandlerProgress
from tests.contract.conftest import Now


def take(queue: Queue) -> Any:
    (message,) = queue.receive(1)
    return message


def reported(queue: Queue, id: str = "a") -> HandlerProgress | None:
    info = queue.get(id)
    assert info is not None
    return info.progress


def keys(client: Any) -> list[Any]:
    return [key for key in client.keys("*") if "progress" in str(key)]


def test_progress_is_seen_while_the_delivery_runs(queue: Queue, client: Any):
    queue.send("x", id="a")
    assert reported(queue) is None
    message = take(queue)
    assert reported(queue) is None
    message.progress(40, 100, "pages é")
    assert reported(queue) == (40, 100, "pages é")
    assert [info.progress for info in queue.peek("unack")] == [(40, 100, "pages é")]
    assert "progress: 40 of 100: pages é" in queue.why("a")
    message.ack()
    assert queue.get("a") is None
    assert keys(client) == []


@pytest.mark.parametrize("end", ["nack", "reject", "release"])
def test_progress_goes_with_its_delivery(queue: Queue, client: Any, end: str):
    queue.send("x", id="a")
    message = take(queue)
    message.progress(1)
    getattr(message, end)()
    assert reported(queue) is None
    assert keys(client) == []


def test_progress_is_written_once_a_second(queue: Queue):
    queue.send("x", id="a")
    message = take(queue)
    for number in range(5):
        message.progress(number)
    assert reported(queue) == (0, None, "")
    time.sleep(EVERY_SECONDS)
    message.progress(5.5)
    assert reported(queue) == (5.5, None, "")


def test_next_delivery_does_not_show_the_progress_of_a_lost_one(queue: Queue, now: Now, client: Any):
    queue.send("x", id="a")
    lost = take(queue)
    lost.progress(9)
    now.later(1000)
    assert take(queue).attempt == 2
    assert reported(queue) is None
    (key,) = keys(client)
    assert 0 < client.pttl(key) <= 86_400_000
    time.sleep(EVERY_SECONDS)
    with pytest.raises(StaleReceipt, match="was settled, or its lease ran out"):
        lost.progress(10)
    assert reported(queue) is None


def test_later_message_with_the_id_does_not_show_it(queue: Queue, now: Now):
    queue.send("x", id="a")
    old = take(queue)
    old.progress(9)
    queue.send("y", id="a", on_conflict="replace")
    now.later(1)
    assert take(queue).payload == "y"
    assert reported(queue) is None


def test_key_of_another_program_stops_neither_the_look_nor_the_ack(queue: Queue, client: Any):
    queue.send("x", id="a")
    message = take(queue)
    message.progress(9)
    (key,) = keys(client)
    client.delete(key)
    client.set(key, "mine")
    assert reported(queue) is None
    message.ack()
    assert queue.stats().acked == 1


@pytest.mark.parametrize(
    "wrong", [(-1,), ("1",), (True,), (float("nan"),), (float("inf"),), (2**60,), (1, -1), (1, "2"), (1, 2, b"x")]
)
def test_wrong_progress_is_refused(queue: Queue, wrong: Any):
    queue.send("x", id="a")
    message = take(queue)
    with pytest.raises(InvalidInput, match="progress: "):
        message.progress(*wrong)
    assert reported(queue) is None


def test_long_text_is_cut_and_a_lone_surrogate_is_replaced(queue: Queue):
    queue.send("x", id="a")
    message = take(queue)
    message.progress(1, text="\ud800" + "é" * 500)
    found: Any = reported(queue)
    assert (len(found.text), found.text[:2], found.text[-1]) == (MAX_TEXT, "?é", "…")
