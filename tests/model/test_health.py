"""The health of a queue, in words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from delayq import troubles
from delayq.model import rates
from delayq.model.configuration import Usage
from delayq.model.consumer_info import Held
from delayq.model.health import CODES, badness, group_troubles, lately, stuck
from delayq.model.record import GroupConsumer, GroupInfo
from delayq.model.show import show_moment
from delayq.model.units import from_ms
from delayq.types import ConsumerInfo, QueueStats

AT = 1_000_000_000  # ms


def counted(ms: int = AT, **stats: Any) -> QueueStats:
    return QueueStats(queue="q", at=from_ms(ms), **stats)


def consumer(unseen_ms: int = 0, name: str = "worker") -> ConsumerInfo:
    seen = from_ms(AT - unseen_ms)
    return ConsumerInfo(
        name=name, host="h", pid=1, version="0", at=from_ms(AT), seen_at=seen, started_at=seen,
        concurrency=1, handled=0, failed=0,
    )  # fmt: skip


def texts_by_code(stats: QueueStats, before: QueueStats | None = None, consumers: Any = ()) -> dict[str, str]:
    found = troubles(stats, rates.between(before, stats) if before else None, consumers)
    return {trouble.code: trouble.text for trouble in found}


def due(seconds: float) -> dict[str, Any]:
    return {"oldest_due_at": from_ms(AT - int(seconds * 1000)), "ready": 1, "sent": 1}


ALL_WELL: dict[str, tuple[Any, ...]] = {
    "an empty queue without a consumer": (counted(),),
    "messages that are due for a moment": (counted(**due(5)), None, [consumer()]),
    "one of two consumers is gone": (counted(**due(1)), None, [consumer(60_000), consumer(30_000)]),
    "deliveries a second late": (counted(lateness={1024: 99}), counted(AT - 60_000), [consumer()]),
    "one delivery of many very late": (counted(lateness={8: 99, 8192: 1}), counted(AT - 60_000), [consumer()]),
    "deliveries that were late long ago": (counted(lateness={8192: 5}), counted(AT - 60_000, lateness={8192: 5})),
    "messages that died long ago": (counted(sent=3, dead=3, died=3), counted(AT - 60_000, died=3)),
}


@pytest.mark.parametrize("case", ALL_WELL)
def test_healthy_queue_has_no_troubles(case: str):
    assert texts_by_code(*ALL_WELL[case]) == {}


def test_due_messages_without_a_consumer_are_reported():
    assert texts_by_code(counted(**due(2))) == {
        "no-consumer": "A message has been due for 2s, and there is no consumer."
    }
    text = "A message has been due for 2s, and no consumer has been seen for 1m 30s (the last was two)."
    assert texts_by_code(counted(**due(2)), None, [consumer(120_000, "one"), consumer(90_000, "two")]) == {
        "no-consumer": text
    }


def test_due_message_that_is_not_claimed_is_reported():
    assert texts_by_code(counted(**due(12)), None, [consumer()]) == {
        "late": "A message has been due for 12s, and no consumer has taken it."
    }


def test_paused_queue_is_only_paused():
    paused = counted(**due(12), paused_since=from_ms(AT - 60_000))
    since = show_moment(from_ms(AT - 60_000))
    for consumers in ([consumer()], []):
        assert texts_by_code(paused, None, consumers) == {
            "paused": f"The queue has been paused since {since} (1m ago)."
        }


def test_late_deliveries_are_reported():
    stats = counted(lateness={8: 98, 4096: 2})
    text = "At least 1 % of the deliveries in the last 1m were more than 2s late."
    assert texts_by_code(stats, counted(AT - 60_000), [consumer()]) == {"late": text}


def test_new_dead_letters_are_reported():
    stats = counted(sent=1205, dead=1205, died=1205)
    text = "1 message died within the last 30s; 1,205 are dead now."
    assert texts_by_code(stats, counted(AT - 30_000, died=1204)) == {"dead-growing": text}


@pytest.mark.parametrize(
    ("stats", "text"),
    [
        ({"sent": 3}, "3 sent messages are unaccounted for: run delayq doctor for details."),
        ({"ready": 1}, "1 message exists that was never counted: run delayq doctor for details."),
    ],
)
def test_missing_messages_are_reported(stats: dict[str, int], text: str):
    assert texts_by_code(counted(**stats)) == {"unaccounted": text}


def test_worst_trouble_comes_first():
    stats = counted(**due(60), died=2, dead=1, paused_since=from_ms(AT))
    assert list(texts_by_code(stats, counted(AT - 1000))) == ["unaccounted", "dead-growing", "paused"]
    going = counted(**due(60), died=2, dead=1)
    assert list(texts_by_code(going, counted(AT - 1000))) == ["no-consumer", "unaccounted", "late", "dead-growing"]


def test_recent_events_are_counted_over_the_last_five_minutes():
    minutes = [counted(AT - minute * 60_000, sent=100 - minute) for minute in (1, 9, 4, 5)]
    assert lately(counted(sent=100), minutes) == rates.between(minutes[3], counted(sent=100))
    assert lately(counted(sent=100), minutes[1:2]) == rates.between(minutes[1], counted(sent=100))
    assert lately(counted(sent=100), [counted(sent=100)]) is None


def group(**counts: Any) -> GroupInfo:
    return GroupInfo("mail", consumers=1, unacked=0, lag=0, position="0-0")._replace(**counts)


def member(idle: float, name: str = "one") -> GroupConsumer:
    return GroupConsumer(name, 0, idle)


GROUPS_ALL_WELL: dict[str, tuple[Any, ...]] = {
    "no lag and nobody there": (group(), []),
    "a lag and one of two consumers is gone": (group(lag=7), [member(3600), member(59)]),
    "a lag and nobody has asked for the consumers": (group(lag=7), None),
    "a lag that grows within a burst": (group(lag=1000), [member(1)], group(lag=1)),
    "a long lag that shrinks": (group(lag=5000), [member(1)], group(lag=5001)),
    "a long lag and no earlier count": (group(lag=5000), [member(1)]),
}


@pytest.mark.parametrize("case", GROUPS_ALL_WELL)
def test_healthy_topic_group_has_no_troubles(case: str):
    assert group_troubles(*GROUPS_ALL_WELL[case]) == []


@pytest.mark.parametrize(
    ("given", "code", "text"),
    [
        ((group(lag=1), []), "no-consumer", "The group is 1 record behind, and it has no consumer."),
        (
            (group(lag=1200, at_least=True), [member(3600), member(90, "two")]),
            "no-consumer",
            "The group is at least 1,200 records behind, and no consumer has been seen for 1m 30s (the last was two).",
        ),
        (
            (group(lag=1001), [member(1)], group(lag=800)),
            "behind",
            "The group is 1,001 records behind; a few minutes ago it was 800.",
        ),
        ((group(unacked=1), []), "no-consumer", "The group has 1 unacked record, and it has no consumer."),
        ((group(dead=2), []), "dead-letters", "The group has 2 dead letters."),
    ],
)
def test_topic_group_in_trouble_says_why(given: tuple[Any, ...], code: str, text: str):
    assert [(each.code, each.text) for each in group_troubles(*given)] == [(code, text)]


def holder(seconds: float, unseen_ms: int = 0, timeout: float | None = None, **more: Any) -> ConsumerInfo:
    seen = consumer(unseen_ms)
    held = Held("order-1", from_ms(AT - unseen_ms - int(seconds * 1000)), 2, timeout)
    return msgspec.structs.replace(seen, holds=(held,), holds_count=1, **more)


QUICK: dict[str, Any] = {"handler_time": {64: 90, 4096: 10}}
HANGS = "Attempt 2 of message order-1 has been held for"
SLOW = {"handler_time": {2**21: 50}}  # up to 35 minutes


@pytest.mark.parametrize(
    ("stats", "found", "text"),
    [
        (QUICK, holder(1920), f"{HANGS} 32m by consumer worker; 99 % of handlers took less than 4.1s."),
        ({}, holder(7200), ""),  # nothing is known about how long its handlers usually take
        (QUICK, holder(1920, timeout=7200.0), ""),
        (QUICK, holder(1920, timeout=60.0), f"{HANGS} 32m by consumer worker; 99 % of handlers took less than 4.1s."),
        ({}, holder(9, over_limit=1), "1 handler runs beyond the time limit, on consumer worker."),
        (QUICK, holder(9, over_limit=1), "1 handler runs beyond the time limit, on consumer worker."),
        (QUICK, holder(599), ""),
        (SLOW, holder(1920), ""),
        (SLOW, holder(20_973), f"{HANGS} 5h 49m by consumer worker; 99 % of handlers took less than 34m 57s."),
        (QUICK, holder(1920, unseen_ms=60_000), ""),
    ],
)
def test_handler_that_hangs_is_stuck(stats: dict[str, Any], found: ConsumerInfo, text: str):
    assert texts_by_code(counted(**stats), None, [found]).get("stuck", "") == text


@pytest.mark.parametrize(("concurrency", "count"), [(1, 1), (2, 2), (8, 5)])
def test_messages_that_wait_for_a_stuck_handler_are_not_stuck(concurrency: int, count: int):
    held = tuple(Held(f"order-{n}", from_ms(AT - 1_920_000), 1) for n in range(5))
    info = msgspec.structs.replace(consumer(), holds=held, holds_count=5, concurrency=concurrency)
    assert stuck(counted(**QUICK), [info]).total == count


def test_messages_that_wait_for_a_handler_within_its_time_limit_are_not_stuck():
    since = from_ms(AT - 1_920_000)
    held = (Held("report", since, 1, 7200.0), Held("next", since, 1))
    info = msgspec.structs.replace(consumer(), holds=held, holds_count=2)
    assert stuck(counted(**QUICK), [info]).total == 0


FULL = {"concurrency": 1, "running": 1}


@pytest.mark.parametrize(
    ("stats", "limits", "codes"),
    [
        (due(90), {}, ["late", "schedule-late"]),
        (due(90), FULL, ["limited"]),
        (due(90), {"rate": 1, "period_ms": 60_000, "handed_out": 1}, ["limited"]),
        ({"paused_since": from_ms(AT)}, {}, ["paused"]),
    ],
)
def test_late_schedule_is_reported_unless_a_pause_or_a_limit_holds_it_back(
    stats: dict[str, Any], limits: dict[str, int], codes: list[str]
):
    found = troubles(counted(**stats), None, [consumer()], Usage(late_schedules=1, latest_ms=90_000, **limits))
    assert [each.code for each in found] == codes
    shown = [each.text for each in found if each.code == "schedule-late"]
    assert shown in ([], ["1 schedule is late: its slot was 1m 30s ago, and no consumer has taken it."])


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {"rate": 5, "period_ms": 60_000, "handed_out": 5},
            {"limited": "the rate limit of 5 messages in 1m is used up"},
        ),
        (FULL, {"limited": "the limit of 1 message at once is used up"}),
        ({"rate": 1, "period_ms": 60_000, "handed_out": 0}, {"late": "no consumer has taken it"}),
        ({"rate": 5, "period_ms": 60_000, "handed_out": 4}, {"late": "no consumer has taken it"}),
        ({"concurrency": 3, "running": 2}, {"late": "no consumer has taken it"}),
        ({"rate": 100, "period_ms": 1000, "handed_out": 89}, {"late": "no consumer has taken it"}),
        (
            {"rate": 100, "period_ms": 1000, "handed_out": 95},
            {
                "late": "no consumer has taken it",
                "limited": "the rate limit of 100 messages in 1s is nearly used up, with 95",
            },
        ),
    ],
)
def test_messages_that_a_limit_holds_back_are_not_called_late(usage: dict[str, int], expected: dict[str, str]):
    reported = troubles(counted(**due(12)), None, [consumer()], Usage(**usage))
    found: dict[str, str] = {each.code: each.text for each in reported}
    assert found.keys() == expected.keys()
    assert all(found[code].endswith(f"{text}.") for code, text in expected.items())


@pytest.mark.parametrize(
    ("now", "is_reported"),
    [
        ({"dead": 4}, True),
        ({"dead": 0, "requeued": 4}, False),
        ({"dead": 96, "requeued": 5}, False),
        ({"dead": 0, "purged": 4}, False),
    ],
)
def test_dead_letters_grow_only_until_they_are_requeued_or_purged(now: dict[str, int], is_reported: bool):
    assert ("dead-growing" in texts_by_code(counted(died=4, **now), counted(AT - 30_000))) is is_reported


def test_critical_alerts_are_the_worst_troubles():
    assert CODES[:3] == ("unreadable", "no-consumer", "unaccounted")  # as in examples/monitoring/delayq.rules.yml
    codes = [["late"], ["paused"], ["unaccounted", "late"], ["no-consumer"], ["late", "stuck"]]
    assert sorted(codes, key=badness) == [codes[3], codes[2], codes[4], codes[0], codes[1]]
