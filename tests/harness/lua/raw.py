"""A queue as Redis holds it: its raw state, with a clock that the test sets.

A state is written and read structure by structure; missing structures are left out:

    {"pending": {"a": 1_000_000}, "messages": {"a": "0000001000000{}"}, "stats": {"sent": 1}, "bell": ["1"]}
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from delayq.protocol.command import Command
from delayq.protocol.operation import unwrap
from delayq.protocol.queue_commands import QueueCommands
from delayq.protocol.queue_keys import QueueKeys
from delayq.protocol.replies import Claimed
from delayq.transport.executor import Executor
from tests.harness.servers import RedisServer

T = TypeVar("T")

NOW = 1_000_000  # ms: the clock, until a test sets it
LEASE = 30_000
FRESH = "0.0.0.0"  # stands for a message without an entry in attempts
RUNG = ["1"]  # the bell with its one token

SERVER_TIME = ""  # for RawQueue.now
USER = "script"
READ = {
    "zset": "ZRANGE {} 0 -1 WITHSCORES",
    "hash": "HGETALL {}",
    "set": "SMEMBERS {}",
    "list": "LRANGE {} 0 -1",
    "string": "GET {}",
    "stream": "XRANGE {} - +",
}


NONE_LARGE = ("large", "0")
GROUPED = ("members", "groups", "rosters")


class RawQueue:
    """One shard on a real server. ``queue.ack(…)`` builds the call with `QueueCommands.ack` and returns its result.

    A script runs as a user who can only touch the keys that its call declares.

    Attributes:
        now: the time that the scripts use, ms, with microseconds as fractions; SERVER_TIME for the server's own.
        redis: a client that can touch everything.
    """

    def __init__(self, server: RedisServer) -> None:
        self.now: float | str = NOW
        self.keys = QueueKeys("t", "q")
        self.scripts = QueueCommands(self.keys, clock=lambda: self.now)
        self.redis: Any = server.client(decode_responses=True)
        self.redis.acl_setuser(USER, enabled=True, passwords=f"+{USER}", categories=["+@all"])
        self._restricted = server.client(username=USER, password=USER)
        self._connection = Executor(lambda: self._restricted, False, None)

    def __getattr__(self, script: str) -> Callable[..., Any]:
        build = getattr(self.scripts, script)
        return lambda *args, **options: self.run(build(*args, **options))

    def run(self, call: Command[T], anywhere: bool = False) -> T:
        """Run a call; return its result, or raise its DelayqError.

        Args:
            anywhere: let a script touch keys that it does not declare.
        """
        allowed = [f"~{key}" for key in declared_keys(call)] if call.script and not anywhere else ["allkeys"]
        call = refusing_numbers(call) if call.script else call
        self.redis.execute_command("ACL SETUSER", USER, "resetkeys", *allowed)
        return unwrap(self._connection.run([call])[0])  # type: ignore[no-any-return]  # what the call reads

    def clear(self) -> None:
        """Start over with an empty server, at NOW."""
        self.redis.flushall()
        self.now = NOW

    def close(self) -> None:
        self._connection.close()
        self._restricted.close()
        self.redis.close()

    def given(self, **state: Any) -> None:
        """Add to the state: sorted sets and hashes as dicts, ``cancelled`` as a set, ``bell`` as a list."""
        pipe = self.redis.pipeline()
        for name, value in state.items():
            if value in ({}, [], set()):  # Redis keeps nothing empty except strings
                continue
            if name == "messages":
                pipe.mset({self.keys.message(each): envelope for each, envelope in value.items()})
                continue
            key = getattr(self.keys, name)
            if name in {
                "attempts",
                "errors",
                "reasons",
                "stats",
                "meta",
                "schedules",
                "parked",
                "reports",
                "watch",
                *GROUPED,
            }:
                pipe.hset(key, mapping=value)
            elif isinstance(value, dict):
                pipe.zadd(key, value)
            elif isinstance(value, set):
                pipe.sadd(key, *value)
            elif isinstance(value, list):
                pipe.rpush(key, *value)
            else:
                pipe.set(key, value)
        pipe.execute()

    def state(self) -> dict[str, Any]:
        """Everything on the server; counters as integers, without the note that no large envelope was stored."""
        keys = self.redis.keys("*")
        types = self._together(("TYPE", key) for key in keys)
        known = [(key, kind) for key, kind in zip(keys, types, strict=True) if kind != "none"]  # it has just expired
        values = self._together(READ[kind].format(key).split() for key, kind in known)
        found: dict[str, Any] = {}
        for (key, kind), value in zip(known, values, strict=True):
            name = key.removeprefix("t:{q}:")
            if name.startswith("msg:"):
                found.setdefault("messages", {})[name.removeprefix("msg:")] = value
            elif name == "stats":
                found[name] = {
                    counter: int(count) for counter, count in value.items() if (counter, count) != NONE_LARGE
                }
            else:
                found[name] = dict(value) if kind == "zset" else value
        return found

    def deliver(self, message_id: str) -> str:
        """Claim everything that is due and return the receipt of one message."""
        self.pending_to_ready()
        claimed = self.ready_to_unack(100, LEASE)
        return receipts(claimed)[message_id]

    def server_ms(self) -> int:
        seconds, micros = self.redis.time()
        return int(seconds * 1000 + micros // 1000)

    def _together(self, commands: Iterable[Sequence[str]]) -> list[Any]:
        pipe = self.redis.pipeline(transaction=False)
        for command in commands:
            options = {"withscores": True} if "WITHSCORES" in command else {}  # redis-py 5 makes pairs only with this
            pipe.execute_command(*command, **options)
        return list(pipe.execute())


def declared_keys(call: Command[Any]) -> list[str]:
    """The keys that the call of a script declares."""
    return [str(key) for key in call.args[1 : 1 + int(call.args[0])]]


def rewritten(call: Command[T], edit: Callable[[str], str]) -> Command[T]:
    """The same call with another script text."""
    script = copy.copy(call.script)
    assert script is not None
    script.text = edit(script.text)
    return replace(call, script=script, whole=True)


_REFUSING_NUMBERS = """
local real = redis
local function checked(name, ...)
  for i, value in ipairs({...}) do
    if type(value) == 'number' and math.abs(value) >= 1e6 and string.sub(name, 1, 1) ~= 'Z' then
      error(name .. ' is given the number ' .. string.format('%.0f', value) .. ' as argument ' .. i)
    end
  end
end
local redis = setmetatable({
  call = function(...) checked(...) return real.call(...) end,
  pcall = function(...) checked(...) return real.pcall(...) end,
}, {__index = real})
"""


def refusing_numbers(call: Command[T]) -> Command[T]:
    """The same call; its script fails if it gives Redis a number from a million on, unless it may be a score."""

    def edit(text: str) -> str:
        line, end, rest = text.partition("\n") if text.startswith("#!") else ("", "", text)  # flags come first
        return line + end + _REFUSING_NUMBERS + rest

    return rewritten(call, edit)


def receipts(claimed: Claimed) -> dict[str, str]:
    """The receipts of a claim by id, built as its receiver builds them."""
    earlier = zip(claimed.ids, claimed.deliveries, strict=True)
    return {message_id: f"{deliveries or FRESH}-{claimed.micros}" for message_id, deliveries in earlier}


def stamped(envelope: str, now: int = NOW) -> str:
    """An envelope as it is stored, with the time of the send in front."""
    return f"{now:013}{envelope}"
