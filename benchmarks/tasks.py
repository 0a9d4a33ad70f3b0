"""The tasks for a peer; each returns figures by name."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from benchmarks import processes
from benchmarks.paired.samples import percentile
from benchmarks.programs import PeerProgram, Program, Unsupported
from benchmarks.server import BenchServer

HOUR = 3600  # seconds: not due during the measurement
DAY = 86_400
BACKLOG = 1_000_000
BACKLOG_SECONDS = 240.0  # the most that filling a backlog may take
RUN_SECONDS = 300.0  # for a run that should take ten
IDLE_SECONDS = 10.0
SETTLE_SECONDS = 2.0  # until a consumer that has just started is idle
WAIT = 60  # seconds without a message before a consumer gives up

Figures = dict[str, float]


@dataclass(frozen=True)
class Task:
    """One run.

    Attributes:
        server: an empty server.
        messages: how many.
        size: bytes per payload.
    """

    peer: PeerProgram
    server: BenchServer
    messages: int
    size: int

    def ask(self, verb: str, **options: Any) -> dict[str, Any]:
        """Run a verb of the peer's program with the run's messages."""
        given = {"messages": self.messages, "size": self.size} | options
        return self.peer.ask(verb, self.server.url, RUN_SECONDS, **given)

    def consumer(self, setting: str, **options: Any) -> Program:
        """Start a consumer."""
        given = {"messages": self.messages, "size": self.size, "wait": WAIT} | options
        return Program(self.peer, "consume", self.server.url, setting=setting, **given)


def send_one(task: Task) -> Figures:
    """Send messages one by one, each confirmed."""
    return _rate(task.ask("send-one", delay=HOUR))


def send_one_core(task: Task) -> Figures:
    """Send messages one by one, from the core on which Redis runs."""
    with task.server.beside():  # a program runs on the cores of this thread
        return send_one(task)


def send_bulk(task: Task) -> Figures:
    """Send messages in bulk."""
    return _rate(task.ask("send-bulk", delay=HOUR))


def drain(task: Task, **options: Any) -> Figures:
    """Let one consumer process take the due messages; measure what each message costs Redis in total.

    Args:
        options: of its peer's program, for both.
    """
    before = task.server.read()
    task.ask("fill", delay=1, **options)
    time.sleep(1.1)
    with task.consumer("throughput", **options) as consumer:
        consumer.wait_ready()
        report = consumer.answer(RUN_SECONDS)
    spent, count = task.server.read().since(before), task.messages
    complete(report, count)
    return {
        "per_second": steady_rate(report),
        "redis_cpu_us": spent.cpu_seconds / count * 1e6,
        "redis_commands": spent.commands / count,
        "consumer_cpu_us": (report["cpu_seconds"] - report.get("cpu_at_ready", 0)) / count * 1e6,
    }


def drain_results(task: Task) -> Figures:
    """Drain, and keep what each message's handler returns for an hour."""
    if not task.peer.about.get("keeps"):
        raise Unsupported("not compared")
    figures = drain(task, results=HOUR)
    if (kept := task.server.client.dbsize()) < task.messages:
        raise ValueError(f"{kept} of {task.messages} results are kept")
    return figures


def lateness(task: Task, over: float = 20.0) -> Figures:
    """Let messages fall due one after another with an idle consumer waiting."""
    began = time.monotonic()
    task.ask("fill", delay=HOUR)  # its duration decides when the first message may be due
    lead = 1 + 1.5 * (time.monotonic() - began)
    task.server.flush()
    with task.consumer("latency", wait=WAIT + lead) as consumer:
        consumer.wait_ready()
        task.ask("trickle", over=over, after=lead)
        report = consumer.answer(lead + over + RUN_SECONDS)
    complete(report, task.messages)
    late = report["lateness_ms"]
    return {
        "p50_ms": percentile(late, 0.5),
        "p99_ms": percentile(late, 0.99),
        "max_ms": max(late),
        "early": sum(each < 0 for each in late),
    }


def backlog(task: Task) -> Figures:
    """Send and drain while a million messages wait."""
    began = time.monotonic()
    task.ask("fill", delay=DAY)
    rate = task.messages / (time.monotonic() - began)  # from a short run: rather too low
    seconds = BACKLOG / rate
    if seconds > BACKLOG_SECONDS:
        raise Unsupported(f"not tried: at {rate:,.0f} messages/s, a million would take {seconds / 60:.0f} minutes")
    task.ask("fill", messages=BACKLOG, delay=DAY)
    try:
        sent = task.ask("send-bulk", delay=HOUR)
    except Unsupported:
        sent = task.ask("send-one", delay=HOUR)
    return {"per_second": drain(task)["per_second"], "sent_per_second": sent["messages"] / sent["seconds"]}


def memory(task: Task) -> Figures:
    """Let messages wait; measure the Redis memory of each."""
    before = task.server.read()
    task.ask("fill", delay=HOUR)
    return {"bytes": task.server.read().since(before).memory_bytes / task.messages}


def idle(task: Task) -> Figures:
    """Let a consumer wait for a message that does not come."""
    with task.consumer("latency", messages=1, wait=RUN_SECONDS) as consumer:
        consumer.wait_ready()
        time.sleep(SETTLE_SECONDS)
        return watch_idle([consumer.process.pid], task.server)


def watch_idle(pids: list[int], server: BenchServer) -> Figures:
    """Return the CPU time and the Redis commands of idle processes within IDLE_SECONDS."""
    used, began = sum(map(processes.cpu_seconds, pids)), time.monotonic()
    sent, within = server.commands(IDLE_SECONDS)
    seconds = time.monotonic() - began
    return {
        "cpu_percent": (sum(map(processes.cpu_seconds, pids)) - used) / seconds * 100,
        "commands_per_second": sent / seconds,
        "within_scripts_per_second": within / seconds,
    }


def complete(report: dict[str, Any], count: int) -> None:
    """Raise ValueError unless a consumer has received all of its messages."""
    if report["messages"] != count:
        raise ValueError(f"{report['messages']} of {count} messages arrived: the others were lost or took too long")


def steady_rate(report: dict[str, Any]) -> float:
    """Return the messages per second after the first tenth, which includes a consumer's start."""
    count = report["messages"]
    seconds = report["last"] - report["warm"]
    return float((count - max(1, -(-count // 10))) / seconds) if seconds > 0 else float("inf")


def _rate(report: dict[str, Any]) -> Figures:
    return {"per_second": report["messages"] / report["seconds"]}
