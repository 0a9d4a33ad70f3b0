"""The rights that docs/acl.md lists for topics are sufficient, all needed, and everything else is refused."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias
from unittest.mock import patch

import pytest

from delayq import NewRecord, Topic, TopicConsumer
from delayq.errors import LoginRefused
from delayq.model.outcome import Failed
from delayq.operations.topics import group_read, settle, upkeep
from delayq.operations.topics.topic_context import TopicContext
from delayq.protocol.operation import execute
from delayq.runtime.receive_wait import TopicWait
from delayq.transport import fast_socket
from tests.harness.acl.telling import LINES, ON_OCCASION, contents, denials
from tests.harness.hostile import refusal
from tests.harness.servers import RedisServer
from tests.harness.tree import LUA

Story: TypeAlias = Callable[[Topic, Topic], None]


def publishes(mine: Topic, root: Topic) -> None:
    """Publish with and without an own id, with a max_length, and with a delay; cancel a delayed record."""
    forget_scripts(root)
    mine.publish("x", id="1-0")
    mine.publish("x", id="1-1")
    mine.publish_many([NewRecord("x"), NewRecord("y")], max_length=3, exact=True)
    mine.publish("x", max_length=1)
    assert mine.publish("x", delay=60, id="later").created
    assert not mine.publish("x", delay=60, id="later").created
    assert mine.cancel("later")


def reads(mine: Topic, root: Topic) -> None:
    """Read without a group, in both directions, append due records, and wait for new ones."""
    root.publish("x")
    root.publish("y", delay=0.001)
    time.sleep(0.003)  # until it is due
    forget_scripts(root)
    assert [each.payload for each in mine.range()] == ["x", "y"]
    assert [each.payload for each in mine.range(reverse=True)] == ["y", "x"]
    assert mine.length() == 2
    assert len(list(mine.tail("0", wait=0.01))) == 2
    assert list(mine.tail("$", wait=0.01)) == []
    assert mine.groups() == []


def waits(mine: Topic, root: Topic) -> None:
    """Wait, and close the connection."""
    root.publish("x")
    listener = TopicWait(mine._context, mine._executor)
    mine.execute(TopicContext.opened)
    listener.wait(["$"], 0.01)
    listener.close()


def joins(mine: Topic, root: Topic) -> None:
    """Create a group, poll, ack, renew, take over, and bury; inspect the group."""
    forget_scripts(root)
    group = mine.group("mail", "0")
    root.publish_many([NewRecord(number) for number in range(5)])
    root.publish("late", delay=0.001)
    time.sleep(0.003)  # until it is due
    records = group.poll("a", 100, wait=1)
    assert len(records) == 5 + (records[-1].payload == "late")
    group.poll("a", 100)
    assert group.own_unacked("a")
    mine.execute(settle.settle, "mail", "a", [(records[0], Failed(error="broken"))])
    mine.execute(group_read.renew, "mail", "a", records)
    assert group.ack(records[0]) == 1
    assert group.bury(records[1], "a", "unwanted")
    mine.execute(settle.settle, "mail", "a", [(records[2], Failed(error="broken"))])
    assert len(group.fetch_not_acked("b", 0, 2)) == 2
    assert mine.group("mail", max_deliveries=1).fetch_not_acked("b", 0) == []
    assert len(group.dead()) == 5
    assert mine.execute(upkeep.purge_old, "mail") is False
    assert (group.lag(), group.unacked(), len(group.consumers())) == (0, [], 2)
    assert mine._executor.execute(execute(mine._context.shards[0].drop_idle_consumers("mail", 0, "^a$"))) == 1
    mine.execute(settle.leave, "mail", "b")
    assert group.consumers() == []


def administers(mine: Topic, root: Topic) -> None:
    """Create, move and destroy groups, remove consumers, clear ghosts, requeue dead letters, and trim."""
    forget_scripts(root)
    group = mine.group("mail", "0")
    root.publish_many([NewRecord(number) for number in range(6)])
    held = root.group("mail").poll("a", 4)
    assert root.group("mail").bury(held[0], "a")
    assert [each.lag for each in mine.groups()] == [2]
    group.set_position("$")
    assert group.requeue_dead(group.dead()) == 1
    assert group.remove_consumer("a", to="b") == 3
    assert (len(group.unacked()), [each.name for each in group.consumers()]) == (4, ["b"])
    assert mine.trim_acked().slowest == "mail"
    assert mine.trim(max_length=5, approximate=False) == 1
    assert group.clear_ghosts() == 1
    assert mine.shrink_by_last_size() == 0
    assert mine.delete(root.range(count=1)) == 1
    assert mine.trim(min_id="9999999999999", approximate=False) == 4
    root.publish("x")
    (record,) = root.group("mail").poll("a")
    assert root.group("mail").bury(record, "a")
    assert mine.trim(min_id="9999999999999", approximate=False) == 1
    assert group.requeue_dead(group.dead()) == 1  # it is appended again
    assert group.destroy()


def lasts(mine: Topic, root: Topic) -> None:
    """Reuse a connection that was idle for half a minute: a PING checks whether it is still open."""
    root.publish("x")
    with patch.object(fast_socket, "_CHECK_AFTER_SECONDS", -1.0):
        for _ in range(2):
            mine.groups()


OWN: dict[str, tuple[Story, ...]] = {
    "publisher": (publishes,),
    "member": (reads, waits, joins, lasts),
    "topic_administrator": (administers, lasts),
}
SCRIPTS = {
    "publisher": "publish publish_later cancel",
    "member": "due append make_group poll ack fail renew unacked reclaim dead_letter groups lag drop_idle_consumers"
    " remove_consumer trim",
    "topic_administrator": "make_group destroy groups lag unacked requeue_dead remove_consumer clear_ghosts trim"
    " trim_acked shrink",
}

each_role = pytest.mark.parametrize("role", OWN)


def forget_scripts(root: Topic) -> None:
    client: Any = root._executor.client
    client.script_flush()


def as_user(server: RedisServer, role: str, name: str = "orders", **options: Any) -> Topic:
    return Topic(name, url=f"unix://{role}:secret@{server.socket}", **options)


def grant(server: RedisServer, role: str, rights: Iterable[str]) -> None:
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", role, *rights)


def tell(server: RedisServer, role: str, rights: Iterable[str], story: Story) -> str:
    """Run a story as a user with these rights; return what failed, or what was denied and tolerated."""
    server.flush()
    grant(server, role, rights)
    with (
        server.client(decode_responses=True) as admin,
        as_user(server, role) as mine,
        Topic("orders", url=server.url) as root,
    ):
        admin.execute_command("ACL", "LOG", "RESET")
        try:
            story(mine, root)
        except Exception as error:  # noqa: BLE001  # any error means that the story did not finish
            return repr(error)
    return ", ".join(denials(server, role))


@each_role
def test_role_can_do_everything_it_should(role: str, any_server: RedisServer) -> None:
    for story in OWN[role]:
        assert tell(any_server, role, LINES[role], story) == "", story.__name__


@each_role
def test_role_can_run_every_command_of_its_scripts(role: str) -> None:
    texts = [(LUA / "topics" / f"{name}.lua").read_text() for name in SCRIPTS[role].split()]
    commands = {f"+{name.lower()}" for text in texts for name in re.findall(r"redis\.p?call\('(\w+)'", text)}
    granted = {right.partition("|")[0] for right in LINES[role]}
    assert commands - granted == set()


@pytest.mark.full
@each_role
def test_role_needs_each_of_its_rights(role: str, any_server: RedisServer) -> None:
    needless = []
    for right in LINES[role][3:]:
        rights = [each for each in LINES[role] if each != right]
        if not any(tell(any_server, role, rights, story) for story in OWN[role]):
            needless.append(right)
    assert needless == []


REFUSAL = re.compile(r"grant this user .*docs/acl\.md")
REFUSED: dict[str, dict[str, Callable[[Topic], Any]]] = {
    "publisher": {
        "range": lambda topic: topic.range(),
        "group": lambda topic: topic.group("new"),
        "groups": lambda topic: topic.groups(),
        "shrink": lambda topic: topic.shrink_by_last_size(),
    },
    "member": {
        "delay": lambda topic: topic.publish("x", delay=60),
        "move": lambda topic: topic.group("mail").set_position("0"),
        "destroy": lambda topic: topic.group("mail").destroy(),
    },
    "topic_administrator": {
        "delay": lambda topic: topic.publish("x", delay=60),
        "poll": lambda topic: topic.group("mail").poll("b"),
    },
}


@each_role
def test_role_is_refused_everything_else_and_changes_nothing(role: str, any_server: RedisServer) -> None:
    with Topic("orders", url=any_server.url) as root:
        group = root.group("mail")
        root.publish_many([NewRecord(number) for number in range(3)])
        group.ack(group.poll("idle", 1))
        group.poll("a", 2)
    grant(any_server, role, LINES[role])
    before = contents(any_server)
    for name, call in REFUSED[role].items():
        with as_user(any_server, role) as mine:
            assert REFUSAL.search(refusal(partial(call, mine), LoginRefused)), name
        assert contents(any_server) == before, name


@each_role
def test_topic_of_another_name_is_out_of_reach(role: str, any_server: RedisServer) -> None:
    grant(any_server, role, LINES[role])
    for name in ("order", "orders2", "*", "ORDERS"):
        with Topic(name, url=any_server.url) as root:
            root.publish("x")
        with as_user(any_server, role, name) as mine:
            assert "grant this user the keys" in refusal(partial(mine.publish, "x"), LoginRefused), name


def test_shards_need_the_additional_key_pattern(any_server: RedisServer) -> None:
    grant(any_server, "publisher", LINES["publisher"])
    records = [NewRecord("x") for _ in range(8)]
    with as_user(any_server, "publisher", shards=4) as mine:
        with pytest.raises(LoginRefused, match="grant this user the keys"):
            mine.publish_many(records)
        grant(any_server, "publisher", [*LINES["publisher"], ON_OCCASION["a topic with shards"]])
        assert len(mine.publish_many(records)) == 8


@pytest.mark.parametrize("right", ["xack", "xreadgroup", "xpending"])
def test_drain_of_a_group_ends_with_the_error_if_a_right_is_missing(right: str, redis_server: RedisServer) -> None:
    grant(redis_server, "member", [*LINES["member"], f"-{right}"])
    with (
        Topic("orders", url=redis_server.url) as root,
        Topic("orders", url=f"unix://member:secret@{redis_server.socket}") as mine,
    ):
        root.group("all", start="0")
        root.publish("x")
        consumer = TopicConsumer(mine.group("all", create=False), lambda _: None, shutdown_timeout=0.1)
        with pytest.raises(LoginRefused, match="grant this user"):
            consumer.drain()
