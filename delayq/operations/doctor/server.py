"""Servers: what they report about themselves, and which settings endanger a queue."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from delayq.model.record import text_of
from delayq.model.show import show_duration
from delayq.operations.doctor.finding import Finding
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Command, identity
from delayq.protocol.operation import Operation
from delayq.protocol.queue_commands import QueueCommands

OLDEST = (6, 2)
MAX_CLOCK_OFFSET = 1.0  # seconds: `at=` and the due times that people see go by this machine's clock
NEARLY_FULL = 0.9
LEAST_SCRIPT_LIMIT_MS = 100  # a script takes a few ms; a short pause of the machine must not lead to BUSY


@dataclass(frozen=True, slots=True)
class ServerHealth:
    """What a server reports about itself; None where it does not.

    Attributes:
        clock_offset: seconds by which its clock is at least ahead of this machine's; negative if behind. 0 if its time
            lies between the question and the answer, however long that took.
        product: its name and own version, such as Valkey 9.1.2; `version` is that of the Redis it is compatible with.
        save_points: when it takes snapshots; empty for never.
        disk_ok: whether its last attempts to write to its disk succeeded.
        used_memory, maxmemory: bytes; a maxmemory of 0 means no limit.
        script_limit_ms: how long a script may run before the server answers BUSY; 0 for no limit.
    """

    run_id: str | None = None
    version: str | None = None
    product: str | None = None
    clock_offset: float | None = None
    maxmemory_policy: str | None = None
    append_only: bool | None = None
    save_points: str | None = None
    disk_ok: bool | None = None
    used_memory: int | None = None
    maxmemory: int | None = None
    script_limit_ms: int | None = None

    def dangers(self) -> Iterator[Finding]:
        """Yield what endangers the queues on it."""
        numbers = (self.version or "").split(".")
        if numbers[0].isdecimal() and tuple(int(each) for each in numbers[:2] if each.isdecimal()) < OLDEST:
            yield Finding("version", None, f"the server is Redis {self.version}", "upgrade it to 6.2 or newer")
        if self.clock_offset is not None and abs(self.clock_offset) > MAX_CLOCK_OFFSET:
            which = "ahead of" if self.clock_offset > 0 else "behind"
            text = f"the server's clock is {show_duration(abs(self.clock_offset))} {which} this machine's"
            remedy = "set both with NTP: messages go by the server's clock, `at=` by this machine's"
            yield _warning("clock", text, remedy)
        if self.maxmemory_policy not in (None, "noeviction"):
            text = f"the server's maxmemory-policy is {self.maxmemory_policy}: it may evict messages"
            yield _warning("policy", text, "set maxmemory-policy to noeviction")
        if self.append_only is False and self.save_points == "":
            text = "the server keeps nothing on disk: a restart loses every message"
            yield _warning("persistence", text, "set appendonly to yes")
        if self.disk_ok is False:
            text = "the server's last write to its disk failed"
            yield _warning("disk", text, "check its log and the free disk space")
        if self.used_memory and self.maxmemory and self.used_memory > NEARLY_FULL * self.maxmemory:
            text = f"the server uses {self.used_memory:,} of {self.maxmemory:,} bytes: it will soon refuse messages"
            yield _warning("memory", text, "raise maxmemory, or let consumers drain the queues")
        if self.script_limit_ms is not None and 0 < self.script_limit_ms < LEAST_SCRIPT_LIMIT_MS:
            text = f"the server answers BUSY once a script has run for {self.script_limit_ms} ms"
            yield _warning("script-limit", text, "set lua-time-limit (busy-reply-threshold) to 5000, the default")


def health(context: QueueContext) -> Operation[ServerHealth]:
    """Ask the server that holds the first shard."""
    return (yield from ask((yield from context.opened())[0]))


def ask(scripts: QueueCommands) -> Operation[ServerHealth]:
    """Ask the server that holds a shard; what it refuses stays None."""
    key = scripts.keys.meta
    words = (("INFO",), ("TIME",), ("CONFIG", "GET", "save"), ("CONFIG", "GET", "lua-time-limit"))
    started = time.time()
    replies = yield [Command(key, each, identity) for each in words]
    ended = time.time()
    info, (save, limit) = words_of(replies[0]), map(words_of, replies[2:])
    there = None if isinstance(replies[1], Exception) else replies[1]
    outcomes = [info[name] for name in ("aof_last_write_status", "rdb_last_bgsave_status") if name in info]
    return ServerHealth(
        run_id=info.get("run_id"),
        version=info.get("redis_version"),
        product=_product(info),
        clock_offset=None if there is None else _offset(int(there[0]) + int(there[1]) / 1_000_000, started, ended),
        maxmemory_policy=info.get("maxmemory_policy"),
        append_only=_is_one(info.get("aof_enabled")),
        save_points=save.get("save"),
        disk_ok=all(outcome == "ok" for outcome in outcomes) if outcomes else None,
        used_memory=_number(info.get("used_memory")),
        maxmemory=_number(info.get("maxmemory")),
        script_limit_ms=_number(limit.get("lua-time-limit")),
    )


def _product(info: dict[str, str]) -> str | None:
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info['redis_version']}" if "redis_version" in info else None


def _offset(there: float, started: float, ended: float) -> float:
    """Return by how much a clock is ahead that showed `there` at an unknown moment between the two times."""
    return there - min(max(there, started), ended)


def _warning(kind: str, text: str, remedy: str) -> Finding:
    return Finding(kind, None, text, remedy, "warning")


def words_of(reply: Any) -> dict[str, str]:
    """Read a reply as a dict of words: it is a refusal, a dict, or a flat list of names and values."""
    if isinstance(reply, list):
        reply = dict(zip(reply[::2], reply[1::2], strict=False))
    pairs = reply.items() if isinstance(reply, dict) else ()
    return {text_of(name): text_of(value) for name, value in pairs}


def _number(word: str | None) -> int | None:
    return int(word) if word is not None and word.isdecimal() else None


def _is_one(word: str | None) -> bool | None:
    return None if word is None else word == "1"
