"""consumers: the consumers of one or all queues."""

from __future__ import annotations

import json
import threading

from delayq import Consumer, Queue
from tests.cli.conftest import Invoke
from tests.harness.waiting import eventually


def test_consumers_are_listed_with_what_they_have_done(invoke: Invoke, queue: Queue):
    assert invoke("consumers", "emails").stderr == "no consumer of queue emails was seen within the last hour\n"
    assert invoke("consumers").stderr == "no consumer of any queue was seen within the last hour\n"
    held = threading.Event()
    consumer = Consumer(queue, lambda _: held.wait(60) and None, name="mailer")
    queue.send("payload")
    consumer.start()
    try:
        assert eventually(lambda: len(invoke("consumers", "emails").stdout.splitlines()) == 2)
        header, line = invoke("consumers", "emails").stdout.splitlines()
        assert header.split() == ["consumer", "seen", "handled", "failed", "holds"]
        assert (line.split()[0], "gone" in line) == ("mailer", False)
        assert invoke("consumers").stdout.splitlines()[1].split()[:2] == ["emails", "mailer"]
        (document,) = [json.loads(each) for each in invoke("consumers", "--json").stdout.splitlines()]
        assert (document["queue"], document["name"], document["alive"]) == ("emails", "mailer", True)
    finally:
        held.set()
        consumer.stop()


def test_program_that_receives_is_listed_without_counts(invoke: Invoke, queue: Queue):
    queue.send("payload")
    queue.receive()
    (line,) = invoke("consumers", "emails").stdout.splitlines()[1:]
    assert line.split()[-4:] == ["-", "-", "-", "receives"]
