"""The bare scripts do what the library does, and figures are computed as they say. Their speed is not tested."""

from __future__ import annotations

import pytest
import redis
from delayq.cli.bench import clear
from delayq.cli.connection import ServerOptions

from benchmarks.paired import costs, rates
from benchmarks.paired.bare_scripts import BareScripts
from benchmarks.paired.consumer import DrainOrder
from benchmarks.paired.process import ConsumerProcess
from benchmarks.paired.samples import PairedRates, alternate, percentile
from delayq import Outgoing, Queue
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually


def test_lone_message_takes_at_least_a_send_a_claim_and_an_ack(redis_server: RedisServer):
    with ServerOptions(redis_server.url, "delayq") as server, rates.bench(server, 100, lambda: None) as bench:
        assert eventually(lambda: costs.lone_trips(bench, 1) >= 3)


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
