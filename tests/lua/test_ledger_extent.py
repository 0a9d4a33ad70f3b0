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
