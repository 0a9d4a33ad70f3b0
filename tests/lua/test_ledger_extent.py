from __future__ import annotations

from delayq.model.record import Extent
from tests.harness.ledgers import entry
from tests.harness.lua.raw import NOW


def test_missing_ledger_is_empty(queue):
    found = queue.run(queue.scripts.ledger_extent(""))
    assert (found.extent, found.next) == (Extent(0, "", "0-0", 0), "")


def test_events_of_packed_entries_are_counted(queue):
    queue.given(meta={"events": 1000, "needs": "3 0.1.0"})
    queue.redis.xadd(queue.keys.events, entry("old", "sent", NOW))
    queue.send([(f"m{n}", "+0", b"{}") for n in range(150)])
    extent = queue.run(queue.scripts.ledger_extent("")).extent
    assert extent.length == 151
    assert extent.added in (151, None)
    assert queue.redis.xlen(queue.keys.events) == 3


def test_search_for_the_first_packed_entry_is_continued(queue):
    queue.given(meta={"events": 10_000, "needs": "3 0.1.0"})
    for n in range(1100):
        queue.redis.xadd(queue.keys.events, entry(f"old{n}", "sent", NOW))
    queue.send([(f"m{n}", "+0", b"{}") for n in range(150)])
    begun = queue.run(queue.scripts.ledger_extent(""))
    assert begun.next.startswith("(")
    found = queue.run(queue.scripts.ledger_extent(begun.next))
    assert (found.extent.length, found.next) == (1250, "")


def mark_of(queue) -> str:
    mark: str = queue.run(queue.scripts.ledger_extent("")).extent.mark
    return mark


def test_mark_ends_with_its_ledger(queue):
    queue.given(meta={"events": 1000, "needs": "3 0.1.0"})
    assert mark_of(queue) == ""
    queue.send([(f"m{n}", "+0", b"{}") for n in range(150)])
    first = mark_of(queue)
    queue.send([("more", "+0", b"{}")])
    assert first == mark_of(queue) != ""
    queue.redis.xtrim(queue.keys.events, maxlen=0)
    queue.send([("trimmed", "+0", b"{}")])
    assert mark_of(queue) == first
    queue.redis.delete(queue.keys.events)
    assert mark_of(queue) == ""
    queue.send([("again", "+0", b"{}")])
    second = mark_of(queue)
    queue.redis.delete(queue.keys.events)
    queue.redis.xgroup_create(queue.keys.events, "g", mkstream=True)
    assert mark_of(queue) == "" or queue.redis.info("server")["redis_version"].startswith("6.")
    queue.send([("grouped", "+0", b"{}")])
    assert len({first, second, mark_of(queue), ""}) == 4


def test_ledger_that_another_program_created_again_has_no_mark(queue):
    queue.given(meta={"events": 1000})
    queue.send([("m", "+0", b"{}")])
    queue.redis.delete(queue.keys.events)
    queue.redis.xadd(queue.keys.events, entry("other", "sent", NOW), id="5-0")
    queue.send([("n", "+0", b"{}")])
    assert mark_of(queue) == "" or queue.redis.info("server")["redis_version"].startswith("6.")
