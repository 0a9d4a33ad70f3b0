"""What a user learns from errors and the log, and refusals instead of silent changes."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import structlog

from delayq import Consumer, DuplicateMessage, Message, Outgoing, Queue, Reject
from delayq.errors import InvalidURL, NotReplicated, PayloadNotSerializable


@pytest.fixture
def queue(redis_client: redis.Redis) -> Queue:
    return Queue("jobs", redis=redis_client)


def test_unconfirmed_send_can_be_repeated_with_the_id_in_its_error(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.operations.send.REPLICA_TIMEOUT_MS", 20)
    with pytest.raises(NotReplicated) as refusal:
        queue.send("pay", wait_replicas=1, delay=60)
    (sent,) = refusal.value.sent
    assert sent.id in str(refusal.value)
    assert not queue.send("pay", id=sent.id, delay=60).created
    assert queue.stats().pending == 1


def test_duplicates_among_many_are_reported_with_the_results_of_the_others(queue: Queue) -> None:
    queue.send("x", id="a")
    with pytest.raises(DuplicateMessage, match="all others were sent") as refusal:
        queue.send_many([Outgoing(n, id=n, on_conflict="error") for n in ("a", "b")])
    assert [(sent.id, sent.created) for sent in refusal.value.sent] == [("a", False), ("b", True)]
    assert queue.stats().pending == 2


def test_message_that_no_handler_sees_is_logged(redis_client: redis.Redis) -> None:
    now = [1_000_000.0]
    queue = Queue("jobs", redis=redis_client, clock=lambda: now[0], lease=1)
    queue.send("lost", id="lost", max_retries=0)
    assert [message.id for message in queue.receive()] == ["lost"]
    queue.send("late", id="late", expires_in=1)
    queue.send("gone", id="gone")
    redis_client.delete("delayq:{jobs}:msg:gone")
    queue.send("broken", id="broken")
    redis_client.set("delayq:{jobs}:msg:broken", b"?")
    now[0] += 2000
    with structlog.testing.capture_logs() as lines:
        assert Consumer(queue, lambda _: None).drain() == 0
    found = {line["id"]: (line["event"], line.get("reason"), line["attempt"]) for line in lines if "id" in line}
    died = "message dead-lettered"
    assert found == {
        "lost": (died, "consumer-lost", 2),
        "late": ("message expired", None, 1),
        "gone": (died, "payload-missing", 1),
        "broken": (died, "unreadable-envelope", 1),
    }


def test_log_of_a_failure_has_a_traceback_but_that_of_a_deliberate_outcome_does_not(queue: Queue) -> None:
    def handle(message: Message) -> None:
        if message.payload == "reject":
            raise Reject("unwanted")
        raise ZeroDivisionError("deep in the handler")

    queue.send_many([Outgoing(what, id=what, max_retries=0) for what in ("fail", "reject")])
    with structlog.testing.capture_logs() as lines:
        Consumer(queue, handle).drain()
    traces = {line["id"]: line.get("exc_info") for line in lines if line["event"] == "delivery failed"}
    assert isinstance(traces["fail"][1], ZeroDivisionError)  # type: ignore[index]
    assert traces["reject"] is None


@pytest.mark.parametrize("payload", [float("nan"), {"a": [1.0, None, float("inf")]}])
def test_number_that_json_cannot_express_is_refused(queue: Queue, payload: Any) -> None:
    with pytest.raises(PayloadNotSerializable, match="NaN"):
        queue.send(payload)
    assert queue.stats().sent == 0


def test_null_is_a_payload_like_any_other(queue: Queue) -> None:
    queue.send({"a": None, "b": ["null", 1.5]})
    assert queue.receive()[0].payload == {"a": None, "b": ["null", 1.5]}


def test_empty_url_is_not_treated_as_a_missing_one() -> None:
    with pytest.raises(InvalidURL, match="url=''"):
        Queue("jobs", url="").stats()
