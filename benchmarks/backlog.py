"""delayq with very many waiting messages: is it as fast as on an empty queue, and does nothing block Redis?"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from benchmarks.own import Say, opened
from benchmarks.paired.rates import Bench
from benchmarks.paired.samples import PairedRates, percentile
from benchmarks.server import BenchServer
from delayq.protocol.script import script

DAY = "+86400000"  # ms
FILL = 1_000_000  # messages between two progress reports
CALLS = 200  # of each kind
SLOW_MICROS = 1_000  # the slow log's threshold
SHA_DIGITS = 40


def backlog(server: BenchServer, size: int, waiting: int, messages: int, runs: int, say: Say) -> dict[str, Any]:
    """Return how fast sending, consuming and maintenance calls are while `waiting` messages wait.

    Args:
        messages: per run.
    """
    with opened(server, size) as place:
        before = _both(place, messages, runs)
    with opened(server, size) as place, server.slow_log(SLOW_MICROS) as slow:
        empty = server.read()
        seconds = _fill(place, waiting, say)
        grown = server.read().since(empty).memory_bytes
        full = _both(dataclasses.replace(place, keeps=True), messages, runs)
        calls = _calls(place)
        server.flush()  # deleting each key would take as long as filling
    with opened(server, size) as place:
        after = _both(place, messages, runs)
    return {
        "waiting": waiting,
        "size": size,
        "fill_per_second": waiting / seconds,
        "memory_bytes": grown / waiting,
        "rates": {name: paired.as_record() for name, paired in full.items()},
        "of_empty": {name: full[name].median / _mean(before[name], after[name]) for name in full},
        "calls": calls,
        "longest_script": longest_script(slow),
    }


def longest_script(slow: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the script that blocked the server longest, from its slow log; empty if none took SLOW_MICROS."""
    named = {each.sha: each.name for each in map(script, _scripts())}
    runs = []
    for entry in slow:
        command, _, words = entry["command"].partition(b" ")
        if command.upper() in (b"EVAL", b"EVALSHA"):
            runs.append((entry["duration"] / 1000, named.get(words[:SHA_DIGITS].decode(), "sent whole")))
    longest, name = max(runs, default=(0.0, ""))
    return {"ms": longest, "name": name, "over_5_ms": sum(ms > 5 for ms, _ in runs)}


def _scripts() -> list[str]:
    found = (str(each.name) for each in files("delayq.lua").iterdir())
    return [name.removesuffix(".lua") for name in found if name.endswith(".lua") and name != "prelude.lua"]


def _both(place: Bench, messages: int, runs: int) -> dict[str, PairedRates]:
    return {"send_bulk": place.send_bulk(messages, runs), "drain": place.drain(messages, runs)}


def _mean(before: PairedRates, after: PairedRates) -> float:
    return float(before.median + after.median) / 2


def _fill(place: Bench, waiting: int, say: Say) -> float:
    seconds = 0.0
    for done in range(0, waiting, FILL):
        seconds += place.bare.send_bulk(min(FILL, waiting - done), due=DAY)
        say(f"backlog: {min(done + FILL, waiting):,} of {waiting:,} sent")
    return seconds


def _calls(place: Bench) -> dict[str, dict[str, float]]:
    """Return the duration of the maintenance calls in milliseconds: median, 99 %, and maximum."""
    queue = place.queue
    pending = queue._context.shards[0].keys.pending
    sampled: Any = place.client.zrandmember(pending, CALLS)
    ids = [each.decode() for each in sampled]
    kinds: dict[str, Callable[[str], object]] = {
        "stats": lambda _: queue.stats(),
        "peek": lambda _: queue.peek(limit=10),
        "show": queue.get,
        "reschedule": lambda each: queue.reschedule(each, delay=7200),
        "cancel": queue.cancel,
    }
    found = {}
    for name, call in kinds.items():
        took = [_milliseconds(call, each) for each in ids]
        found[name] = {"p50_ms": percentile(took, 0.5), "p99_ms": percentile(took, 0.99), "max_ms": max(took)}
    return found


def _milliseconds(call: Callable[[str], object], message_id: str) -> float:
    began = time.perf_counter()
    call(message_id)
    return (time.perf_counter() - began) * 1000
