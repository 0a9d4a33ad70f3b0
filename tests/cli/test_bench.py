"""bench measures what it says, counts what it sends, and leaves nothing behind. Its speed is not tested."""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from delayq.cli.bench import RATES

from tests.cli.conftest import Run, Start
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
    document = json.loads(done.stdout)
    assert document["settings"] == {"messages": 600, "runs": 2, "seconds": 0.3, "size": 100}
    assert set(document["rates"]) == set(RATES)
    for rate in document["rates"].values():
        assert len(rate["per_second"]["samples"]) == 2
        assert 0 < rate["per_second"]["min"] <= rate["per_second"]["median"] <= rate["per_second"]["max"]
    assert (document["lateness"]["messages"], document["lateness"]["early"]) == (30, 0)
    assert 0 < document["lateness"]["p50_ms"] <= document["lateness"]["p99_ms"] <= document["lateness"]["max_ms"]
    assert document["memory_bytes"] > 100
    assert document["redis_cpu_us"] > 0
    assert redis_client.keys() == [b"another"]


@pytest.mark.full
def test_example_of_the_help_prints_text(delayq: Run, redis_client: redis.Redis):
    done = delayq("bench", "--short")
    assert done.returncode == 0, done.stderr
    first, *_ = done.stdout.splitlines()
    assert first.split() == ["messages", "per", "second", "median", "min", "max"]
    for name in (*(title for title, *_ in RATES.values()), "lateness", "memory", "server CPU"):
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
