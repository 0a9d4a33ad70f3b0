"""The rights that docs/acl.md adds for ledgers are sufficient and all needed."""

from __future__ import annotations

from typing import Any

import pytest

from delayq import Event, Queue
from delayq.operations.topics.read import records_range
from tests.harness.acl.telling import LINES, ON_OCCASION, forget_scripts, tell
from tests.harness.ledgers import entry
from tests.harness.servers import RedisServer

RECOUNTS = ON_OCCASION[
    "an observer who calls `delayq show --history` or `queue.history`, or asks `why` about messages in the ledger"
].split()
OUTCOMES = ON_OCCASION["an observer who sees the last outcomes of schedules on the dashboard"].split()
KEYS = ON_OCCASION["a topic role that reads the ledger of the queue `emails` as a topic"].split()


def write(root: Queue) -> None:
    """Put two entries into the ledger of a queue."""
    root.send("x", id="a", delay=60)
    client: Any = root._executor.client
    for event in ("sent", "delivered"):
        client.xadd("delayq:{emails}:events", entry("a", event, 1))
    forget_scripts(root)


def recounts(mine: Queue, root: Queue) -> None:
    """Read the history of a message."""
    write(root)
    assert [each.event for each in mine.history("a")] == ["sent", "delivered"]


def acked(root: Queue) -> None:
    """Put an acked message into the ledger."""
    root.configure(events=True)
    root.send("x", id="a")
    root.receive()[0].ack()
    forget_scripts(root)


def explains(mine: Queue, root: Queue) -> None:
    """Call `why`, which needs the ledger here."""
    acked(root)
    assert mine.why("a").startswith("a was acked at ")


def explains_without(mine: Queue, root: Queue) -> None:
    """Call `why`, which works without the ledger here."""
    acked(root)
    assert mine.why("a").endswith("the ledger would say how, but it cannot be read")


def sees_outcomes(mine: Queue, root: Queue) -> None:
    """Read the last entries of the ledger, as the dashboard does for the outcomes of schedules."""
    acked(root)
    assert mine.events.execute(records_range, "-", "+", 10, True)


def follows(mine: Queue, root: Queue) -> None:
    """Read the ledger with and without a group, and wait for new entries."""
    write(root)
    group = mine.events.group("audit", "0")
    records = group.poll("a", 10)
    assert [Event.of(each).event for each in records] == ["sent", "delivered"]
    assert group.poll("a", wait=0.01) == []
    assert group.ack(records) == 2
    assert len(mine.events.range()) == mine.events.length() == 2
    assert list(mine.events.tail("$", wait=0.01)) == []


def trims(mine: Queue, root: Queue) -> None:
    """Trim the ledger, and manage its groups."""
    write(root)
    group = root.events.group("audit", "0")
    group.ack(group.poll("a", 10))
    assert [each.lag for each in mine.events.groups()] == [0]
    assert mine.events.trim_acked().dropped == 2
    assert mine.events.group("audit").destroy()


@pytest.mark.parametrize("role", ["observer", "administrator"])
def test_role_can_read_the_history_with_the_optional_rights(role: str, any_server: RedisServer) -> None:
    assert tell(any_server, role, [*LINES[role], *RECOUNTS], recounts) == ""
    assert tell(any_server, role, LINES[role], recounts)


@pytest.mark.parametrize("role", ["observer", "administrator"])
def test_role_can_read_the_outcomes_of_schedules_with_the_optional_rights(role: str, any_server: RedisServer) -> None:
    assert tell(any_server, role, [*LINES[role], *OUTCOMES], sees_outcomes) == ""
    assert tell(any_server, role, LINES[role], sees_outcomes)


@pytest.mark.parametrize("role", ["observer", "administrator"])
def test_why_works_without_the_right_to_read_the_ledger(role: str, any_server: RedisServer) -> None:
    assert tell(any_server, role, [*LINES[role], *RECOUNTS], explains) == ""
    assert tell(any_server, role, LINES[role], explains_without) == "pttl, xrevrange"  # nor a result


@pytest.mark.parametrize(("role", "story"), [("member", follows), ("topic_administrator", trims)])
def test_topic_role_can_use_the_ledger_with_the_additional_keys(role: str, story: Any, any_server: RedisServer) -> None:
    rights = [each for each in LINES[role] if not each.startswith("~")]
    assert tell(any_server, role, [*rights, *KEYS], story) == ""
    for key in KEYS:
        assert tell(any_server, role, [*rights, *(each for each in KEYS if each != key)], story), key
