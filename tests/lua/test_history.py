from __future__ import annotations

from typing import Any

import pytest

from delayq.errors import KeyOverwritten
from delayq.protocol.replies import LedgerPage
from tests.harness.ledgers import entry
from tests.harness.lua.raw import NOW, RawQueue

OTHERS = [{"id": "aa"}, {"x": "a"}, {"event": "a", "id": "b"}, {"id": "", "event": "a"}, {"a": "id"}]


def append(queue: RawQueue, *ids: str) -> list[str]:
    return [queue.redis.xadd(queue.keys.events, entry(each, "sent", NOW)) for each in ids]


def found(queue: RawQueue, *args: Any) -> tuple[str, list[str]]:
    last, entries = queue.history(*args)
    return last, [entry for entry, _ in entries]


def test_entries_of_a_message_are_found_newest_first(queue):
    first, _, third, _ = append(queue, "a", "b", "a", "aa")
    last, entries = queue.history("a")
    assert last == ""
    assert [entry for entry, _ in entries] == [third, first]
    assert entries[0][1] == [
        *(b"id", b"a", b"event", b"sent", b"at", str(NOW).encode(), b"attempt", b"", b"due", b""),
        *(b"late", b"", b"consumer", b"", b"reason", b""),
    ]


def test_call_reads_a_limited_number_of_entries_and_says_where_it_stopped(queue):
    ids = append(queue, "a", "b", "a", "b", "a")
    assert found(queue, "a", "+", 2) == (ids[3], [ids[4]])
    assert found(queue, "a", f"({ids[3]}", 2) == (ids[1], [ids[2]])
    assert found(queue, "a", f"({ids[1]}", 2) == ("", [ids[0]])


def test_call_that_ends_at_the_first_entry_is_followed_by_an_empty_one(queue):
    ids = append(queue, "a", "b")
    assert found(queue, "a", "+", 2) == (ids[0], [ids[0]])
    assert found(queue, "a", f"({ids[0]}", 2) == ("", [])


def test_missing_ledger_is_empty(queue):
    assert queue.history("a") == LedgerPage("", [])
    assert queue.redis.keys() == []


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("fields", OTHERS, ids=str)
def test_entries_of_other_programs_are_skipped(queue, fields):
    queue.redis.xadd(queue.keys.events, fields)
    assert found(queue, "a") == ("", [])


def test_key_of_another_type_is_an_error(queue):
    queue.redis.set(queue.keys.events, "x")
    with pytest.raises(KeyOverwritten):
        queue.history("a")
