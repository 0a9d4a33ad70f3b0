"""Pages of a state, forwards and backwards, contain each message once: with any id, due time and shard."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from delayq import Outgoing, Queue
from delayq.errors import InvalidInput
from tests.contract.conftest import Now


def forwards(queue: Queue, limit: int) -> list[list[str]]:
    """Return the ids of all pages from the first to the last."""
    pages: list[list[str]] = []
    after: str | None = None
    while True:
        page = queue.page("pending", after=after, limit=limit)
        pages.append([info.id for info in page.messages])
        after = page.after
        if after is None:
            return pages


def backwards(queue: Queue, limit: int) -> list[list[str]]:
    """Return the ids of all pages from the last to the first."""
    pages: list[list[str]] = []
    before = "+"
    while True:
        page = queue.page("pending", before=before, limit=limit)
        pages.append([info.id for info in page.messages])
        if page.before is None:
            return pages
        before = page.before


def test_pages_contain_each_message_once_in_time_order(queue: Queue):
    queue.send_many([Outgoing(n, delay=n // 4, id=f"m{n:02}") for n in range(10)])
    expected = [f"m{n:02}" for n in range(10)]
    assert forwards(queue, 4) == [expected[:4], expected[4:8], expected[8:]]
    assert backwards(queue, 4) == [expected[6:], expected[2:6], expected[:2]]


def test_messages_with_the_same_time_are_paged_by_id(queue: Queue):
    ids = sorted((f"{n:03}/ü?#%&<b> " + "x" * (n % 70)) for n in range(60))
    queue.send_many([Outgoing(None, delay=60, id=each) for each in ids])
    assert list(chain(*forwards(queue, 7))) == ids
    assert list(chain(*reversed(backwards(queue, 7)))) == ids


def test_next_page_starts_after_a_deleted_message(queue: Queue):
    ids = [f"m{n:02}" for n in range(40)]
    queue.send_many([Outgoing(None, delay=60, id=each) for each in ids])
    first = queue.page("pending", limit=10)
    for gone in ids[5:12]:
        queue.cancel(gone)
    behind = queue.page("pending", after=first.after, limit=10)
    assert ([info.id for info in behind.messages], behind.rank, behind.total) == (ids[12:22], 5, 33)
    in_front = queue.page("pending", before=behind.before, limit=10)
    assert ([info.id for info in in_front.messages], in_front.before) == (ids[:5], None)


def test_page_counts_the_messages_before_it_and_in_total(queue: Queue):
    queue.send_many([Outgoing(None, delay=60 + n, id=f"m{n}") for n in range(7)])
    first = queue.page("pending", limit=3)
    assert (first.rank, first.total, first.before) == (0, 7, None)
    second = queue.page("pending", after=first.after, limit=3)
    assert (second.rank, second.total) == (3, 7)
    last = queue.page("pending", before="+", limit=3)
    assert (last.rank, last.total, last.after) == (4, 7, None)


def test_page_of_a_state_without_messages_is_empty(queue: Queue):
    for page in (queue.page("dead"), queue.page("dead", before="+"), queue.page("dead", after="5 a")):
        assert (page.messages, page.total, page.rank, page.before, page.after) == ([], 0, 0, None, None)


def test_page_shows_the_same_facts_as_get(queue: Queue, now: Now):
    queue.send_many([Outgoing({"n": n}, id=f"m{n}", headers={"tenant": n}) for n in range(5)])
    first, second, third, *_ = sorted(queue.receive(5), key=lambda message: message.id)
    first.nack(error="no luck")
    second.reject(
        "bad",
    )
    queue.cancel(third.id)
    now.later(0.5)
    for state in ("retry", "dead", "unack"):
        page = queue.page(state)
        assert page.messages
        assert page.messages == [queue.get(info.id) for info in page.messages]
    assert [info.cancelled for info in queue.page("unack").messages if info.id == third.id] == [True]


def test_payloads_over_the_size_limit_are_not_read(queue: Queue):
    queue.send(b"x" * 5000, id="large", delay=60)
    queue.send(b"small", id="small", delay=61)
    page = queue.page("pending", largest=1000)
    assert [info.body for info in page.messages] == [None, b"small"]
    assert page.sizes["large"] > 5000
    assert [info.body for info in queue.page("pending").messages] == [b"x" * 5000, b"small"]


def test_invalid_cursor_is_refused_with_a_remedy(queue: Queue, subtests: pytest.Subtests):
    why = "is not a cursor: give `before` or `after` of another page unchanged"
    cursor: Any
    for cursor in ["", "5", "nan a", "x y", 7]:
        with subtests.test(cursor=cursor), pytest.raises(InvalidInput, match=why):
            queue.page("pending", after=cursor)


def test_page_takes_only_one_bound(queue: Queue):
    with pytest.raises(InvalidInput, match="were given: give one of them"):
        queue.page("pending", after="5 a", before="+")


def test_limit_of_a_page_is_checked(queue: Queue, subtests: pytest.Subtests):
    limit: Any
    for limit in [0, 501, True, "9"]:
        with subtests.test(limit=limit), pytest.raises(InvalidInput, match="limit"):
            queue.page("pending", limit=limit)
