"""Deliveries returned before a handler sees them are in the journal, and the next delivery refers to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from delayq import Consumer, Message, Outgoing, Queue
from tests.harness.chaos import history
from tests.harness.chaos.handed_back import note_unstarted
from tests.harness.chaos.history import Journal
from tests.harness.servers import RedisServer


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "consumer.jsonl")
    yield journal
    mock.patch.stopall()
    journal.close()


def test_returned_suspect_is_due_again_from_its_return(
    redis_server: RedisServer, journal: Journal, tmp_path: Path
) -> None:
    def handle(message: Message) -> None:
        journal.delivered(message)

    note_unstarted(journal)
    with Queue("jobs", url=redis_server.url) as queue:
        queue.send_many(Outgoing(None, id=id) for id in ("a", "suspect", "b"))
        queue._executor.client.hset(queue._context.shards[0].keys.attempts, "suspect", "2.0.0.2")  # it was lost twice
        assert Consumer(queue, handle).drain() == 3
    life = [event for event in history.read(tmp_path) if event.id == "suspect"]
    assert [(event.kind, event.attempt) for event in life] == [("unstarted", 3), ("delivered", 3)]
    back, begun = life
    assert begun.due_ms == int(back.ms)
    assert back.due_ms <= back.ms < begun.ms
