"""A script that fails never loses a message, and its call can be repeated, whichever key or command is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from delayq.errors import DelayqError
from delayq.protocol.script import script
from tests.harness.lua.every import CALLS, HELD, state_for
from tests.harness.lua.raw import USER, RawQueue
from tests.harness.lua_source import LuaSource
from tests.harness.tree import LUA

HOLD = ("pending", "ready", "unack", "retry", "dead", "garbage")
MOVES = [name for name in CALLS if re.search(r"^-- State .*->", (LUA / f"{name}.lua").read_text(), re.MULTILINE)]
LEDGER = {"events": 1000}
UNCHECKED = ["send", "send_one"]  # they take back what they have written
READS = {"TIME", "EXISTS", "PTTL", "GET", "GETRANGE", "HGET", "HMGET", "HGETALL", "SISMEMBER", "XLEN", "ZRANGE"}
READS |= {"ZSCORE", "ZMSCORE", "ZCARD", "ZCOUNT", "ZRANGEBYLEX", "ZLEXCOUNT"}


def keys_of(name: str) -> list[str]:
    """The keys of a script that are not strings: the queue's structures that its header names."""
    fields = [field.text.split() for field in LuaSource(LUA / f"{name}.lua").fields if field.name == "KEYS"]
    found = [key for key, kind, *_ in fields if kind in {"zset", "hash", "set", "stream"}]
    return ["dead" if key == "source" else "retry" if key == "target" else key for key in found]


def commands_of(name: str) -> list[str]:
    """The commands of a script."""
    return sorted(set(re.findall(r"redis\.p?call\('(\w+)'", script(name).text)))


def held(queue: RawQueue) -> set[str]:
    """The ids in any structure."""
    keys = [getattr(queue.keys, name) for name in HOLD]
    return {each for key in keys if queue.redis.type(key) == "zset" for each in queue.redis.zrange(key, 0, -1)}


def dumped(queue: RawQueue) -> dict[str, object]:
    return {key: queue.redis.dump(key) for key in queue.redis.scan_iter()}


def cases() -> Iterator[tuple[str, str, str]]:
    for name in MOVES:
        yield from ((name, key, "") for key in keys_of(name))
        yield from ((name, "", command) for command in commands_of(name))


def prepare(queue: RawQueue, name: str) -> None:
    """Make the state in which a script has something to do."""
    queue.clear()
    state = state_for(name)
    state["meta"] = state.get("meta", {}) | LEDGER
    if name == "release_slot":  # so that its slot becomes free
        state["slots"] = {"k\00.0.0.0-1\0x": 0}
    queue.given(**state)


def outcome(queue: RawQueue) -> dict[str, object]:
    """The state, without what a script may leave out: tokens, entries, the reply to a claim, looks, old garbage.

    Entries of `finished` are without their ids, and meta without the ledger's mark: these are the server's time.
    """
    optional = ("bell", "events", "garbage", "claim:", "watch")
    state = {name: each for name, each in queue.state().items() if not name.startswith(optional)}
    state.get("meta", {}).pop("mark", None)
    if "finished" in state:
        state["finished"] = [fields for _, fields in state["finished"]]
    return state


def overwrite(queue: RawQueue, name: str) -> None:
    """Put something else into a key of the queue, or of the message that `CALLS` settle."""
    found = getattr(queue.keys, name)
    key = found(HELD[0]) if callable(found) else found
    queue.redis.delete(key)
    queue.redis.set(key, "nothing of delayq")


def without(queue: RawQueue, command: str, call: Callable[[], object]) -> bool:
    """Make a call while a command is forbidden; return whether it was refused."""
    queue.redis.execute_command("ACL SETUSER", USER, f"-{command.lower()}")
    try:
        call()
    except DelayqError:
        return True
    finally:
        queue.redis.execute_command("ACL SETUSER", USER, "+@all")
    return False


def test_refused_call_can_be_repeated(queue: RawQueue, subtests: pytest.Subtests):
    can_ask = not queue.redis.info("server")["redis_version"].startswith("6.") or "valkey_version" in queue.redis.info()
    refused = 0
    for name in CALLS if can_ask else UNCHECKED:  # 6.2 cannot say what a script may do: docs/acl.md

        def call(name: str = name) -> object:
            return queue.run(CALLS[name](queue.scripts))

        prepare(queue, name)
        reply, expected = call(), outcome(queue)
        for command in commands_of(name):
            with subtests.test(script=name, command=command):
                prepare(queue, name)
                before = dumped(queue)
                if without(queue, command, call):
                    refused += 1
                    if dumped(queue) != before:
                        assert call() == reply, "the repetition does not do what the refused call was to do"
                        assert outcome(queue) == expected
                else:
                    assert outcome(queue) == expected
    assert refused > len(CALLS if can_ask else UNCHECKED)


def test_message_is_always_in_a_structure(queue: RawQueue, subtests: pytest.Subtests):
    version = queue.redis.info("server")["redis_version"]
    outcomes: dict[str, int] = {"refused": 0, "done": 0}
    for name, key, command in cases():
        prepare(queue, name)
        if key:
            overwrite(queue, key)
        there, before = held(queue), dumped(queue)
        with subtests.test(script=name, key=key, command=command):
            if command:
                queue.redis.execute_command("ACL SETUSER", USER, f"-{command.lower()}")
            try:
                queue.run(CALLS[name](queue.scripts))
            except DelayqError:
                outcomes["refused"] += 1
                assert there <= held(queue)
                lenient = command in READS or (command and (name in UNCHECKED or version.startswith("6.")))
                assert dumped(queue) == before or lenient
            else:
                outcomes["done"] += 1
                assert not key
                may_fail = re.findall(r"redis\.pcall\('(\w+)'", script(name).text)  # a token, or an entry in the ledger
                unneeded = command in READS or command in may_fail or name in UNCHECKED
                assert unneeded or version.startswith("6.")
            finally:
                queue.redis.execute_command("ACL SETUSER", USER, "+@all")
    assert min(outcomes.values()) > 0, outcomes
