"""The real server, one call at a time: each call is written to the trace, and the invariants are checked after it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from delayq.errors import DelayqError, ServerOutOfMemory, StaleReceipt
from delayq.model.placement import STATES
from delayq.protocol.command import Command, identity
from delayq.protocol.script import Script
from delayq.transport import open_client
from delayq.transport.executor import Executor
from tests.harness.simulation.fibers import Process
from tests.harness.simulation.follower import Follower
from tests.harness.simulation.lives import Violation
from tests.harness.simulation.schedule import Now, Schedule

READING = frozenset({"get", "open_queue", "plan_sleep", "stats", "poll_idle"})  # after these, no message has moved
TIMING = frozenset({"plan_sleep", "poll_idle"})  # these set the timer
HOUR_S = 3600  # no simulation takes that long
LONGEST = 40  # characters of a value in the trace
CHECKED = (*STATES, "attempts", "errors", "reasons", "stats", "meta", "cancelled", "bell")


class Invariants(Script):
    """The script that checks a shard after each call."""

    def __init__(self) -> None:
        self.name = "invariants"
        self.text = (Path(__file__).parent / "invariants.lua").read_text()
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class Server:
    """Runs calls on a real server.

    Args:
        connection: a connection to the server, which is empty.

    Attributes:
        trace: one line per event.
        is_full: whether the server has reached its maxmemory.
        on_token: is called with the key of a bell that has a token.
    """

    def __init__(self, schedule: Schedule, connection: Executor, follower: Follower) -> None:
        self.trace: list[str] = []
        self.is_full = False
        self.on_token: Callable[[str], None] = lambda _: None
        self._schedule = schedule
        self._connection = connection
        self._follower = follower
        self._digests: dict[str, bytes] = {}
        self._garbage: dict[str, int] = {}
        self._loaded: set[str] = set()

    @property
    def shards(self) -> list[str]:
        """The key prefix of each shard that was used."""
        return list(self._garbage)

    @property
    def has_garbage(self) -> bool:
        return any(self._garbage.values())

    def execute(self, process: Process, call: Command[Any]) -> Any:
        """Run one call of a process; return the raw reply, or the server's error.

        The timer expires by the server's own clock. Here it is made to last.
        """
        us = self._schedule.server_us
        now = f"{us // 1000}.{us % 1000:03}"
        args = tuple(now if isinstance(arg, Now) else arg for arg in call.args)
        name = call.script.name if call.script else str(call.args[0])
        asked = Command(call.key, args, identity, call.script)
        shard = "".join(call.key.partition("}:")[:2])
        argv = tuple(map(_number, args[1 + int(args[0]) :] if call.script else args[1:]))
        if call.script is None or name in READING:
            lasts = [Command(call.key, ("PERSIST", shard + "timer"), identity)] if name in TIMING else []
            reply = self._run(name, [asked, *lasts])[0]
            self.note(process, f"{name} {shown(argv)} -> {shown(reply)}")
            if name == "poll_idle":
                self._follower.looked(shard)
            return reply
        listed = [_first_ids(call.key, argv)] if name == "purge" else []
        lasts = (
            [Command(str(args[10]), ("EXPIRE", args[10], HOUR_S), identity)]
            if name == "ready_to_unack" and argv[4]
            else []
        )
        replies = self._run(name, [*listed, asked, *lasts, invariants(shard)])
        reply, (wrong, digest, tokens, garbage) = replies[len(listed)], replies[-1]
        self.note(process, f"{name} {shown(argv)} -> {shown(reply)}  #{digest[:8].decode()}")
        if wrong:
            raise Violation(f"after {name} of {process.name}: {wrong.decode()}")
        is_without_room = self.is_full and isinstance(reply, ServerOutOfMemory)
        refused = is_without_room or isinstance(reply, StaleReceipt) or (name == "ack" and not any(reply))
        if refused and self._digests.get(shard, digest) != digest:
            raise Violation(f"{name} of {process.name} was refused, and has changed something")
        if is_without_room:
            self._follower.refused(name)
            return reply
        if isinstance(reply, DelayqError) and not refused:
            raise Violation(f"{name} of {process.name} failed: {reply}")
        self._digests[shard], self._garbage[shard] = digest, garbage
        self._follower.saw(process, shard, name, argv, replies[0])
        if tokens:
            self.on_token(shard + "bell")
        return reply

    def _run(self, name: str, calls: list[Command[Any]]) -> list[Any]:
        if name in self._loaded:
            return self._connection.run(calls)
        self._loaded.add(name)  # its text is sent in a second round trip, after everything else of the first
        return [self._connection.run([call])[0] for call in calls]

    def take_token(self, key: str) -> bool:
        """Take the token out of a bell; return whether there was one."""
        (token,) = self._connection.run([Command(key, ("LPOP", key), identity)])
        return token is not None

    def fill(self, is_full: bool) -> None:
        """Let the server reach its maxmemory, or give it room again."""
        self.is_full = is_full
        self._connection.run([Command("", ("CONFIG SET", "maxmemory", int(is_full)), identity)])

    def forget_scripts(self) -> None:
        """Do what SCRIPT FLUSH does."""
        self._connection.run([Command("", ("SCRIPT FLUSH",), identity)])
        self._loaded.clear()

    def note(self, process: Process | None, text: str) -> None:
        """Write an event to the trace."""
        self.trace.append(f"{self._schedule.us / 1000:12.3f} {process.name if process else '-':10} {text}")


@cache
def invariants(shard: str) -> Command[Any]:
    """Return the call that checks the shard with this key prefix."""
    keys = [shard + name for name in CHECKED]
    return Command(keys[0], (len(keys), *keys, shard + "msg:"), identity, Invariants())


def _number(word: Any) -> Any:
    """Return a number that a call has as text as a number."""
    return int(word) if isinstance(word, str) and word.isdecimal() else word


def _first_ids(key: str, argv: tuple[Any, ...]) -> Command[Any]:
    """Return the call that lists what a purge will delete."""
    _, up_to, limit, _ = argv  # the last one limits the dead letters, which the simulation does not use
    return Command(key, ("ZRANGE", key, "-inf", up_to, "BYSCORE", "LIMIT", 0, limit), identity)


def shown(value: Any) -> str:
    """Return a value as the trace shows it."""
    if isinstance(value, list | tuple):
        return f"[{' '.join(map(shown, value))}]"
    if isinstance(value, DelayqError):
        return type(value).__name__
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def connect(url: str) -> Executor:
    """Return a connection for a `Server`."""
    return Executor(lambda: open_client.connect(url), False, None)
