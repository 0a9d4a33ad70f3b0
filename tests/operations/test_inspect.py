"""Peeking at many messages with the same due time, while others come and go."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis

from delayq import Queue
from delayq.protocol.operation import Operation, noop
from delayq.protocol.queue_keys import QueueKeys

PENDING = QueueKeys("delayq", "burst").pending
DUE = 4_000_000_000_000  # ms: long after this test
PAGE = 50
IDS = [f"m-{number:03}" for number in range(4 * PAGE)]

Change = Callable[["redis.Redis"], object]


@pytest.fixture
def queue(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Queue:
    monkeypatch.setattr("delayq.operations.inspect.MAX_IDS", PAGE)
    return Queue("burst", redis=redis_client)


def plant(client: redis.Redis, ids: Sequence[str], due: int = DUE) -> None:
    client.zadd(PENDING, dict.fromkeys(ids, due))


def after_pages(queue: Queue, monkeypatch: pytest.MonkeyPatch, number: int, change: Callable[[], object]) -> None:
    """Change something between the page with this number and the next one."""
    run, pages = queue._executor.run, 0

    def run_and_change(calls: Sequence[Any], repeat: bool = True) -> Any:
        nonlocal pages
        results = run(calls, repeat)
        if calls[0].args[0] == "ZRANGE":
            pages += 1
            if pages == number:
                change()
        return results

    monkeypatch.setattr(queue._executor, "run", run_and_change)


def peeked(queue: Queue, limit: int = 1_000_000) -> list[str]:
    return [info.id for info in queue.peek("pending", limit)]


@pytest.mark.parametrize("limit", [1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 4 * PAGE, 5 * PAGE])
def test_messages_with_one_due_time_come_once_and_in_order(queue: Queue, redis_client: redis.Redis, limit: int) -> None:
    plant(redis_client, IDS)
    assert peeked(queue, limit) == IDS[:limit]


def test_pages_can_end_within_or_after_messages_with_one_due_time(queue: Queue, redis_client: redis.Redis) -> None:
    ids = [[f"{due}-{n:03}" for n in range(count)] for due, count in enumerate((PAGE, PAGE + 1, 1, 2 * PAGE - 1, 1))]
    for due, part in enumerate(ids):
        plant(redis_client, part, DUE + due)
    assert peeked(queue) == [each for part in ids for each in part]


@pytest.mark.parametrize("due", [DUE - 1, DUE], ids=["earlier", "at that instant"])
@pytest.mark.parametrize("count", [1, PAGE - 1, PAGE, PAGE + 1, 7 * PAGE])
@pytest.mark.parametrize("page", [1, 2, 3])
def test_removed_earlier_messages_hide_no_others(
    queue: Queue, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, page: int, count: int, due: int
) -> None:
    client: Any = redis_client
    front = [f"a-{number:03}" for number in range(7 * PAGE)]
    plant(client, front, due)
    plant(client, IDS)
    after_pages(queue, monkeypatch, page, lambda: client.zrem(PENDING, *front[:count]))
    found = peeked(queue)
    assert [each for each in found if each in IDS] == IDS
    assert set(front[count:]) <= set(found)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("due", [DUE - 1, DUE], ids=["earlier", "at that instant"])
@pytest.mark.parametrize("count", [1, PAGE - 1, PAGE, PAGE + 1, 7 * PAGE])
def test_added_earlier_messages_repeat_no_others(
    queue: Queue, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, count: int, due: int
) -> None:
    plant(redis_client, IDS)
    front = [f"a-{number:03}" for number in range(count)]
    after_pages(queue, monkeypatch, 2, lambda: plant(redis_client, front, due))
    assert peeked(queue) == IDS


@pytest.mark.parametrize("gone", [slice(PAGE, PAGE + 1), slice(PAGE + 1), slice(3, 2 * PAGE), slice(4 * PAGE)])
def test_next_page_follows_even_if_the_last_message_has_gone(
    queue: Queue, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, gone: slice
) -> None:
    """The first page is described after the change, without the messages that have gone."""
    client: Any = redis_client
    plant(client, IDS)
    after_pages(queue, monkeypatch, 1, lambda: client.zrem(PENDING, *IDS[gone]))
    assert peeked(queue) == [each for each in IDS if each not in IDS[gone]]


@pytest.mark.full
def test_later_page_of_one_due_time_costs_no_more_than_the_first(
    any_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page is a range of ranks. A range of scores, or a LIMIT, would walk over all earlier messages."""
    client: Any = any_client
    ids = [f"m-{number:06}" for number in range(200_000)]
    for start in range(0, len(ids), 10_000):
        plant(client, ids[start : start + 10_000])

    def describe_none(*_: object) -> Operation[list[Any]]:
        yield from noop()
        return []

    monkeypatch.setattr("delayq.operations.inspect._describe_all", describe_none)
    saved = client.config_get("slowlog-*")
    client.config_set("slowlog-max-len", 10_000)
    client.config_set("slowlog-log-slower-than", 0)
    try:
        assert Queue("burst", redis=client).peek("pending", 1_000_000) == []
        entries = client.slowlog_get(10_000)
    finally:
        for name, value in saved.items():
            client.config_set(name, value)
        client.slowlog_reset()
    commands = (each["command"].split() for each in entries)  # among them those of other tests' clients
    pages = [words[2:] for words in commands if words[:2] == [b"ZRANGE", PENDING.encode()]]
    assert 400 <= len(pages) <= 402
    for first, last, *options in pages:
        assert options == [b"WITHSCORES"]
        assert 0 < int(last) - int(first) <= 500


def test_peek_ends_even_if_all_messages_go_before_they_can_be_described(
    queue: Queue, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = queue._executor.run
    looked = itertools.count()

    def run_and_replace(calls: Sequence[Any], repeat: bool = True) -> Any:
        results = run(calls, repeat)
        if calls[0].args[0] == "ZRANGE":
            redis_client.delete(PENDING)
            plant(redis_client, [f"{next(looked):09}" for _ in range(3 * PAGE)])
        return results

    plant(redis_client, [f"{next(looked):09}" for _ in range(3 * PAGE)])
    monkeypatch.setattr(queue._executor, "run", run_and_replace)
    assert peeked(queue, limit=1) == []


def test_message_that_moves_during_a_peek_comes_once(
    queue: Queue, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(redis_client, IDS)
    after_pages(queue, monkeypatch, 1, lambda: plant(redis_client, IDS[:1], DUE + 1))
    assert peeked(queue) == [*IDS[1:], IDS[0]]
