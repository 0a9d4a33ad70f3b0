"""Each topic script uses only the keys that its call declares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from delayq.protocol.command import Command
from delayq.protocol.topic_commands import ANY_MARK, TopicCommands
from delayq.protocol.topic_keys import TopicKeys
from tests.harness.lua.raw import refusing_numbers
from tests.harness.tree import topic_scripts

CALLS: dict[str, Callable[[TopicCommands], Command[Any]]] = {
    "publish": lambda scripts: scripts.publish([("9-0", b"{}")], 3, exact=True),
    "publish_later": lambda scripts: scripts.publish_later([("b", "+5", b"{}")]),
    "due": lambda scripts: scripts.due(),
    "append": lambda scripts: scripts.append(["a"]),
    "cancel": lambda scripts: scripts.cancel("a"),
    "poll": lambda scripts: scripts.poll("g", "c", 10),
    "ack": lambda scripts: scripts.ack("g", ["1-0"], ANY_MARK),
    "reclaim": lambda scripts: scripts.reclaim("g", "d", 0, "", 10, 1),
    "dead_letter": lambda scripts: scripts.dead_letter("g", "c", "1-0", "unwanted", "error\n", ANY_MARK),
    "fail": lambda scripts: scripts.fail("g", "c", "1-0", "error\n", ANY_MARK),
    "redeliver": lambda scripts: scripts.redeliver("g", "c", ["1-0", "4-0"], True, ANY_MARK),
    "hand_back": lambda scripts: scripts.hand_back("g", "c", "d", [("1-0", True), ("2-0", False)], ANY_MARK),
    "renew": lambda scripts: scripts.renew("g", "c", ["1-0", "2-0"], 30_000, ANY_MARK),
    "unacked": lambda scripts: scripts.unacked("g", "c", 0, "", 10),
    "remove_consumer": lambda scripts: scripts.remove_consumer("g", "c", "d"),
    "drop_idle_consumers": lambda scripts: scripts.drop_idle_consumers("g", 0, "^idle$"),
    "clear_ghosts": lambda scripts: scripts.clear_ghosts("g", ""),
    "make_group": lambda scripts: scripts.make_group("h", "0"),
    "recreate_group": lambda scripts: scripts.recreate_group("h", "", 30_000),
    "destroy": lambda scripts: scripts.destroy("g"),
    "groups": lambda scripts: scripts.groups("g"),
    "range": lambda scripts: scripts.range("-", "+", 10),
    "lag": lambda scripts: scripts.lag("1-0"),
    "extent": lambda scripts: scripts.extent(),
    "requeue_dead": lambda scripts: scripts.requeue_dead("g", "d", ["1-0"]),
    "trim": lambda scripts: scripts.trim("MAXLEN", 1, exact=True),
    "trim_acked": lambda scripts: scripts.trim_acked(),
    "shrink": lambda scripts: scripts.shrink("t"),
}
READ_ONLY = {"due", "unacked", "groups", "range", "lag", "extent"}


def test_every_script_is_called_here():
    assert {path.stem for path in topic_scripts()} == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_script_uses_only_the_keys_it_declares(any_client: redis.Redis, name: str):
    keys = TopicKeys.of_topic("delayq", "t")
    given(any_client, keys)
    before = stored(any_client, keys)
    call = CALLS[name](TopicCommands(keys))
    count = int(call.args[0])
    any_client.acl_setuser("narrow", enabled=True, nopass=True, categories=["+@all"], keys=call.args[1 : 1 + count])  # type: ignore[arg-type]
    kwargs = any_client.connection_pool.connection_kwargs | {"username": "narrow", "password": "x"}
    with redis.Redis(
        connection_pool=type(any_client.connection_pool)(any_client.connection_pool.connection_class, **kwargs)
    ) as narrow:
        call.read(narrow.execute_command(*call.words(whole=True)))
        with pytest.raises(redis.exceptions.NoPermissionError):
            narrow.get("another")
        narrow.connection_pool.disconnect()
    assert (stored(any_client, keys) == before) is (name in READ_ONLY)


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("name", CALLS)
def test_script_gives_redis_large_numbers_as_text(any_client: redis.Redis, name: str):
    """Redis 7.2 writes 2600000000 as 2.6e+9."""
    keys = TopicKeys.of_topic("delayq", "t")
    given(any_client, keys)
    call = refusing_numbers(CALLS[name](TopicCommands(keys)))
    call.read(any_client.execute_command(*call.words(whole=True)))


def given(client: redis.Redis, keys: TopicKeys) -> None:
    """Store an acked record, four held by consumer c of group g, one of these deleted, a dead letter, and a due one."""
    client.xadd(keys.stream, {"e": "{}"}, id="0-1")
    for number in range(5):
        client.xadd(keys.stream, {"e": "{}"}, id=f"{number + 1}-0")
    client.xgroup_create(keys.stream, "g", "0")
    client.xreadgroup("g", "c", {keys.stream: ">"}, count=5)
    client.xack(keys.stream, "g", "0-1")
    client.xgroup_createconsumer(keys.stream, "g", "idle")
    client.xadd(keys.buried("g"), {"of": "2-0", "e": "{}"}, id="1-0")
    client.hset(keys.failures("g"), "1-0", "before\n")
    client.xdel(keys.stream, "4-0")
    client.hset(keys.sizes, "t", "1-0")
    client.zadd(keys.pending, {"a": 1})
    client.set(keys.record("a"), "{}")


def stored(client: redis.Redis, keys: TopicKeys) -> list[Any]:
    """Everything stored, except for times that change by themselves."""
    contents: list[Any] = [sorted(client.keys())]
    contents += [client.xrange(key) for key in (keys.stream, keys.buried("g"), keys.waking) if client.exists(key)]
    contents += [client.hgetall(keys.failures("g")), client.hgetall(keys.sizes), client.zrange(keys.pending, 0, -1)]
    groups = client.xinfo_groups(keys.stream)
    contents.append(groups)
    rows = client.xpending_range(keys.stream, "g", "-", "+", 10) if any(each["name"] == b"g" for each in groups) else []
    contents += [(row["message_id"], row["consumer"], row["times_delivered"]) for row in rows]
    return contents


def test_group_is_destroyed_once_it_holds_no_more_than_the_limit(any_client: redis.Redis):
    keys = TopicKeys.of_topic("delayq", "t")
    given(any_client, keys)
    call = TopicCommands(keys).destroy("g", limit=3)
    assert call.read(any_client.execute_command(*call.words(whole=True))) == -1
    assert [row["message_id"] for row in any_client.xpending_range(keys.stream, "g", "-", "+", 10)] == [b"4-0"]
    assert (any_client.exists(keys.failures("g")), any_client.xlen(keys.buried("g"))) == (0, 1)
    assert [call.read(any_client.execute_command(*call.words(whole=True))) for _ in range(2)] == [1, 0]
    assert (any_client.xinfo_groups(keys.stream), any_client.exists(keys.buried("g"))) == ([], 0)


STORES = {"publish", "publish_later", "make_group"}


@pytest.mark.parametrize("name", sorted(CALLS.keys() - STORES))
def test_script_that_stores_nothing_new_works_while_memory_is_full(any_client: redis.Redis, name: str):
    keys = TopicKeys.of_topic("delayq", "t")
    given(any_client, keys)
    call = CALLS[name](TopicCommands(keys))
    any_client.config_set("maxmemory", 1)
    try:
        call.read(any_client.execute_command(*call.words(whole=True)))
    finally:
        any_client.config_set("maxmemory", 0)


def test_group_is_moved_while_memory_is_full(any_client: redis.Redis):
    keys = TopicKeys.of_topic("delayq", "t")
    given(any_client, keys)
    call = TopicCommands(keys).make_group("g", "5-0", move=True)
    any_client.config_set("maxmemory", 1)
    try:
        call.read(any_client.execute_command(*call.words(whole=True)))
    finally:
        any_client.config_set("maxmemory", 0)
    assert any_client.xinfo_groups(keys.stream)[0]["last-delivered-id"] == b"5-0"
