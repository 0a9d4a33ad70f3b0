"""Simulations: producers, consumers, receivers and an operator on a virtual clock, with real scripts on a real server.

The library's own code runs, including the consumers' threads, one step at a time in an order decided by the seed.
`make test` runs the first 25 seeds, `make test-all` 100, and a weekly run 10,000 new ones.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq.protocol.script import script
from delayq.transport.executor import Executor
from tests.harness.servers import RedisServer
from tests.harness.simulation.server import connect
from tests.harness.simulation.simulation import Failed, play

ROOT = Path(__file__).resolve().parents[2]
CHUNKS, QUICK_CHUNKS, CHUNK = 4, 1, 25  # seeds

# What the seeds of a chunk must have caused together: what never happens is not tested.
HAPPENED = {
    *("acknowledged", "stored", "delivered", "started", "finished", "repeated", "stale", "lease lost"),
    *(f"ended {how}" for how in ("acked", "cancelled", "expired", "purged", "replaced", "dead")),
    *("chained", "hook raised", "refused send", "refused replace", "refused ack_then"),
}

# Faults to put into a script: what to replace, by what, and a seed that finds it, where the search starts.
FAULTS = {
    "ack": (r"right == receipts\[i\]", "right", 3),  # any receipt is accepted
    "unack_to_retry": (r"put\(KEYS\[2\], retries\)", "", 1),  # reclaimed messages are dropped
    "send": (r"redis\.pcall\('ZREM', KEYS\[2\], .*\)", "", 69),  # it stays in garbage too
    "send_one": (r"redis\.pcall\('ZADD', KEYS\[1\], score, .*\)", "1", 0),  # only its payload is stored
    "pending_to_ready": (r"redis\.call\('ZREMRANGEBYRANK', KEYS\[1\], .*\)", "redis.call('DEL', KEYS[1])", 0),
    "ready_to_unack": (r"redis\.call\('ZCOUNT', KEYS\[2\], .*\)", "redis.call('ZCARD', KEYS[2])", 0),  # too early
}


@pytest.fixture
def connection(redis_server: RedisServer) -> Iterator[Executor]:
    connection = connect(redis_server.url)
    yield connection
    connection.close()


@pytest.mark.parametrize(
    "chunk", [*range(QUICK_CHUNKS), *(pytest.param(n, marks=pytest.mark.full) for n in range(QUICK_CHUNKS, CHUNKS))]
)
def test_every_seed_ends_well(connection: Executor, chunk: int):
    counts: Counter[str] = Counter()
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        counts += play(seed, connection).counts
    sys.stdout.write(f"{dict(counts)}\n")
    assert sorted(HAPPENED - set(counts)) == []


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in (22, 333))])
def test_seed_replays_byte_for_byte(connection: Executor, seed: int):
    assert play(seed, connection).trace == play(seed, connection).trace


@pytest.mark.full
def test_seed_replays_byte_for_byte_in_another_process(connection: Executor, redis_server: RedisServer):
    here = play(4444, connection).trace
    command = [sys.executable, "-m", "tests.harness.simulation", "4444", "--url", redis_server.url]
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
        assert done.stdout.decode().rstrip("\n") == here  # in text mode, a carriage return would become a line end


def test_seeds_differ(connection: Executor):
    assert play(1, connection).trace != play(2, connection).trace


@pytest.mark.parametrize(
    "name", [name if at == 0 else pytest.param(name, marks=pytest.mark.full) for at, name in enumerate(FAULTS)]
)
def test_fault_in_a_script_is_found_within_a_hundred_seeds(
    connection: Executor, name: str, monkeypatch: pytest.MonkeyPatch
):
    pattern, replacement, start = FAULTS[name]
    faulty, count = re.subn(pattern, replacement, script(name).text)
    assert count == 1
    monkeypatch.setattr(script(name), "text", faulty)
    monkeypatch.setattr(script(name), "sha", hashlib.sha1(faulty.encode()).hexdigest())
    with pytest.raises(Failed, match=r"again: python -m tests\.harness\.simulation \d+"):
        deque((play(seed, connection) for seed in range(start, start + 100)), maxlen=0)
