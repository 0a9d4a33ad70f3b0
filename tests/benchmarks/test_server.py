"""The benchmark's own server, and what is read from it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from benchmarks.backlog import longest_script
from benchmarks.paired.server_load import ServerReading
from benchmarks.server import BenchServer, parse_csv
from delayq.protocol.script import script
from tests.harness.proc import needs_proc


@pytest.fixture
def server() -> Iterator[BenchServer]:
    with BenchServer() as running:
        yield running


def test_commands_of_clients_and_of_scripts_are_distinguished(server: BenchServer, monkeypatch: pytest.MonkeyPatch):
    with server.client.client() as other:
        other.ping()
        work: Any = other.eval

        class Timer(threading.Thread):
            """Ends the time after the work, however long it takes."""

            def __init__(self, _: float, end: Callable[[str], object], words: list[str]) -> None:
                super().__init__()
                self._end = partial(end, *words)

            def run(self) -> None:
                work("redis.call('SET', 'a', 1) return redis.call('GET', 'a')", 0)
                self._end()

        monkeypatch.setattr("benchmarks.server.threading.Timer", Timer)
        assert server.commands(0.5) == (1, 2)


def test_reading_does_not_count_itself(server: BenchServer):
    server.read()
    before = server.read()
    assert server.read().since(before)[1:3] == (0, 0)
    before = server.read()
    server.client.set("key", "value")
    assert server.read().since(before)[1:3] == (1, 1)


@needs_proc
def test_server_shares_a_core_with_this_thread_until_the_block_ends(server: BenchServer):
    pid = server.client.info("server")["process_id"]
    before = os.sched_getaffinity(0), os.sched_getaffinity(pid)
    with server.beside():
        assert os.sched_getaffinity(0) == os.sched_getaffinity(pid)
        assert len(os.sched_getaffinity(0)) == 1
    assert (os.sched_getaffinity(0), os.sched_getaffinity(pid)) == before


def test_since_is_the_difference_without_the_earlier_readings_own_command():
    assert ServerReading(3.5, 110, 60, 900).since(ServerReading(1.5, 100, 50, 400)) == (2.0, 9, 9, 500)


def test_slow_log_is_kept_until_the_block_ends(server: BenchServer):
    text = "local t = redis.call('TIME') local n = 0 while n < 1000000 do n = n + 1 end return n"
    with server.slow_log(1000) as slow:
        server.client.eval(text, 0)
        assert slow == []
    scripts = [each for each in slow if each["command"].startswith(b"EVAL ")]  # a busy machine slows other commands
    assert len(scripts) == 1
    assert longest_script(slow)["name"] == "sent whole"
    assert server.client.config_get("slowlog-log-slower-than") == {"slowlog-log-slower-than": "10000"}


def test_flush_leaves_no_key_and_no_script(server: BenchServer):
    sha = server.client.script_load("return 1")
    server.client.set("key", "value")
    server.flush()
    assert server.client.dbsize() == 0
    assert server.client.script_exists(sha) == [False]


def test_longest_script_is_named():
    send, ack = script("send").sha.encode(), script("ack").sha.encode()
    slow = [
        {"command": b"EVALSHA " + ack + b" 7 key", "duration": 1500},
        {"command": b"EVALSHA " + send + b" 9 key", "duration": 6500},
        {"command": b"FLUSHALL", "duration": 90_000},
        {"command": b"DEBUG", "duration": 90_000},
    ]
    assert longest_script(slow) == {"ms": 6.5, "name": "send", "over_5_ms": 1}
    assert longest_script([]) == {"ms": 0.0, "name": "", "over_5_ms": 0}


def test_table_of_redis_benchmark_is_read():
    head = '"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms"'
    assert parse_csv(f'{head}\n"SET","14619.88","0.066","0.008","0.071"\n') == {"set": 14619.88}
