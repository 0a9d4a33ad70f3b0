"""The whole comparison, section by section; each section's results are on disk before the next one starts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import click
import redis
from rich.console import Console

from benchmarks import backlog, functions, ledger, machine, own, plot, report, tables, topics
from benchmarks.environments import NoEnvironment
from benchmarks.programs import OWN, PeerFailed, PeerProgram, find_programs, open_peer
from benchmarks.rounds import Rounds
from benchmarks.server import BenchServer, redis_benchmark
from benchmarks.targets import Results
from benchmarks.workloads import WORKLOADS
from delayq.errors import DelayqError

MILLION = 1_000_000
WIDE = 160  # columns without a terminal
SMALL = 20  # bytes per payload, so that ten million messages fit
RATE_MESSAGES = 100_000  # per run
SCRAPED_MESSAGES = 400_000  # enough for several scrapes per run
REFERENCE = {"redis-benchmark, one command at a time": (1, 50_000), "redis-benchmark, 50 at a time": (50, 1_000_000)}


class RunScale(NamedTuple):
    """How much to measure.

    Attributes:
        size: bytes per payload.
        seconds: duration of a peer's run.
        growth: messages that a consumer handles while its memory is measured.
        backlog: messages that wait in the longest queue.
        appendfsync: when the server writes to disk; "" for never: see `BenchServer`.
    """

    runs: int
    size: int
    seconds: float
    growth: int
    backlog: int
    appendfsync: str = ""


class Full:
    """A comparison.

    Args:
        out: the folder for the results.
        peers: their keys; delayq is always included.
        say: called with a line about each run.
    """

    def __init__(self, out: Path, scale: RunScale, peers: list[str], say: Callable[[str], None]) -> None:
        self._out = out
        self._scale = scale
        self._keys = list(dict.fromkeys([OWN, *peers]))
        self._say = say
        self._results: Results = {}

    def run(self, sections: Iterable[str], merge: bool) -> None:
        """Measure sections, and write the results.

        Args:
            merge: keep the results of earlier runs for other sections and peers.
        """
        with BenchServer(appendfsync=self._scale.appendfsync) as server:
            self._results = self._begin(server, merge)
            wanted = list(sections)
            peers = self._open_peers() if set(wanted) & set(COMPARED) else []
            self._results["reference"]["before"] = self._reference(server)
            for name in wanted:
                self._say(f"── {name}")
                self._section(name, server, peers)
                self._results["measured"][name] = machine.now()
                self._write()
            self._results["reference"]["after"] = self._reference(server)
        self._write()
        report.print_tables(self._results, Console(width=None if sys.stdout.isatty() else WIDE))

    def _begin(self, server: BenchServer, merge: bool) -> Results:
        fresh: Results = {name: {} for name in ("peers", "failed", "measured", "reference", "workloads", "own")}
        path = self._out / "results.json"
        results = json.loads(path.read_text("utf-8")) if merge and path.exists() else fresh
        results["about"] = machine.about(server.version) | self._scale._asdict()
        return dict(results)

    def _open_peers(self) -> list[PeerProgram]:
        found = []
        programs = find_programs()
        for key in self._keys:
            try:
                found.append(open_peer(key, programs[key]))
                self._results["failed"].pop(key, None)
            except (NoEnvironment, PeerFailed) as error:
                self._say(f"{key} is skipped: {error}")
                self._results["failed"][key] = str(error)
        self._results["peers"].update({peer.key: peer.about for peer in found})
        return found

    def _section(self, name: str, server: BenchServer, peers: list[PeerProgram]) -> None:
        if name in COMPARED:
            rounds = Rounds(COMPARED[name], server, self._scale.size, self._say, self._scale.seconds)
            self._results["workloads"].setdefault(name, {}).update(rounds.run(peers, self._scale.runs))
            return
        self._results["failed"].pop(name, None)
        try:
            self._results["own"][name] = OWN_SECTIONS[name](server, self._scale, self._say)
        except (click.ClickException, DelayqError, redis.RedisError, ImportError, OSError, RuntimeError) as error:
            self._results["failed"][name] = f"{type(error).__name__}: {error}"
            self._say(f"{name} failed: {error}")

    def _reference(self, server: BenchServer) -> dict[str, float]:
        """Return rates that do not depend on a peer: if they change, the machine has changed."""
        found = {}
        for title, (pipelined, requests) in REFERENCE.items():
            server.flush()
            for test, rate in (redis_benchmark(server, pipelined, requests) or {}).items():
                found[f"{title}: {test.upper()}"] = rate
        with own.opened(server, self._scale.size) as place:
            single = RATE_MESSAGES // 5
            found["bare scripts, send one by one"] = single / place.bare.send_one(single)
            place.clear()
            found["bare scripts, send in bulk"] = RATE_MESSAGES / place.bare.send_bulk(RATE_MESSAGES, due="+1")
            found["bare scripts, drain"] = RATE_MESSAGES / place.bare.drain(RATE_MESSAGES)
        return found

    def _write(self) -> None:
        self._out.mkdir(parents=True, exist_ok=True)
        (self._out / "results.json").write_text(json.dumps(self._results, indent=1) + "\n", "utf-8")
        (self._out / "results.md").write_text(report.markdown(self._results), "utf-8")
        (self._out / "results.svg").write_text(plot.svg(self._results), "utf-8")


def _scraping(server: BenchServer, scale: RunScale, say: own.Say) -> dict[str, Any]:
    from benchmarks import scraping  # noqa: PLC0415  # needs delayq[metrics]

    return scraping.rates(server, scale.size, scale.runs, SCRAPED_MESSAGES, say)


OWN_SECTIONS: dict[str, Callable[[BenchServer, RunScale, own.Say], dict[str, Any]]] = {
    "rates": lambda server, scale, say: own.rates(server, scale.size, scale.runs, RATE_MESSAGES, say),
    "awaited": lambda server, scale, say: own.awaiting(server, scale.size, scale.runs, RATE_MESSAGES, say),
    "topics": lambda server, scale, say: topics.rates(server, scale.size, scale.runs, RATE_MESSAGES, say),
    "ledger": lambda server, scale, say: ledger.rates(server, scale.size, scale.runs, RATE_MESSAGES, say),
    "functions": lambda server, scale, say: functions.rates(server, scale.size, scale.runs, RATE_MESSAGES, say),
    "metrics": _scraping,
    "tables": lambda server, scale, say: tables.rates(server, scale.size, MILLION, min(scale.runs, 3), say),
    "cost": lambda server, scale, _: own.cost(server, scale.size, RATE_MESSAGES),
    "consumers": lambda server, scale, _: own.consumers(server, scale.size),
    "idle_own": lambda server, scale, _: own.idle(server, scale.size),
    "fleet": lambda server, scale, _: own.fleet(server, scale.size),
    "backlog": lambda server, scale, say: backlog.backlog(server, scale.size, MILLION, RATE_MESSAGES, scale.runs, say),
    "backlog_10m": lambda server, scale, say: backlog.backlog(
        server, SMALL, scale.backlog, RATE_MESSAGES, scale.runs, say
    ),
    "growth": lambda server, scale, say: own.growth(server, scale.size, scale.growth, say),
}
"""Sections that measure only delayq."""

COMPARED = {each.name: each for each in WORKLOADS}
"""Sections that measure all peers."""

SECTIONS = (*COMPARED, *OWN_SECTIONS)
"""All sections, in order."""
