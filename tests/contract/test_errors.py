"""Every class of the error tree is raised through the public API: here, or in the test of the part that raises it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq import Consumer, Outgoing, Queue, errors
from delayq.errors import DelayqError
from delayq.model.message import Message
from delayq.operations import send
from tests.contract.conftest import Make, Now

Raise = Callable[[Queue, redis.Redis], Any]


def received(queue: Queue, payload: Any = "x") -> Message:
    queue.send(payload, id="a")
    (message,) = queue.receive()
    return message


def settled_twice(queue: Queue, _: redis.Redis) -> None:
    message = received(queue)
    message.ack()
    message.ack()


def unreadable(queue: Queue, client: redis.Redis) -> Any:
    queue.send({"a": 1}, id="a")
    key = queue._context.shard("a").keys.message("a")
    stored = bytes(client.get(key))  # type: ignore[arg-type]  # bytes, as this client does not decode
    client.set(key, stored.replace(b'{"a":1}', b'{"a":1,'))
    (message,) = queue.receive()
    return message.payload


def full(queue: Queue, client: redis.Redis) -> None:
    queue.send("x")
    client.config_set("maxmemory", 1)
    try:
        queue.send("y")
    finally:
        client.config_set("maxmemory", 0)


def bounded(queue: Queue, _: redis.Redis) -> None:
    queue.configure(max_length=1)
    queue.send("x")
    queue.send("y")


def recorded(name: str, value: str) -> Raise:
    def call(queue: Queue, client: redis.Redis) -> None:
        client.hset(queue._context.shards[0].keys.meta, mapping={"format": "1", "shards": "1", name: value})
        queue.send("x")

    return call


HERE: dict[type[DelayqError], Raise] = {
    errors.InvalidInput: lambda queue, _: queue.send("x", max_retries=-1),
    errors.InvalidName: lambda queue, _: queue.cancel(""),
    errors.InvalidTime: lambda queue, _: queue.send("x", delay=-1),
    errors.PayloadTooLarge: lambda queue, _: queue.send("x" * 2**20),
    errors.PayloadNotSerializable: lambda queue, _: queue.send(object()),
    errors.DuplicateMessage: lambda queue, _: queue.send_many([Outgoing(n, id="a", on_conflict="error") for n in "ab"]),
    errors.StaleReceipt: settled_twice,
    errors.UnreadableEnvelope: unreadable,
    errors.NotReplicated: lambda queue, _: queue.send("x", wait_replicas=1),
    errors.FormatTooNew: recorded("format", "3"),
    errors.ClientTooOld: recorded("needs", "99 9.0.0"),
    errors.ShardsMismatch: recorded("shards", "7"),
    errors.ServerOutOfMemory: full,
    errors.QueueFull: bounded,
    errors.HandlerMissing: lambda queue, _: Consumer(queue),
}
# The errors that Queue cannot be made to raise here, and the test of each.
ELSEWHERE: dict[type[DelayqError], str] = {
    errors.InvalidURL: "transport/test_url.py",
    errors.StartFailed: "contract/test_hooks.py",
    errors.ServerUnreachable: "transport/test_server_check.py",
    errors.LoginRefused: "transport/test_server_check.py",
    errors.ServerTooOld: "transport/test_server_check.py",
    errors.ServerNotReady: "transport/test_server_check.py",
    errors.NoEmbeddedServer: "transport/test_embedded_end.py",
    errors.StoreTooNew: "transport/test_embedded_end.py",
    errors.StoreError: "transport/test_embedded_end.py",
    errors.OtherShard: "contract/test_chaining.py",
    errors.KeyOverwritten: "topics/test_publishing.py",
    errors.RecordOrder: "topics/test_publishing.py",
    errors.UnknownGroup: "topics/test_groups.py",
    errors.UnknownConsumer: "topics/test_groups.py",
    errors.HoldsRecords: "topics/test_groups.py",
    errors.Reject: "runtime/test_engine.py",
    errors.RetryAfter: "runtime/test_engine.py",
    errors.PayloadMismatch: "model/test_typed_payload.py",
    errors.WrongArguments: "contract/test_tasks.py",
    errors.TaskFailed: "contract/test_results.py",
    errors.ResultTimeout: "contract/test_results.py",
    errors.NoResult: "contract/test_results.py",
    errors.NotKept: "contract/test_results.py",
    errors.UnknownTask: "runtime/test_handler_registry.py",
    errors.ReturnedFalse: "model/test_middleware.py",
    errors.PipelineError: "spark/test_drain_restore.py",
    errors.NoJava: "spark/test_java.py",
    errors.RowRefused: "spark/test_schedule_job.py",
    errors.DataLost: "spark/test_archive.py",
    errors.LakeMismatch: "lake/test_hydrate.py",
}
# Base classes, which are raised only as one of their subclasses.
BRANCHES = [
    DelayqError,
    errors.ResultError,
    errors.SendError,
    errors.QueueMismatch,
    errors.ServerError,
    errors.TopicError,
    errors.Verdict,
]


@pytest.mark.parametrize("cls", HERE, ids=lambda cls: cls.__name__)
def test_queue_raises_each_error_with_a_one_line_message(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, cls: type[DelayqError]
):
    monkeypatch.setattr(send, "REPLICA_TIMEOUT_MS", 10)
    queue = Queue("jobs", redis=redis_client, max_payload=1000)
    with pytest.raises(cls) as caught:
        HERE[cls](queue, redis_client)
    assert type(caught.value) is cls
    assert len(str(caught.value)) > 20
    assert "\n" not in str(caught.value)


def test_errors_raised_elsewhere_are_in_the_test_named_for_them():
    tests = Path(__file__).parents[1]
    assert [cls for cls, test in ELSEWHERE.items() if cls.__name__ not in (tests / test).read_text()] == []


def test_each_base_class_has_subclasses_that_are_raised():
    raised = {**HERE, **ELSEWHERE}
    assert [branch for branch in BRANCHES if not any(issubclass(leaf, branch) for leaf in raised)] == []


def test_every_error_class_is_raised_in_some_test():
    classes = {cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, DelayqError)}
    assert classes == {*HERE, *ELSEWHERE, *BRANCHES}


def test_all_errors_share_one_base_class(make: Make, now: Now):
    with pytest.raises(DelayqError):
        make("")
    assert now.ms
