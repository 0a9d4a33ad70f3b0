"""One command converts a store written by Redis to Valkey, with everything it holds."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from delayq import Outgoing, Queue, Topic
from delayq.errors import StoreError, StoreTooNew
from delayq.transport.embedded import convert, open_store
from delayq.transport.embedded.binaries import Version, find_server, write_version
from delayq.transport.embedded.convert import KEPT, convert_store
from tests.harness.stores import Watched, script, use_program
from tests.harness.waiting import eventually


@pytest.fixture
def of_redis(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[bytes, Any]:
    """A store written by Redis 8.2, on a machine where Valkey serves stores now; its contents."""
    use_program(monkeypatch, "8.2")
    with Queue("jobs", url=f"embedded://{folder}") as queue:
        queue.send_many([Outgoing(n, delay=3600 + n) for n in range(3)])
        queue.send("dead", id="dead")
        (message,) = queue.receive(wait=30)
        message.reject("a reason")
        queue.send("held", id="held")
        assert queue.receive(wait=30)
    with Topic("orders", url=f"embedded://{folder}") as topic:
        group = topic.group("readers")
        topic.publish("one")
        topic.publish("two", delay=3600)
        assert group.poll("reader", wait=30)
    with open_store(folder) as client:
        client.bgrewriteaof()  # a base file from Redis, followed by commands
        assert eventually(lambda: not client.info("persistence")["aof_rewrite_in_progress"])
        client.set("behind", "value")
        held = contents(client)
    assert eventually(Watched(folder).is_at_rest)
    use_program(monkeypatch, "valkey-9.1")
    return held


def contents(client: Any) -> dict[bytes, Any]:
    read: dict[bytes, Callable[[bytes], Any]] = {
        b"string": client.get,
        b"hash": client.hgetall,
        b"set": client.smembers,
        b"list": lambda key: client.lrange(key, 0, -1),
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        b"stream": lambda key: (
            client.xrange(key),
            [(group["name"], group["last-delivered-id"], group["pending"]) for group in client.xinfo_groups(key)],
            [
                (entry["message_id"], entry["consumer"], entry["times_delivered"])
                for group in client.xinfo_groups(key)
                for entry in client.xpending_range(key, group["name"], "-", "+", 100)
            ],
        ),
    }
    return {key: read[client.type(key)](key) for key in client.scan_iter()}


def test_store_written_by_redis_is_refused_with_the_command_that_converts_it(folder: Path, of_redis: dict[bytes, Any]):
    assert len(of_redis) > 10
    with pytest.raises(
        StoreTooNew,
        match=rf"by redis 8\.2\.\d+, which valkey 9\.1\.\d+ \(.*\) cannot read: run `delayq convert {folder}`",
    ):
        open_store(folder)


def test_converted_store_holds_everything_that_redis_wrote(folder: Path, of_redis: dict[bytes, Any]):
    done = convert_store(folder)
    assert (done.written.kind, done.opens, done.kept) == ("redis", find_server(folder, None).version, folder / KEPT)
    assert (folder / KEPT).is_dir()
    for _ in range(2):
        assert eventually(Watched(folder).is_at_rest)
        with open_store(folder) as client:
            assert "valkey_version" in client.info("server")
            assert contents(client) == of_redis
    with Queue("jobs", url=f"embedded://{folder}") as queue:
        assert {message.id for message in queue.dead.list()} == {"dead"}


def test_killed_conversion_can_be_repeated(folder: Path, of_redis: dict[bytes, Any]):
    written = convert_store(folder).written
    assert eventually(Watched(folder).is_at_rest)
    write_version(folder, written)  # as a run that is killed before its end leaves it
    convert_store(folder)
    with open_store(folder) as client:
        assert contents(client) == of_redis


def test_repeated_conversion_does_not_name_a_copy_that_was_deleted(folder: Path, of_redis: dict[bytes, Any]):
    done = convert_store(folder)
    assert eventually(Watched(folder).is_at_rest)
    write_version(folder, done.written)  # as a run that is killed before its end leaves it
    shutil.rmtree(folder / KEPT)
    assert convert_store(folder) == done._replace(kept=None)
    assert not (folder / KEPT).exists()
    with open_store(folder) as client:
        assert contents(client) == of_redis


def test_copy_stays_when_a_conversion_fails_after_the_rewrite(
    folder: Path, of_redis: dict[bytes, Any], monkeypatch: pytest.MonkeyPatch
):
    (folder / KEPT).mkdir()  # from an earlier run that was killed: it is out of date
    with monkeypatch.context() as context:
        context.setattr(convert, "write_version", Mock(side_effect=OSError("no space left")))
        with pytest.raises(OSError, match="no space left"):
            convert_store(folder)
    (base,) = (folder / KEPT).glob("*.base.rdb")
    assert base.read_bytes().startswith(b"REDIS")
    assert eventually(Watched(folder).is_at_rest)
    convert_store(folder)
    assert base.read_bytes().startswith(b"REDIS")
    with open_store(folder) as client:
        assert contents(client) == of_redis


def test_failed_conversion_leaves_the_store_usable_by_redis(
    folder: Path, of_redis: dict[bytes, Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DELAYQ_REDIS_SERVER", script(folder.parent, "Valkey server v=9.1.2", "echo no; exit 1"))
    with pytest.raises(StoreError, match=rf"(?s){folder} ended:.*no"):
        convert_store(folder)
    assert not (folder / KEPT).exists()
    use_program(monkeypatch, "8.2")
    with open_store(folder) as client:
        assert contents(client) == of_redis


def test_store_in_use_is_not_converted(folder: Path, of_redis: dict[bytes, Any], monkeypatch: pytest.MonkeyPatch):
    use_program(monkeypatch, "8.2")
    with open_store(folder) as client:
        use_program(monkeypatch, "valkey-9.1")
        with pytest.raises(StoreError, match=f"{folder} is in use"):
            convert_store(folder)
        assert contents(client) == of_redis
    assert not (folder / KEPT).exists()


def test_store_that_needs_no_conversion_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch):
    use_program(monkeypatch, "valkey-9.1")
    with pytest.raises(StoreError, match=f"no store in {folder}"):
        convert_store(folder)
    open_store(folder).close()
    with pytest.raises(StoreError, match=f"{folder} was written by valkey .*: it needs no conversion"):
        convert_store(folder)


def test_server_that_cannot_convert_names_the_one_that_can(folder: Path, monkeypatch: pytest.MonkeyPatch):
    folder.mkdir()
    write_version(folder, Version("redis", (8, 2, 3)))
    for said in ("Valkey server v=8.0.1", "Redis server v=7.0.15"):
        monkeypatch.setenv("DELAYQ_REDIS_SERVER", script(folder.parent, said))
        with pytest.raises(StoreTooNew, match=r"redis 8\.2\.3, which .* cannot convert: .*pip install .*embedded"):
            convert_store(folder)
