from __future__ import annotations

from typing import Any

from tests.harness.lua.raw import LEASE, NOW, stamped

RECORD = {
    "token": "T",
    "status": "done",
    "started": "1000",
    "attempted": "1000",
    "attempts": "2",
    "consumers": "me\n",
    "value": "3",
    "at": f"{NOW}",
}


def kept(text: str = "3", status: str = "done", started: int = 1000, attempt: int = 2, consumer: str = "me") -> Any:
    """What a consumer gives to keep."""
    return (60_000, "T", status, started, attempt, consumer, text)


def running(queue: Any) -> None:
    queue.given(
        unack={"a": NOW + LEASE, "b": NOW + LEASE},
        attempts={"a": "1.0.0.0"},
        errors={"a": "E"},
        cancelled={"a"},
        messages={"a": stamped("A"), "b": stamped("B")},
    )


def ended(queue: Any) -> list[str]:
    return [fields["id"] for _, fields in queue.redis.xrange(queue.keys.finished)]


def test_message_is_gone_and_its_result_is_kept(queue):
    running(queue)
    assert queue.ack_result([("a", "1.0.0.0-0", kept())]) == [1]
    assert ended(queue) == ["a"]
    assert 0 < queue.redis.pttl(queue.keys.result("a")) <= 60_000
    queue.redis.delete(queue.keys.finished)
    assert queue.state() == {
        "unack": {"b": NOW + LEASE},
        "messages": {"b": stamped("B")},
        "result:a": RECORD | {"message": stamped("A")},
        "stats": {"acked": 1},
    }


def test_stale_delivery_changes_nothing(queue):
    running(queue)
    before = queue.state()
    assert queue.ack_result([("a", "0.0.0.0-0", kept()), ("c", "0.0.0.0-0", kept())]) == [0, 0]
    assert queue.state() == before


def test_replies_are_in_the_order_of_the_messages(queue):
    running(queue)
    given = [("c", "0.0.0.0-0", kept()), ("b", "0.0.0.0-0", kept("4")), ("a", "1.0.0.0-0", kept("5"))]
    assert queue.ack_result(given) == [0, 1, 1]
    assert [queue.redis.hget(queue.keys.result(each), "value") for each in "abc"] == ["5", "4", None]
    assert ended(queue) == ["b", "a"]


def test_record_of_an_earlier_message_is_replaced(queue):
    running(queue)
    queue.redis.hset(queue.keys.result("a"), mapping=RECORD | {"token": "old", "error": "{}", "consumers": "x\n"})
    queue.ack_result([("a", "1.0.0.0-0", kept())])
    assert queue.redis.hgetall(queue.keys.result("a")) == RECORD | {"message": stamped("A")}


def test_record_keeps_the_first_start_and_all_consumers(queue):
    queue.given(unack={"b": NOW + LEASE}, messages={"b": stamped("B")})
    queue.nack("b", "0.0.0.0-0", 0, "E", kept=kept('{"e":1}', status="retry", started=500, attempt=1, consumer="you"))
    assert ended(queue) == []
    receipt = queue.deliver("b")
    queue.ack_result([("b", receipt, kept())])
    assert queue.redis.hgetall(queue.keys.result("b")) == RECORD | {
        "started": "500",
        "consumers": "you\nme\n",
        "error": '{"e":1}',
        "message": stamped("B"),
    }


def test_key_that_another_program_has_overwritten_is_replaced(queue):
    running(queue)
    queue.redis.set(queue.keys.result("a"), "x")
    assert queue.ack_result([("a", "1.0.0.0-0", kept())]) == [1]
    assert queue.redis.hget(queue.keys.result("a"), "value") == "3"


def test_stream_of_ended_messages_is_capped(queue):
    for _ in range(30):
        ids = [f"m{i}" for i in range(100)]
        queue.given(unack=dict.fromkeys(ids, NOW + LEASE))
        queue.ack_result([(each, "0.0.0.0-0", kept()) for each in ids])
    assert 1000 <= queue.redis.xlen(queue.keys.finished) <= 1200
