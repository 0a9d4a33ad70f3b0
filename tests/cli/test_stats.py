"""stats --upcoming and --watch."""

from __future__ import annotations

import json
import re
import signal
from typing import Any

from delayq import Outgoing, Queue
from tests.cli.conftest import SECONDS, Invoke, Start


def test_upcoming_is_one_line_per_bucket(invoke: Invoke, queue: Queue):
    queue.send_many([Outgoing("x", delay=delay) for delay in (55, 175, 178)])
    queue.send("x")
    queue.receive()[0].nack(delay=55)
    lines = invoke("stats", "emails", "--upcoming", "--window", "3m", "--bucket", "1m").stdout.splitlines()
    assert lines[0].split() == ["due", "before", "new", "retries"]
    assert [re.split("in (?:[0-9.]+[ms] ?)+", line)[1].split() for line in lines[1:]] == [
        ["1", "1", "█" * 30],
        ["0", "0"],
        ["2", "0", "█" * 30],
    ]
    assert re.match(r"in (3m|2m \d+s) ", lines[3])


def test_upcoming_of_all_queues_leaves_out_empty_buckets(invoke: Invoke, queue: Queue, redis_client: Any):
    queue.send("x", delay=290)
    with Queue("other", redis=redis_client, shards=2) as other:
        other.send_many([Outgoing("x", delay=delay) for delay in (4000, 400, 400)])
    lines = invoke("stats", "--upcoming").stdout.splitlines()
    assert [(line.split()[0], re.split("in (?:[0-9.]+[ms] ?)+", line)[1].split()[0]) for line in lines[1:]] == [
        ("emails", "1"),
        ("other", "2"),
    ]


def test_upcoming_is_printed_as_json(invoke: Invoke, queue: Queue):
    queue.send("x", delay=599)
    documents = [json.loads(line) for line in invoke("stats", "emails", "--upcoming", "--json").stdout.splitlines()]
    assert [(each["queue"], each["pending"], each["retry"]) for each in documents] == [
        ("emails", int(number == 1), 0) for number in range(12)
    ]
    assert all(each["ends_at"] > each["starts_at"] for each in documents)


def test_nothing_upcoming_gets_a_note(invoke: Invoke, queue: Queue, redis_client: Any):
    queue.send("x", delay=86_400)
    with Queue("other", redis=redis_client) as other:
        other.send("x", delay=86_400)
    result = invoke("stats", "--upcoming")
    assert (result.stdout, result.stderr) == ("", "nothing falls due in this time\n")


def test_watched_counts_are_printed_repeatedly_until_ctrl_c(start: Start, queue: Queue):
    queue.send("x", delay=60)
    watching = start("stats", "emails", "--json", "--watch=100ms")
    assert watching.stdout is not None
    first = json.loads(watching.stdout.readline())
    queue.send("x", delay=60)
    assert any(json.loads(line)["pending"] == 2 for line in watching.stdout)
    watching.send_signal(signal.SIGINT)
    assert (first["pending"], watching.wait(SECONDS)) == (1, 0)


def test_watch_interval_must_be_in_range(invoke: Invoke):
    for given, said in (("10ms", "between 100ms and 1h"), ("often", "often")):
        result = invoke("stats", f"--watch={given}")
        assert (result.exit_code, said in result.stderr) == (2, True)
