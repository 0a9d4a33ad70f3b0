"""bench measures what it says, counts what it sends, and leaves nothing behind. Its speed is not tested."""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from delayq.cli.bench import costs, rates
from delayq.cli.bench.bare_scripts import BareScripts
from delayq.cli.bench.command import COSTS, RATES
from delayq.cli.bench.consumer import DrainOrder
from delayq.cli.bench.process import ConsumerProcess
from delayq.cli.bench.rates import clear
from delayq.cli.bench.samples import PairedRates, alternate, percentile
from delayq.cli.connection import ServerOptions

from delayq import Outgoing, Queue
from tests.cli.conftest import Run, Start
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

TINY = ("--messages", "600", "--runs", "2", "--seconds", "0.3")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="dq") as path:
        yield Path(path)


def test_every_figure_is_measured_and_no_key_is_left(delayq: Run, redis_client: redis.Redis):
    redis_client.set("another", "program's")
    done = delayq("bench", *TINY, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["settings"] == {"messages": 600, "runs": 2, "seconds": 0.3, "size": 100}
    assert set(told["rates"]) == set(RATES)
    for rate in told["rates"].values():
        assert [len(rate[key]["samples"]) for key in ("per_second", "bare_per_second")] == [2, 3]
        assert all(rate[key]["min"] > 0 for key in ("per_second", "bare_per_second"))
        assert rate["ratio"] > 0
    assert set(COSTS) <= set(told)
    assert (told["lateness"]["messages"], told["lateness"]["early"]) == (30, 0)
    assert 0 < told["lateness"]["p50_ms"] <= told["lateness"]["p99_ms"] <= told["lateness"]["max_ms"]
    assert told["memory_bytes"] > 100
    assert told["cost"]["redis_cpu_us"] > 0
    assert 0 < told["cost"]["trips"] < 1  # in batches
    assert told["lone_trips"] >= 1
    assert redis_client.keys() == [b"another"]


def test_lone_message_takes_at_least_a_send_a_claim_and_an_ack(redis_server: RedisServer):
    with ServerOptions(redis_server.url, "delayq") as server, rates.bench(server, 100, lambda: None) as bench:
        assert eventually(lambda: costs.lone_trips(bench, 1) >= 3)


@pytest.mark.full
def test_example_of_the_help_prints_text(delayq: Run, redis_client: redis.Redis):
    done = delayq("bench", "--short")
    assert done.returncode == 0, done.stderr
    first, *_ = done.stdout.splitlines()
    assert first.split() == ["messages", "per", "second", "delayq", "from–to", "bare", "scripts", "from–to", "ratio"]
    for name in (*(title for title, _ in RATES.values()), "lateness", "memory", "server CPU", "round trips"):
        assert f"\n{name}  " in done.stdout
    assert "; none early (200 over 2 s)" in done.stdout
    assert "consumer started" not in done.stderr
    assert redis_client.dbsize() == 0


@pytest.mark.full
def test_note_says_that_the_embedded_store_limits_the_rates(delayq: Run, folder: Path):
    done = delayq("bench", *TINY, "--json", "--url", f"embedded://{folder / 'store'}")
    assert done.returncode == 0, done.stderr
    assert "appendfsync always" in done.stderr
    assert json.loads(done.stdout)["embedded"] is True


def connected(client: redis.Redis) -> set[str]:
    """The ids of the connections to the server, since earlier tests may have left some."""
    return {each["id"] for each in client.client_list()}


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_bench_leaves_no_key_and_no_process(number: int, start: Start, redis_client: redis.Redis):
    before = connected(redis_client)
    bench = start("bench", "--messages", "1000000")
    assert eventually(lambda: redis_client.dbsize() > 1000)
    assert connected(redis_client) - before
    bench.send_signal(number)
    assert bench.wait(120) == 1
    assert redis_client.dbsize() == 0
    assert eventually(lambda: not connected(redis_client) - before)


@pytest.mark.full
def test_consumer_process_ends_when_the_command_is_killed(start: Start, redis_client: redis.Redis):
    before = connected(redis_client)
    bench = start("bench", "--messages", "100000")
    assert eventually(lambda: redis_client.dbsize() > 1000)
    bench.kill()
    assert eventually(lambda: not connected(redis_client) - before)


def test_bare_scripts_do_not_count_messages_that_another_consumer_took(redis_server: RedisServer):
    with Queue("bare", url=redis_server.url) as queue, BareScripts(queue, b"x") as bare:
        bare.send_bulk(3, due="+0")
        queue.receive(1)[0].ack()
        with pytest.raises(RuntimeError, match="something else consumes the queue"):
            bare.drain(3)


def test_bare_scripts_do_what_the_library_does(redis_server: RedisServer, redis_client: redis.Redis):
    with Queue("bare", url=redis_server.url) as queue, BareScripts(queue, b"x") as bare:
        bare.send_one(3)
        assert [info.body for info in queue.peek("pending")] == [b"x"] * 3
        bare.send_bulk(1001, due="+0")
        bare.pull(500)
        bare.drain(501)
        counts = queue.stats()
        assert (counts.sent, counts.delivered, counts.acked, counts.inside, counts.missing) == (1004, 1001, 1001, 3, 0)
        clear(queue)
        assert redis_client.dbsize() == 0


def test_consumer_with_a_duration_returns_every_lateness(redis_server: RedisServer):
    with (
        Queue("timed", url=redis_server.url) as queue,
        ConsumerProcess(ServerOptions(redis_server.url, "delayq")) as apart,
    ):
        apart.begin(DrainOrder("timed", 5, seconds=3600.0))  # long enough for a pause of the machine
        queue.send_many([Outgoing(n, delay=n / 10) for n in range(5)])
        result = apart.end(120)
        apart.begin(DrainOrder("nothing", None, seconds=0.1))
        nothing = apart.end(120)
    assert (result.messages, result.early, len(result.late_ms)) == (5, 0, 5)
    assert result.late_ms == sorted(result.late_ms)
    assert result.late_ms[-1] == result.max_ms
    assert (nothing.messages, nothing.late_ms) == (0, [])


@pytest.mark.parametrize(("share", "value"), [(0, 1), (0.5, 5), (0.51, 6), (0.9, 9), (0.99, 10), (1, 10)], ids=str)
def test_percentile_is_the_smallest_value_that_the_share_does_not_exceed(share: float, value: float):
    assert percentile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], share) == value


def test_ratio_compares_neighbours_so_that_a_slow_hour_affects_both():
    paired = PairedRates(own=[50, 20, 50], bare=[100, 100, 25, 100])
    assert paired.ratios == [0.5, 0.32, 0.8]
    assert paired.ratio == 0.5
    assert paired.unrest == 0.75


def test_bare_scripts_and_delayq_are_measured_in_turn():
    turns: list[str] = []

    def rate(name: str) -> float:
        turns.append(name)
        return len(turns)

    paired = alternate(lambda: rate("own"), lambda: rate("bare"), runs=2)
    assert turns == ["bare", "own", "bare", "own", "bare"]
    assert paired == PairedRates(own=[2, 4], bare=[1, 3, 5])
