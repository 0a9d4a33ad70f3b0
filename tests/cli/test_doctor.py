"""doctor prints faults in words, repairs them on demand, and sets the exit code."""

from __future__ import annotations

import json
import re
from importlib import metadata
from typing import Any

import pytest

from delayq import Queue
from tests.cli.conftest import Invoke
from tests.conftest import StartServer
from tests.harness.servers import RedisServer


@pytest.fixture
def sick(queue: Queue, redis_client: Any) -> Queue:
    """A queue with one correct message, and one without its payload."""
    queue.send("payload", delay=3600, id="well")
    queue.send("payload", delay=3600, id="lost")
    redis_client.delete("delayq:{emails}:msg:lost")
    return queue


def test_healthy_queues_are_called_healthy(invoke: Invoke, queue: Queue, server: RedisServer):
    queue.send("payload", delay=3600)
    with Queue("orders", url=server.url, shards=3) as orders:
        for number in range(10):
            orders.send(number, delay=3600)
    result = invoke("doctor")
    assert result.exit_code == 0
    *reports, versions = result.stdout.splitlines()
    assert reports == ["emails: healthy, 1 message examined", "orders: healthy, 10 messages examined"]
    installed = f"versions: delayq {metadata.version('delayq')}, redis-py {metadata.version('redis')}, "
    assert re.fullmatch(re.escape(installed) + r"(Redis|Valkey) [\d.]+", versions)


def test_fault_is_reported_with_its_message_and_exit_code_1(invoke: Invoke, sick: Queue):
    result = invoke("doctor", sick.name)
    assert result.exit_code == 1
    first, *findings = result.stdout.splitlines()
    assert first == "emails: NOT healthy, 2 messages examined"
    assert [
        line for line in findings if line.startswith("  error: message lost is in pending, but its payload is gone")
    ]
    assert "well" not in result.stdout


def test_repair_prints_each_step_and_leaves_the_queue_healthy(invoke: Invoke, sick: Queue):
    result = invoke("doctor", "--repair")
    assert result.exit_code == 0
    assert result.stderr.startswith("emails: message lost is in pending, but its payload is gone")
    assert "  repaired: message lost " in result.stdout
    assert invoke("doctor").exit_code == 0
    info = sick.get("lost")
    assert info is not None
    assert (info.state, info.reason) == ("dead", "payload-missing")


def test_one_sick_queue_among_several_makes_the_exit_code_1(invoke: Invoke, sick: Queue, server: RedisServer):
    with Queue("orders", url=server.url) as orders:
        orders.send("payload", delay=3600)
    result = invoke("doctor", "--json")
    assert result.exit_code == 1
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["queue"], each["healthy"], each["messages"]) for each in documents] == [
        (sick.name, False, 2),
        ("orders", True, 1),
    ]
    (finding,) = [each for each in documents[0]["findings"] if each["id"] == "lost"]
    assert finding.keys() == {"kind", "id", "text", "remedy", "severity", "repaired"}
    assert (finding["severity"], finding["repaired"]) == ("error", False)


def test_server_settings_are_a_warning_printed_once(invoke: Invoke, start_server: StartServer):
    server = start_server()
    with Queue("emails", url=server.url) as queue:
        queue.send("payload", delay=3600)
    result = invoke("doctor", "--url", server.url)
    assert result.exit_code == 0
    assert "  warning: the server keeps nothing on disk" in result.stdout
    assert result.stderr == ""


def test_file_that_was_sent_leaves_the_queue_healthy(invoke: Invoke, tmp_path: Any):
    (tmp_path / "emails.jsonl").write_text('{"payload": 1, "delay": "1h"}\n' * 3)
    invoke("send", "emails", "--file", "emails.jsonl")
    assert invoke("doctor").stdout.startswith("emails: healthy, 3 messages examined\n")


def test_server_without_queues_is_healthy(invoke: Invoke):
    result = invoke("doctor")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "no queues\n"
