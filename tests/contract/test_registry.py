"""The registry: names of queues and topics, so that lists need not wait for a scan of all keys."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import redis
from delayq.cli.connection import ServerOptions
from delayq.cli.top.command import TopWatch

import delayq
from delayq import Consumer, Outgoing, Queue, Topic, aio, queue_names
from delayq.aio import queue_names as queue_names_async
from delayq.metrics import DiscoveredQueues
from delayq.operations import manage, registry
from delayq.web.servers import DashboardServer
from tests.harness.acl.telling import LINES, ON_OCCASION, as_user
from tests.harness.proxy import Cut, Proxy
from tests.harness.servers import RedisServer
from tests.harness.topologies import Cluster

MANY = 30_000  # keys: thirty steps of a scan
QUEUES, TOPICS = "delayq:queues", "delayq:topics"


def first_of_dashboard(url: str) -> list[str]:
    async def look() -> list[str]:
        server = DashboardServer("main", url, "delayq")
        names = await server.queue_names()
        await server.close()
        return names

    return asyncio.run(look())


def first_of_exporter(url: str) -> list[str]:
    with ServerOptions(url, "delayq") as server, DiscoveredQueues(server) as found:
        return [each.name for each in found()]


def first_of_top(url: str) -> list[str]:
    with ServerOptions(url, "delayq") as server:
        watch = TopWatch(server, [], 300, 15)
        watch.begin()
        return list(watch._queues)


def first_of_completion(url: str) -> list[str]:
    with ServerOptions(url, "delayq") as server:
        return list(itertools.islice(server.each_name("queue"), 2))


FIRST = {
    "dashboard": first_of_dashboard,
    "exporter": first_of_exporter,
    "top": first_of_top,
    "completion": first_of_completion,
}


def all_of_aio(url: str) -> list[str]:
    return asyncio.run(aio.queues(url=url))


def all_of_cli(url: str) -> list[str]:
    with ServerOptions(url, "delayq") as server:
        names: list[str] = server.names()["queue"]
        return names


ALL = {"queues": lambda url: delayq.queues(url=url), "aio.queues": all_of_aio, "cli": all_of_cli}

each_all = pytest.mark.parametrize("list_all", ALL.values(), ids=ALL)


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_first_answer_does_not_wait_for_the_scan(
    first: Callable[[str], list[str]], redis_server: RedisServer, redis_client: redis.Redis
):
    for name in ("emails", "orders"):
        Queue(name, redis=redis_client).send("hello")
    redis_client.mset({f"other:{number}": "" for number in range(MANY)})
    with Proxy(redis_server.socket, refuse_scan) as proxy:
        assert first(proxy.url) == ["emails", "orders"]
        assert proxy.passed.count("SSCAN") == 2


def refuse_scan(command: str) -> Cut | None:
    return Cut("before") if command == "SCAN" else None


def test_new_queue_or_topic_is_registered_by_one_call(redis_server: RedisServer, redis_client: redis.Redis):
    with Proxy(redis_server.socket) as proxy:
        for _ in range(2):
            with Queue("emails", url=proxy.url) as queue, Topic("orders", url=proxy.url) as topic:
                queue.send("hello")
                queue.send_many([Outgoing("hello"), Outgoing("hello")])
                queue.configure(rate="9/s")
                Consumer(queue, lambda _: None).run(burst=True)
                topic.publish("hello")
                topic.group("billing").poll("me")
        assert proxy.passed.count("SADD") == 2
    assert (redis_client.smembers(QUEUES), redis_client.smembers(TOPICS)) == ({b"emails"}, {b"orders"})


def test_every_first_use_registers_a_queue(redis_client: redis.Redis):
    uses: dict[str, Callable[[Queue], object]] = {
        "sent": lambda queue: queue.send("hello"),
        "paused": lambda queue: queue.pause(),
        "configured": lambda queue: queue.configure(rate="9/s"),
        "consumed": lambda queue: Consumer(queue, lambda _: None).run(burst=True),
        "received": lambda queue: queue.receive(),
        "scheduled": lambda queue: queue.schedules.add("daily", "0 0 * * *", "hello"),
    }
    for name, use in uses.items():
        with Queue(name, redis=redis_client) as queue:
            use(queue)
    assert redis_client.smembers(QUEUES) == {name.encode() for name in delayq.queues(redis=redis_client)}


def test_queue_whose_data_the_server_lost_is_registered_again(redis_client: redis.Redis):
    with Queue("emails", redis=redis_client) as queue, Topic("orders", redis=redis_client) as topic:
        queue.send("hello")
        topic.publish("hello")
        redis_client.flushall()
        queue._context.look_again()
        topic._context.open_until = 0
        queue.send("hello")
        topic.publish("hello")
    assert (redis_client.smembers(QUEUES), redis_client.smembers(TOPICS)) == ({b"emails"}, {b"orders"})


@each_all
@pytest.mark.parametrize("rights", ["as documented", "none to the registry"])
def test_queue_works_and_is_listed_where_the_registry_is_refused(
    list_all: Callable[[str], list[str]], rights: str, redis_server: RedisServer, redis_client: redis.Redis
):
    own = LINES["producer"] if rights == "as documented" else ["reset", "on", ">secret", "~delayq:{*}:*", "+@all"]
    redis_client.execute_command("ACL", "SETUSER", "producer", *own)
    with as_user(redis_server, "producer") as queue:
        assert queue.send("hello").created
    assert redis_client.exists(QUEUES, TOPICS) == 0
    if rights != "as documented":
        assert list_all(f"unix://producer:secret@{redis_server.socket}") == ["emails"]
    assert list_all(redis_server.url) == ["emails"]
    assert redis_client.smembers(QUEUES) == {b"emails"}  # whoever may list keys has added it
    redis_client.acl_deluser("producer")


def test_documented_rights_to_the_registry_are_sufficient(redis_server: RedisServer, redis_client: redis.Redis):
    def grant(user: str, *uses: str) -> None:
        added = " ".join(rights for use, rights in ON_OCCASION.items() if any(each in use for each in uses)).split()
        assert added
        redis_client.execute_command("ACL", "SETUSER", user, *LINES[user], *added)

    grant("scheduler", "enters new queues", "all queues")
    grant("publisher", "enters new topics")
    grant("observer", "who lists queues and topics", "all queues")
    with as_user(redis_server, "scheduler", "emails") as queue:
        queue.schedules.add("daily", "0 0 * * *", "hello")
    with Topic("orders", url=f"unix://publisher:secret@{redis_server.socket}") as topic:
        topic.publish("hello")
    assert (redis_client.smembers(QUEUES), redis_client.smembers(TOPICS)) == ({b"emails"}, {b"orders"})
    redis_client.execute_command("ACL", "SETUSER", "observer", "-scan")
    assert first_of_dashboard(f"unix://observer:secret@{redis_server.socket}") == ["emails"]
    redis_client.sadd(QUEUES, "gone")
    redis_client.delete(TOPICS)
    redis_client.execute_command("ACL", "SETUSER", "observer", "+scan")
    assert all_of_cli(f"unix://observer:secret@{redis_server.socket}") == ["emails"]  # though it may not change it
    grant("observer", "who lists queues and topics", "the same, who also adds", "all queues")
    assert all_of_cli(f"unix://observer:secret@{redis_server.socket}") == ["emails"]
    assert (redis_client.smembers(QUEUES), redis_client.smembers(TOPICS)) == ({b"emails"}, {b"orders"})
    Queue("emails", redis=redis_client).schedules.remove("daily")
    grant("administrator", "delayq queue remove")
    with as_user(redis_server, "administrator") as queue:
        assert queue.execute(manage.remove) == 0
    assert redis_client.exists(QUEUES) == 0
    for user in ("scheduler", "publisher", "observer", "administrator"):
        redis_client.acl_deluser(user)


@each_all
def test_registry_that_another_program_overwrote_does_no_harm(
    list_all: Callable[[str], list[str]], redis_server: RedisServer, redis_client: redis.Redis
):
    redis_client.mset({QUEUES: "mine", TOPICS: "mine"})
    Queue("emails", redis=redis_client).send("hello")
    Topic("orders", redis=redis_client).publish("hello")
    assert list_all(redis_server.url) == first_of_dashboard(redis_server.url) == ["emails"]
    assert redis_client.mget(QUEUES, TOPICS) == [b"mine", b"mine"]


@each_all
def test_list_is_complete_and_completes_the_registry(
    list_all: Callable[[str], list[str]], redis_server: RedisServer, redis_client: redis.Redis
):
    for name in ("emails", "orders", "queues", "topics"):
        Queue(name, redis=redis_client).send("hello")
        Topic(name, redis=redis_client).publish("hello")
    redis_client.srem(QUEUES, "orders")
    redis_client.delete(TOPICS, *redis_client.keys("delayq:{emails}:*"))
    redis_client.sadd(QUEUES, "never", "{bad}")
    assert list_all(redis_server.url) == ["orders", "queues", "topics"]
    assert redis_client.smembers(QUEUES) == {b"orders", b"queues", b"topics"}
    assert redis_client.smembers(TOPICS) == {b"orders", b"queues", b"topics"}


@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_deleted_queue_is_not_in_the_first_answer(
    first: Callable[[str], list[str]], redis_server: RedisServer, redis_client: redis.Redis
):
    for name in ("emails", "gone", "orders"):
        Queue(name, redis=redis_client).send("hello")
    redis_client.delete("delayq:{gone}:meta")
    with Proxy(redis_server.socket, refuse_scan) as proxy:
        assert first(proxy.url) == ["emails", "orders"]


def test_queue_recreated_during_a_scan_stays_in_the_registry(redis_server: RedisServer, redis_client: redis.Redis):
    redis_client.sadd(QUEUES, "again", "gone", "{bad}")
    redis_client.sadd(TOPICS, "again", "gone")
    with ServerOptions(redis_server.url, "delayq") as server:
        for number, _ in enumerate(server.search.steps()):
            if number == 1:  # the scan has seen the only page of keys
                Queue("again", redis=redis_client).send("hello")
                Topic("again", redis=redis_client).publish("hello")
    assert (redis_client.smembers(QUEUES), redis_client.smembers(TOPICS)) == ({b"again"}, {b"again"})


def test_registry_is_the_last_thing_that_a_new_queue_or_topic_writes(
    redis_server: RedisServer, redis_client: redis.Redis
):
    with (
        Proxy(redis_server.socket) as proxy,
        Queue("emails", url=proxy.url, shards=2) as queue,
        Topic("orders", url=proxy.url, shards=2) as topic,
    ):
        subjects: tuple[Any, ...] = (queue, topic)
        for number, each in enumerate(subjects, 1):
            each.execute(lambda context: context.opened(create=True))
            assert (proxy.passed.count("SADD"), proxy.passed[-1]) == (number, "SADD")
        redis_client.flushall()
        for each in subjects:
            each._context.is_away = {QUEUES, TOPICS}.__contains__
            each._context.is_recorded = False
            each.execute(lambda context: context.opened(create=True))
    assert redis_client.exists(QUEUES, TOPICS) == 0  # nobody waits for a node that is away


def test_removed_queue_is_removed_from_the_registry(redis_client: redis.Redis):
    with Queue("emails", redis=redis_client) as queue, Queue("orders", redis=redis_client) as other:
        for each in (queue, other):
            each.pause()
        assert queue.execute(manage.remove) == 0
    assert redis_client.smembers(QUEUES) == {b"orders"}


def test_queue_recreated_while_it_is_removed_stays_in_the_registry(redis_client: redis.Redis):
    with Queue("emails", redis=redis_client) as queue, Queue("emails", redis=redis_client) as other:
        queue.pause()
        removed = queue._context.shards[0].keys.removed
        steps: Any = manage.remove(queue._context)
        replies: Any = None
        with contextlib.suppress(StopIteration):
            while True:
                calls = steps.send(replies)
                if redis_client.exists(removed) and not redis_client.exists(queue._context.shards[0].keys.meta):
                    other.send("hello")
                replies = queue._executor.run(calls)
        assert redis_client.smembers(QUEUES) == {b"emails"}


@pytest.mark.parametrize("change", ["add", "remove_gone"])
def test_no_call_changes_more_names_than_a_page(redis_client: redis.Redis, change: str):
    names = [f"q{number}" for number in range(2 * registry.PAGE + 1)]
    with Queue("emails", redis=redis_client) as queue:
        queue.execute(lambda context: registry.add(context.prefix, "queue", names))
        redis_client.slowlog_reset()
        redis_client.config_set("slowlog-log-slower-than", 0)
        redis_client.config_set("slowlog-max-len", 100_000)
        queue.execute(lambda context: getattr(registry, change)(context.prefix, "queue", names))
        redis_client.config_set("slowlog-log-slower-than", 10_000)  # the server's defaults
    changed = [each for each in redis_client.slowlog_get(100_000) if each["command"].split()[0] in {b"SADD", b"SREM"}]
    redis_client.config_set("slowlog-max-len", 128)
    assert len(changed) == 3
    assert redis_client.scard(QUEUES) == (len(names) if change == "add" else 0)


def test_user_who_may_not_list_keys_sees_the_registry_in_the_dashboard(
    redis_server: RedisServer, redis_client: redis.Redis
):
    Queue("emails", redis=redis_client).send("hello")
    rights = [*LINES["observer"], "-scan", f"~{QUEUES}", f"~{TOPICS}"]
    redis_client.execute_command("ACL", "SETUSER", "observer", *rights)
    assert first_of_dashboard(f"unix://observer:secret@{redis_server.socket}") == ["emails"]
    redis_client.acl_deluser("observer")


@pytest.mark.full
def test_registry_of_a_cluster_is_one_key_and_lists_cover_all_masters(start_server):
    cluster = Cluster(start_server, masters=3)
    names = [f"queue-{number}" for number in range(9)]
    for name in names:
        with Queue(name, url=cluster.url) as queue:
            queue.send("hello")
    with redis.RedisCluster(host="127.0.0.1", port=cluster.masters[0].port) as client:
        assert client.scard(QUEUES) == len(names)
        for list_all in ALL.values():
            client.srem(QUEUES, names[0], names[1])
            assert list_all(cluster.url) == names
            assert client.scard(QUEUES) == len(names)
        for first in (first_of_dashboard, first_of_exporter):
            assert first(cluster.url) == names


@pytest.mark.parametrize("name", ["emails", "absent", "no {name}"])
def test_server_knows_whether_a_queue_is_recorded(redis_server: RedisServer, name: str):
    async def ask() -> bool:
        server = queue_names_async.Server(redis_server.url, None, "delayq", "a test")
        try:
            return await server.has("queue", name)
        finally:
            await server.close()

    with Queue("emails", url=redis_server.url) as queue:
        queue.send(1)
    server = queue_names.Server(redis_server.url, None, "delayq", "a test")
    assert [server.has("queue", name), asyncio.run(ask())] == [name == "emails"] * 2
    server.close()
