"""What Prometheus gets about queues and topics, and what happens when something cannot be read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import redis
from delayq.cli.connection import ServerOptions
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter
from redis.exceptions import RedisClusterException

from delayq import Consumer, NewRecord, Outgoing, Queue, Topic
from delayq.errors import InvalidInput, ServerUnreachable
from delayq.metrics import DiscoveredQueues, Metrics
from delayq.metrics.families import BUCKETS_MS, COUNTERS, LIMITS, histogram
from delayq.metrics.scrape import ScrapePass
from delayq.model.configuration import Usage
from delayq.model.placement import STATES
from delayq.operations.topics import dead_letters, group_admin
from delayq.types import QueueStats
from tests.harness.scrapes import OPENMETRICS, Found, Scrape
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually


@contextmanager
def serving(redis_server: RedisServer) -> Iterator[ServerOptions]:
    """Yield a server to search for queues. A search runs in the background of a scrape; wait for it before the end."""
    with ServerOptions(redis_server.url, "delayq") as server:
        yield server
        assert eventually(no_search_is_running)


def no_search_is_running() -> bool:
    return "delayq-metrics-search" not in {thread.name for thread in threading.enumerate()}


class Still:
    """A queue on a server that does not answer until it is told to."""

    def __init__(self, name: str, then: Callable[[], QueueStats]) -> None:
        self.name = name
        self.asked = 0
        self.answers = threading.Event()
        self._then = then

    def stats(self) -> QueueStats:
        self.asked += 1
        self.answers.wait()
        return self._then()

    def consumers(self) -> list[Any]:
        return []

    def usage(self) -> Usage:
        return Usage()

    def sample(self) -> bool:
        return False


@pytest.fixture
def still() -> Any:
    queue = Still("still", lambda: QueueStats(queue="still", pending=7))
    yield queue
    queue.answers.set()


def scraped(metrics: Metrics) -> Scrape:
    return Scrape(metrics.exposition().body.decode())


def test_counters_and_states_have_the_values_of_stats(queue: Queue):
    queue.send_many([Outgoing("x", delay=60)] * 3 + [Outgoing("late")] * 4)
    queue.cancel(queue.peek("pending")[-1].id)
    first, second, third, _ = queue.receive(4)
    first.ack()
    second.nack(delay=60)
    third.reject("no")
    scrape, stats = scraped(Metrics([queue])), queue.stats()
    assert (stats.acked, stats.nacked, stats.died, stats.cancelled, stats.unack) == (1, 1, 1, 1, 1)
    for name in COUNTERS:
        assert scrape.value(f"delayq_messages_{name}_total", queue="emails") == getattr(stats, name), name
    for state in STATES:
        assert scrape.value("delayq_messages", queue="emails", state=state) == getattr(stats, state), state
    assert scrape.value("delayq_up", queue="emails") == 1


def test_only_values_that_never_fall_are_counters():
    assert {*COUNTERS, "adjusted"} == set(QueueStats.COUNTERS)


def test_gauges_report_consumers_age_pause_and_balance(queue: Queue, redis_client: redis.Redis):
    queue.send("x")
    metrics = Metrics([queue])
    before = scraped(metrics)
    assert before.value("delayq_oldest_due_age_seconds") >= 0
    assert (before.value("delayq_consumers"), before.value("delayq_paused")) == (0, 0)
    redis_client.hincrby(queue._context.shards[0].keys.stats, "sent", 2)
    queue.pause()
    consumer = Consumer(queue, lambda _: None)
    consumer.start()
    assert eventually(lambda: scraped(metrics).value("delayq_consumers") == 1)
    consumer.stop()
    after = scraped(metrics)
    assert (after.value("delayq_paused"), after.value("delayq_messages_unaccounted")) == (1, 2)
    assert after.value("delayq_pause_ends_timestamp_seconds") == 0
    queue.pause(3600)
    until = queue.stats().paused_until
    assert until is not None
    assert scraped(metrics).value("delayq_pause_ends_timestamp_seconds") == until.timestamp()
    assert after.value("delayq_oldest_due_age_seconds") > before.value("delayq_oldest_due_age_seconds")
    assert "delayq_messages_adjusted" in after.names(queue="emails")


def test_next_due_time_is_of_the_earliest_scheduled_message(queue: Queue):
    metrics = Metrics([queue])
    queue.receive()  # this creates the queue
    assert scraped(metrics).value("delayq_next_due_timestamp_seconds") == 0
    sent = [queue.send("later", delay=delay) for delay in (7200, 3600)]
    assert scraped(metrics).value("delayq_next_due_timestamp_seconds") == sent[1].due_at.timestamp()


def test_limits_are_reported_with_how_much_of_them_is_in_use(queue: Queue):
    queue.send_many([Outgoing("x")] * 5)
    assert not {f"delayq_{name}" for name in LIMITS} & scraped(Metrics([queue])).names()
    queue.configure(rate="10/h", concurrency=3, max_length=50)
    assert len(queue.receive(5)) == 3
    scrape = scraped(Metrics([queue]))
    names = ("concurrency_limit", "concurrency_used", "rate_limit", "rate_used", "rate_period_seconds")
    assert [scrape.value(f"delayq_{name}", queue="emails") for name in names] == [3, 3, 10, 3, 3600]
    assert [scrape.value(f"delayq_length_{name}", queue="emails") for name in ("limit", "used")] == [50, 5]
    assert "delayq_key_waiting" not in scrape.names()


def test_use_of_a_limit_per_key_is_added_up(redis_server: RedisServer):
    with Queue(
        "keyed", url=redis_server.url, concurrency_per_key=1, concurrency_key=lambda each: each.payload
    ) as queue:
        queue.send_many([Outgoing(key) for key in ("a", "a", "b", "b", "b")])
        while queue.receive(5):
            pass
        scrape = scraped(Metrics([queue]))
    names = ("key_concurrency_limit", "key_concurrency_used", "key_waiting")
    assert [scrape.value(f"delayq_{name}", queue="keyed") for name in names] == [1, 2, 3]


def test_schedule_that_nobody_runs_is_late_and_its_missed_slots_are_counted(redis_client: redis.Redis):
    now = 1.7e12
    with Queue("cron", redis=redis_client, clock=lambda: now) as queue:
        queue.schedules.add("often", "every 1m")
        metrics, names = Metrics([queue]), ("delayq_schedules_late", "delayq_schedule_lateness_seconds")
        assert [scraped(metrics).value(name) for name in names] == [0, 0]
        upcoming = queue.schedules.get("often")
        assert upcoming is not None
        assert upcoming.next_at is not None
        now = upcoming.next_at.timestamp() * 1000 + 210_000
        assert [scraped(metrics).value(name) for name in names] == [1, 210]
        queue.receive(1)
        scrape = scraped(metrics)
    assert [scrape.value(name) for name in (*names, "delayq_schedule_slots_missed_total")] == [0, 0, 3]


def test_lateness_and_handler_time_are_histograms_of_all_deliveries(queue: Queue):
    queue.send_many([Outgoing("x")] * 5)
    Consumer(queue, lambda _: None).drain()
    scrape, stats = scraped(Metrics([queue])), queue.stats()
    for name, counts in (("lateness", stats.lateness), ("handler", stats.handler_time)):
        assert scrape.value(f"delayq_{name}_seconds_count") == sum(counts.values()) == 5
        assert scrape.value(f"delayq_{name}_seconds_bucket", le="+Inf") == 5
        assert scrape.families[f"delayq_{name}_seconds"].type == "histogram"


def test_runs_of_tasks_are_counted_by_name_and_outcome(queue: Queue):
    hostile = '"un\\safe", } 1'

    @queue.task(name=hostile, max_retries=0)
    def fails() -> None:
        raise ValueError

    @queue.task
    def works() -> None: ...

    works.send()
    works.send()
    fails.send()
    assert "delayq_task_runs_total{" not in Metrics([queue]).exposition().body.decode()
    Consumer(queue).drain()
    scrape, name = scraped(Metrics([queue])), "delayq_task_runs_total"
    assert [scrape.value(name, task="works", outcome=each) for each in ("acked", "failed", "dead")] == [2, 0, 0]
    assert [scrape.value(name, task=hostile, outcome=each) for each in ("acked", "failed", "dead")] == [0, 0, 1]


@given(st.dictionaries(st.sampled_from([2**power for power in range(31)]), st.integers(1, 10**9)))
def test_buckets_are_cumulative_and_the_last_has_all_others(counts: dict[int, int]):
    buckets, total = histogram(counts)
    assert [float(end) for end, _ in buckets] == [*(end / 1000 for end in BUCKETS_MS), float("inf")]
    for end, count in buckets:
        assert count == sum(number for ms, number in counts.items() if ms / 1000 <= float(end))
    least = sum((0 if ms == 1 else ms / 2) * count for ms, count in counts.items()) / 1000
    most = sum(ms * count for ms, count in counts.items()) / 1000
    assert least <= total <= most


def test_page_has_the_requested_format(queue: Queue):
    queue.send("x")
    page = Metrics([queue]).exposition(OPENMETRICS)
    assert page.content_type.startswith("application/openmetrics-text")
    assert Scrape(page.body.decode(), is_openmetrics=True).value("delayq_messages_sent_total") == 1
    assert Metrics([queue]).exposition().content_type.startswith("text/plain")


def test_metrics_can_be_registered_beside_others_without_a_read(still: Still):
    registry = CollectorRegistry(auto_describe=True)
    registry.register(Metrics([still], seconds=0.01))
    Counter("own", "Of the program.", registry=registry).inc()
    assert still.asked == 0
    page = Metrics().exposition(beside=registry)
    assert Scrape(page.body.decode()).value("own_total") == 1


def test_silent_server_is_down_and_does_not_delay_others(still: Still, queue: Queue):
    queue.send("x")
    metrics = Metrics([still, queue], seconds=0.2)

    def up(name: str) -> float:
        return scraped(metrics).value("delayq_up", queue=name)

    assert eventually(lambda: up("emails") == 1)
    assert up("still") == 0
    assert scraped(metrics).names(queue="still") == {"delayq_up"}
    assert eventually(lambda: still.asked == 1)
    scraped(metrics)
    assert still.asked == 1  # the next scrape waits for the same answer
    still.answers.set()
    pages: list[Scrape] = []

    def is_up() -> bool:
        pages.append(scraped(metrics))
        return pages[-1].value("delayq_up", queue="still") == 1

    assert eventually(is_up)
    assert pages[-1].value("delayq_messages", queue="still", state="pending") == 7


def test_scrapes_at_the_same_time_share_a_read(still: Still, monkeypatch: pytest.MonkeyPatch):
    metrics = Metrics([still], seconds=60)
    pages: list[Scrape] = []
    begun, wait = list[ScrapePass](), ScrapePass.wait

    def noted(sweep: ScrapePass, seconds: float) -> Any:
        begun.append(sweep)
        return wait(sweep, seconds)

    monkeypatch.setattr(ScrapePass, "wait", noted)
    scrapers = [threading.Thread(target=lambda: pages.append(scraped(metrics))) for _ in range(5)]
    for each in scrapers:
        each.start()
    assert eventually(lambda: len(begun) == 5)
    still.answers.set()
    for each in scrapers:
        each.join()
    assert [page.value("delayq_up", queue="still") for page in pages] == [1] * 5
    assert still.asked == 1


def test_unreadable_queue_is_down_and_the_others_are_reported(queue: Queue, redis_client: redis.Redis):
    queue.send("x")
    with Queue("newer", redis=redis_client) as newer:
        newer.send("x")
        redis_client.hset(newer._context.shards[0].keys.meta, "format", 99)
    with Queue("newer", redis=redis_client, shards=None) as newer:
        scrape = scraped(Metrics([newer, queue]))
    assert (scrape.value("delayq_up", queue="newer"), scrape.value("delayq_up", queue="emails")) == (0, 1)


def test_server_that_comes_back_is_up_again(own_server: RedisServer):
    with Queue("emails", url=own_server.url) as queue:
        queue.send("x")
        metrics = Metrics([queue], seconds=20)
        assert metrics.judged()[1] == []
        own_server.kill()
        assert metrics.judged()[1] == ["emails"]
        own_server.start()
        assert metrics.judged()[1] == []
        assert scraped(metrics).value("delayq_messages_sent_total", queue="emails") == 1


def test_groups_of_a_topic_are_reported(redis_client: redis.Redis):
    with Topic("orders", redis=redis_client) as topic:
        group = topic.group("billing", start="0")
        for number in range(3):
            topic.publish(number)
        topic.execute(dead_letters.dead_letter, "billing", "me", group.poll("me", 2)[0], "tried", None)
        scrape = scraped(Metrics(topics=[topic]))
    labels = {"topic": "orders", "group": "billing"}
    found = [scrape.value(f"delayq_topic_{name}", **labels) for name in ("lag", "unacked", "dead", "consumers")]
    assert found == [1, 1, 1, 1]
    assert scrape.value("delayq_topic_up", topic="orders") == 1


def test_group_reports_who_was_seen_and_how_long_its_first_unread_record_waits(redis_client: redis.Redis):
    with Topic("orders", redis=redis_client) as topic, Topic("own", redis=redis_client) as own:
        own.group("billing")
        own.publish("x", id="1-0")  # such an id is not a time
        group = topic.group("billing", start="0")
        topic.publish("x", id=f"{int(redis_client.time()[0]) * 1000 - 3_600_000}-0")
        topic.publish("x")
        group.poll("one", 1)
        group.poll("another", 1)
        group.set_position("0")
        scrape = scraped(Metrics(topics=[topic, own]))
        with patch.object(group_admin, "STALLED_SECONDS", -1.0):
            later = scraped(Metrics(topics=[topic]))
    labels = {"topic": "orders", "group": "billing"}
    assert 3600 <= scrape.value("delayq_topic_oldest_age_seconds", **labels) < 3700
    assert scrape.value("delayq_topic_oldest_age_seconds", topic="own", group="billing") == 0
    assert [each.value("delayq_topic_consumers_seen", **labels) for each in (scrape, later)] == [2, 0]
    assert later.value("delayq_topic_consumers", **labels) == 2


def test_lag_unknown_to_the_server_is_counted_in_one_call_per_scrape(redis_client: redis.Redis):
    with Topic("orders", redis=redis_client) as topic:
        behind, _ = topic.group("behind"), topic.group("up to date")
        behind.set_position(topic.publish_many([NewRecord(number) for number in range(1_202)])[1].id)
        topic.group("up to date").set_position("$")
        scrape = scraped(Metrics(topics=[topic]))
        assert behind.lag() == 1200
    found = [
        (scrape.value("delayq_topic_lag", **labels), scrape.value("delayq_topic_lag_at_least", **labels))
        for labels in ({"topic": "orders", "group": group} for group in ("behind", "up to date"))
    ]
    assert found == [(1000, 1), (0, 0)]


def test_two_queues_with_one_name_are_refused(queue: Queue):
    with pytest.raises(InvalidInput, match="two queues for metrics are called 'emails'"):
        Metrics([queue, queue])
    with pytest.raises(InvalidInput, match="two servers"):
        Metrics(
            servers=[DiscoveredQueues(ServerOptions(None, "delayq")), DiscoveredQueues(ServerOptions(None, "delayq"))]
        )


# Found by name


def test_queues_are_found_by_name_and_new_ones_a_minute_later(redis_server: RedisServer, queue: Queue):
    now = [0.0]
    queue.send("x")
    with serving(redis_server) as server, Queue("more", url=redis_server.url) as more:
        metrics = Metrics(servers=[DiscoveredQueues(server, clock=lambda: now[0])])
        assert scraped(metrics).names(queue="emails")
        more.send("x")
        assert not scraped(metrics).names(queue="more")
        now[0] = 61
        assert eventually(lambda: bool(scraped(metrics).names(queue="more")))
        assert scraped(metrics).value("delayq_server_up") == 1
        assert eventually(no_search_is_running)
        assert len(more.samples()) == 1  # the search also takes the minute's sample


def test_queues_that_a_long_search_finds_are_read_before_it_ends():
    now, is_seen, searches = [0.0], threading.Event(), [0]

    class Long(Found):
        def steps(self) -> Iterator[None]:
            searches[0] += 1
            yield
            if searches[0] == 2:
                self.names["queue"].append("new")
                yield
                now[0] += 2
                yield
                assert is_seen.wait(120)

    server: Any = SimpleNamespace(
        search=Long(["a"]), queue=lambda name: SimpleNamespace(name=name, sample=lambda: False), topic=None
    )
    with DiscoveredQueues(server, topics=[], clock=lambda: now[0]) as found:
        assert len(found()) == 1
        assert eventually(no_search_is_running)
        now[0] = 61
        assert eventually(lambda: len(found()) == 2, seconds=60)
        is_seen.set()


def test_server_is_up_while_its_first_search_is_still_running():
    may_end = threading.Event()

    class Long(Found):
        def steps(self) -> Iterator[None]:
            while not may_end.wait(0.01):
                yield

    server: Any = SimpleNamespace(search=Long([]), queue=None, topic=None)
    with DiscoveredQueues(server) as found:
        metrics = Metrics(servers=[found], seconds=0.2)
        assert eventually(lambda: scraped(metrics).value("delayq_server_up") == 1)
        assert metrics.silent(0.2) == []
        may_end.set()


def test_server_that_does_not_answer_its_first_search_is_down():
    may_end = threading.Event()

    class Hanging(Found):
        def steps(self) -> Iterator[None]:
            yield
            may_end.wait()

    server: Any = SimpleNamespace(search=Hanging([]), queue=None, topic=None)
    now = [0.0]
    with DiscoveredQueues(server, clock=lambda: now[0]) as found:
        metrics = Metrics(servers=[found], seconds=0.2)
        assert eventually(lambda: scraped(metrics).value("delayq_server_up") == 1)
        now[0] = 6
        assert scraped(metrics).value("delayq_server_up") == 0
        may_end.set()


def test_topics_are_found_by_name_and_a_missing_one_is_down(redis_server: RedisServer, redis_client: redis.Redis):
    with Topic("orders", redis=redis_client) as topic:
        topic.group("billing")
        topic.publish("x")
    with serving(redis_server) as server:
        metrics = Metrics(servers=[DiscoveredQueues(server, topics=["nosuch", "orders"])])
        scrape = scraped(metrics)
        assert metrics.silent(30) == []
        assert metrics.judged()[1] == ["nosuch"]
    assert scrape.value("delayq_topic_lag", topic="orders", group="billing") == 1
    assert [scrape.value("delayq_topic_up", topic=name) for name in ("orders", "nosuch")] == [1, 0]


def test_empty_server_is_up_even_if_a_topic_is_missing(redis_server: RedisServer):
    with serving(redis_server) as server:
        metrics = Metrics(servers=[DiscoveredQueues(server, topics=["orders"])])
        scrape = scraped(metrics)
        assert metrics.silent(30) == []
    assert scrape.value("delayq_server_up") == 1
    assert scrape.value("delayq_topic_up", topic="orders") == 0


class Sampling:
    """A server with two queues; the sample of the first one takes until it may end."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.sampled: list[str] = []

    @property
    def search(self) -> Found:
        return Found(["a", "b"])

    def queue(self, name: str) -> Any:
        return SimpleNamespace(name=name, sample=lambda: self._sample(name))

    def topic(self, name: str) -> Any:
        raise AssertionError(name)

    def _sample(self, name: str) -> bool:
        self.begun.set()
        self.may_end.wait()
        self.sampled.append(name)
        return True


def test_closing_waits_for_the_running_sample_and_takes_no_other():
    server = Sampling()
    with DiscoveredQueues(server) as found:

        def end_once_closing() -> None:
            assert eventually(lambda: found._is_closed)
            server.may_end.set()

        assert len(found()) == 2
        assert server.begun.wait(120)
        threading.Thread(target=end_once_closing).start()
    assert server.sampled == ["a"]
    assert no_search_is_running()


def test_queues_over_the_limit_are_left_out_and_counted(redis_server: RedisServer, redis_client: redis.Redis):
    for name in ("a", "b", "c"):
        with Queue(name, redis=redis_client) as each:
            each.send("x")
    with serving(redis_server) as server:
        scrape = scraped(Metrics(servers=[DiscoveredQueues(server, most=2)]))
    assert (len(scrape.names(queue="a")), scrape.names(queue="c")) == (len(scrape.names(queue="b")), set())
    assert scrape.value("delayq_queues_left_out") == 1


class Away:
    """A server that cannot be asked for its queues."""

    @property
    def search(self) -> Found:
        raise ServerUnreachable("away")

    def queue(self, name: str) -> Any:
        raise AssertionError(name)

    def topic(self, name: str) -> Any:
        raise AssertionError(name)


def test_servers_are_reported_separately_and_an_unavailable_one_is_down(redis_server: RedisServer, queue: Queue):
    queue.send("x")
    with serving(redis_server) as server:
        metrics = Metrics(servers=[DiscoveredQueues(server, "here:6379/0"), DiscoveredQueues(Away(), "there:6379/0")])
        scrape = scraped(metrics)
    assert scrape.value("delayq_messages_sent_total", server="here:6379/0", queue="emails") == 1
    assert scrape.value("delayq_server_up", server="here:6379/0") == 1
    assert scrape.value("delayq_server_up", server="there:6379/0") == 0


def test_cluster_without_a_node_is_down(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch):
    def scan(*_: Any, **__: Any) -> Any:
        raise RedisClusterException("Redis Cluster cannot be connected")

    with serving(redis_server) as server:
        monkeypatch.setattr(server.client(), "scan", scan)
        assert scraped(Metrics(servers=[DiscoveredQueues(server)])).value("delayq_server_up") == 0


def test_queue_with_overwritten_counts_does_not_stop_others_from_being_read(
    redis_client: redis.Redis, redis_server: RedisServer
):
    for name in ("a", "b"):
        with Queue(name, redis=redis_client) as queue:
            queue.send("hello")
    redis_client.set("delayq:{a}:stats", "many")
    with serving(redis_server) as server:
        metrics = scraped(Metrics(servers=[DiscoveredQueues(server)]))
    assert [metrics.value("delayq_up", queue=name) for name in ("a", "b")] == [0, 1]


class Slow:
    """A server with two queues, the second of which takes long."""

    def __init__(self, quick: Queue, still: Still) -> None:
        self._queues: dict[str, Any] = {"a": quick, "b": still}

    @property
    def search(self) -> Found:
        return Found(list(self._queues))

    def queue(self, name: str) -> Any:
        return self._queues[name]

    def topic(self, name: str) -> Any:
        raise AssertionError(name)


def test_server_that_takes_longer_than_a_scrape_for_all_its_queues_is_up(queue: Queue, still: Still):
    queue.send("x")
    metrics = Metrics(servers=[DiscoveredQueues(Slow(queue, still))], seconds=0.5)
    assert eventually(lambda: metrics.silent(0.5) == [])
    pages: list[Scrape] = []

    def is_up() -> bool:
        pages.append(scraped(metrics))
        return pages[-1].value("delayq_up", queue="emails") == 1

    assert eventually(is_up)
    assert pages[-1].value("delayq_server_up") == 1
    assert pages[-1].value("delayq_up", queue="still") == 0


def test_server_is_silent_if_none_of_its_queues_is_read(still: Still):
    assert Metrics(servers=[DiscoveredQueues(Slow(still, still), "west")]).silent(0.2) == ["west"]  # type: ignore[arg-type]


def test_queues_of_a_scrape_share_round_trips(own_server: RedisServer):
    assert reads_of_a_scrape(own_server, 50) <= 50  # of 16 KiB at most; a round trip for each call would take 150


def reads_of_a_scrape(server: RedisServer, count: int) -> int:
    """Return how often the server read from a connection during a scrape of this many queues."""
    with server.client() as client:
        for number in range(count):
            with Queue(f"q{number}", redis=client) as queue:
                queue.send("x")
        with ServerOptions(server.url, "delayq") as options, DiscoveredQueues(options) as found:
            metrics = Metrics(servers=[found], seconds=60)
            metrics.exposition()
            assert found._search is not None
            found._search.join()  # it samples, too
            before = client.info("stats")["total_reads_processed"]
            page = metrics.exposition().body
            assert page.count(b"delayq_up{") == count
            return int(client.info("stats")["total_reads_processed"] - before)
