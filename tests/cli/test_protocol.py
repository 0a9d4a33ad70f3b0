"""protocol: a program that is not delayq sends by the script that the command prints, as docs/protocol.md says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

from delayq import Message, Queue, __version__
from tests.cli.conftest import Invoke
from tests.harness.servers import RedisServer
from tests.harness.tree import ROOT

PAGE = (ROOT / "docs" / "protocol.md").read_text()
NODE = ROOT / "examples" / "node"


@pytest.fixture
def text(invoke: Invoke) -> str:
    return invoke("protocol", "--script", "send").stdout


def documented_keys() -> list[str]:
    row = re.search(r"^\| 1 to 11 \| `base` and (.*) \|$", PAGE, re.MULTILINE)
    assert row is not None
    return re.findall(r"`(\w+)`", row[1])


def send(
    client: redis.Redis, text: str, queue: str, payload: object, delay_ms: int, id: str, headers: Any = None
) -> Any:
    """Send as the pseudocode of the page does; return when it is due, ms."""
    _, shards = client.hmget(f"delayq:{{{queue}}}:meta", "format", "shards")
    shard = zlib.crc32(id.encode()) % int(shards) if shards else 0
    base = f"delayq:{{{queue}{f'#{shard}' if shard else ''}}}:"
    envelope = msgspec.msgpack.encode([1, 1, msgspec.json.encode(payload), 5, None, headers])
    if len(envelope) > 8192:
        envelope = b"0" * 13 + envelope
    keys = [*(base + name for name in documented_keys()), f"{base}msg:{id}"]
    (due,) = client.eval(text, len(keys), *keys, "", "1", id, f"+{delay_ms}", envelope)
    return due


def test_script_is_printed_with_its_version(invoke: Invoke, text: str):
    assert text.startswith(f"-- delayq {__version__}, protocol 1, script send\n")
    document = json.loads(invoke("protocol", "--script", "send", "--json").stdout)
    assert (document["protocol"], document["keys"]) == (1, documented_keys())
    assert document["text"] == text


@pytest.mark.parametrize("size", [10, 8100, 20_000])
@pytest.mark.parametrize("shards", [1, 3])
def test_message_sent_as_the_page_says_arrives(
    text: str, redis_client: redis.Redis, server: RedisServer, size: int, shards: int
):
    with Queue("letters", url=server.url, shards=shards) as queue:
        queue.stats()
        queue.send("first")
        ids = [f"order-{number}" for number in range(5)]
        for id in ids:
            assert send(redis_client, text, "letters", {"n": "x" * size}, 0, id, {"from": "elsewhere"}) > 0
            assert send(redis_client, text, "letters", {"n": 2}, 0, id) == -1
        later = send(redis_client, text, "letters", 1, 3_600_000, "later")
        info = queue.get("later")
        assert info is not None
        assert info.due_at is not None
        assert info.due_at.timestamp() * 1000 == pytest.approx(later)
        found: dict[str, Message] = {}
        while len(found) < 6:
            found |= {each.id: each for each in queue.receive(10, wait=5)}
        assert all(found[id].payload == {"n": "x" * size} for id in ids)
        assert {(found[id].headers["from"], found[id].max_retries) for id in ids} == {("elsewhere", 5)}
        assert queue.stats().sent == 7


def test_task_is_called_and_a_full_queue_refuses(text: str, redis_client: redis.Redis, queue: Queue):
    queue.configure(max_length=1)
    assert send(redis_client, text, "emails", {"user_id": 1}, 0, "a", {"delayq-task": "welcome"}) > 0
    assert send(redis_client, text, "emails", {"user_id": 1}, 0, "b") == -2
    info = queue.get("a")
    assert info is not None
    assert info.task == "welcome"


def test_script_that_lacks_a_feature_of_the_queue_is_refused(text: str, redis_client: redis.Redis, queue: Queue):
    queue.send("x")
    redis_client.hset("delayq:{emails}:meta", "needs", "99 9.9.9")
    with pytest.raises(redis.ResponseError, match=r"use delayq 9\.9\.9 or newer"):
        send(redis_client, text, "emails", 1, 0, "a")
    assert redis_client.exists("delayq:{emails}:msg:a") == 0


def test_other_scripts_are_internal(invoke: Invoke):
    done = invoke("protocol", "--script", "ack")
    assert (done.exit_code, "'ack' is not 'send'" in done.stderr) == (2, True)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example for Node, installed; it needs node, npm and the network."""
    for program in ("node", "npm"):
        assert shutil.which(program), f"{program} is needed for the producer in Node: install Node 20.15 or newer"
    folder = tmp_path_factory.mktemp("node")
    shutil.copytree(NODE, folder, dirs_exist_ok=True)
    words = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True, timeout=300)
    return folder


@pytest.mark.full
def test_producer_in_node_sends_as_delayq_does(node: Path, text: str, server: RedisServer, queue: Queue):
    (node / "send.lua").write_text(text)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["node", "producer.js", "emails", *words]
        environment = {"REDIS_URL": str(server.socket), "PATH": f"{Path(shutil.which('node') or '').parent}"}
        return subprocess.run(
            command, cwd=node, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    large = {"text": "ü" * 10_000, "n": [1, None, True]}
    sent = [json.loads(run(json.dumps(large), "--id", "a").stdout) for _ in range(2)]
    assert [(each["id"], each["created"]) for each in sent] == [("a", True), ("a", False)]
    assert json.loads(run('{"user_id": 42}', "--task", "welcome", "--delay", "3600000").stdout)["created"]
    (message,) = queue.receive(10)
    assert (message.id, message.payload, message.max_retries) == ("a", large, 5)
    message.ack()
    (waiting,) = queue.peek("pending")
    assert (waiting.task, waiting.payload) == ("welcome", {"user_id": 42})
    with server.client() as client:
        client.hset("delayq:{emails}:meta", "needs", "99 9.9.9")
    refused = run("1")
    assert (refused.returncode, "use delayq 9.9.9 or newer" in refused.stderr) == (1, True)


@pytest.mark.full
def test_producer_in_node_finds_the_shard(node: Path, text: str, server: RedisServer):
    (node / "send.lua").write_text(text)
    with Queue("emails", url=server.url, shards=3) as queue:
        queue.send("first")
        for number in range(6):
            words = ["node", "producer.js", "emails", str(number), "--id", f"order-{number}"]
            environment = {"REDIS_URL": str(server.socket), "PATH": f"{Path(shutil.which('node') or '').parent}"}
            subprocess.run(words, cwd=node, env=environment, check=True, capture_output=True, timeout=60)
        assert all(queue.get(f"order-{number}") is not None for number in range(6))
