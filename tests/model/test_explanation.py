"""The sentence that says why a message has not been delivered."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import msgspec
import pytest

from delayq.model.configuration import Configuration
from delayq.model.consumer_info import UNSEEN_MS, ConsumerInfo, Held
from delayq.model.envelope import FORMAT, RAW, Envelope
from delayq.model.event import Event
from delayq.model.explanation import MOST_ERROR, Known, Standing, why
from delayq.model.message_info import MessageInfo
from delayq.model.queue_stats import QueueStats
from delayq.model.units import from_ms

NOW = 1_700_000_000_000
SEEN = ("web-7", NOW - 2000)


def at(seconds: float) -> dt.datetime:
    return from_ms(NOW + seconds * 1000)


def entry(event: str, seconds: float, attempt: int | None = None, **more: Any) -> Event:
    """An entry of the ledger."""
    return Event(id="a", event=event, at=at(seconds), attempt=attempt, entry="1-1", **more)


def info(state: Any, **more: Any) -> MessageInfo:
    used = more.get("attempts", 0) - (state == "unack")
    given = {"envelope": Envelope(FORMAT, RAW, b"x", 3), "retries_used": used} | more
    return MessageInfo(id="a", queue="jobs", state=state, **given)


def holds(name: str, since: float, attempt: int, timeout: float | None = None) -> ConsumerInfo:
    """A consumer that has recorded that it holds the message."""
    return ConsumerInfo(
        name=name,
        host="h",
        pid=1,
        version="1",
        at=at(0),
        seen_at=at(0),
        started_at=at(-60),
        concurrency=1,
        handled=0,
        failed=0,
        holds=(Held("a", at(since), attempt, timeout),),
    )


def sentence(
    message: MessageInfo | None,
    limits: dict[str, Any] | None = None,
    seen: Any = SEEN,
    ledger: Any = None,
    consumers: Any = (),
    stats: Any = None,
    rate: float = 0.0,
    **more: Any,
) -> str:
    """The sentence, with each time replaced by its distance from now: <in 5s>."""
    standing = Standing(NOW, None, 0, 0, None, None, None)._replace(**more)
    known = Known("jobs", "a", message, standing, Configuration(**(limits or {})), seen, ledger, consumers, stats)
    text = why(known._replace(rate=rate))
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d \(([^)]*)\)", r"<\1>", text)


DUE = info("ready", due_at=at(-3))
FAILED = info("retry", due_at=at(5), attempts=2, error="ValueError: boom")
RUNS = info("unack", lease_until=at(28), attempts=2)
LOST = info("unack", lease_until=at(-2), attempts=2)
PARKED = info("pending", due_at=at(60))
GIVEN = entry("delivered", -2, 2, consumer="web-7")
TOO_OLD = ("web-7", NOW - 300_000)

BUT = "has been due since <3s ago>, but"
SOON = "has been due since <3s ago>, and is handed out as soon as a consumer has room:"
NEXT = "and its next attempt"
LEDGER = {"events": 1000}
NEVER = "is not in queue jobs: it was never sent, or is gone"
ENDED = "the lease of attempt 2 ended at <2s ago>"
NOBODY = "an unknown consumer"
CANCELLED = "it will not be retried because it was cancelled"
AGAIN = "with its key may run at a time; a consumer looks again by <in 1m>"

GONE = [
    (
        sentence(None),
        f"{NEVER}; the ledger would say how, but it is off",
    ),
    (
        sentence(None, LEDGER, ledger=[]),
        "is not in queue jobs: it was never sent, or has been gone for longer than the ledger reaches back",
    ),
    (sentence(None, LEDGER), f"{NEVER}; the ledger would say how, but it cannot be read"),
    (sentence(info("garbage")), "is gone from queue jobs: it was cancelled or purged, or it expired"),
    (sentence(None, ledger=[GIVEN, entry("acked", -1, 2)]), "was acked at <1s ago> by attempt 2"),
    (sentence(None, ledger=[entry("cancelled", -1)]), "was cancelled at <1s ago>"),
    (sentence(info("garbage"), ledger=[entry("cancelled", -90)]), "was cancelled at <1m 30s ago>"),
    (
        sentence(None, ledger=[entry("cancelled", -1, reason="its schedule has changed")]),
        "was cancelled at <1s ago>, because its schedule has changed",
    ),
    (sentence(None, ledger=[entry("expired", -1, 1)]), "expired at <1s ago>"),
    (sentence(None, ledger=[entry("purged", -1)]), "was purged at <1s ago>"),
    (
        sentence(None, ledger=[GIVEN]),
        'is gone from queue jobs: the last entry of the ledger about it is "delivered", at <2s ago>',
    ),
]
NOT_DUE = [
    (sentence(info("pending", due_at=at(185))), "is not due until <in 3m 5s>"),
    (sentence(info("pending", due_at=at(185)), paused_ms=NOW, seen=None), "is not due until <in 3m 5s>"),
    (
        sentence(info("pending", due_at=at(185), expires_at=at(60))),
        "is not due until <in 3m 5s>, but expires before, at <in 1m>",
    ),
    (sentence(info("pending", due_at=at(185), expires_at=at(185))), "is not due until <in 3m 5s>"),
    (sentence(FAILED), f"has failed 2 times, the last time with ValueError: boom, {NEXT} is not due until <in 5s>"),
    (sentence(info("retry", due_at=at(5), attempts=1)), f"has failed once, {NEXT} is not due until <in 5s>"),
    (
        sentence(info("retry", due_at=at(5), attempts=0, error="UnknownTask: x")),
        f"has not been started: UnknownTask: x, {NEXT} is not due until <in 5s>",
    ),
]
IS_DUE = [
    (sentence(DUE, paused_ms=NOW - 9000), f"{BUT} the queue has been paused since <9s ago>"),
    (sentence(DUE, seen=None), f"{BUT} no consumer of queue jobs has ever been seen"),
    (sentence(DUE, seen=TOO_OLD), f"{BUT} no consumer of queue jobs has been seen for 5m (the last was web-7)"),
    (sentence(DUE, seen=("web-7", NOW - UNSEEN_MS)), f"{SOON} web-7 was seen 30s ago"),
    (sentence(DUE, seen=("web-7", NOW + 5)), f"{SOON} web-7 was seen 0ms ago"),
    (sentence(info("pending", due_at=at(-3))), f"{SOON} web-7 was seen 2s ago"),
    (
        sentence(DUE, {"concurrency": 20}, running=20, free=0, earlier=3),
        f"{BUT} is held back by the concurrency limit: 20 of 20 allowed messages are running",
    ),
    (
        sentence(DUE, {"rate": "100/s"}, free=0, opens_ms=NOW + 250),
        f"{BUT} is held back by the rate limit of 100/s: the next is handed out at <in 250ms>",
    ),
    (
        sentence(DUE, {"rate": "9/s"}, free=0, opens_ms=NOW + 250, earlier=1200),
        (
            f"{BUT} is held back by the rate limit of 9/s: the next is handed out at <in 250ms>, "
            "and 1,200 messages are due earlier"
        ),
    ),
    (
        sentence(DUE, {"rate": "100/s", "concurrency": 5}, free=3, running=2, earlier=1, opens_ms=NOW + 250),
        f"{BUT} waits behind others: 1 message is due earlier",
    ),
    (sentence(DUE, earlier=12), f"{BUT} waits behind others: 12 messages are due earlier"),
    (
        sentence(DUE, earlier=1199, rate=4.0),
        (
            f"{BUT} waits behind others: 1,199 messages are due earlier; "
            "at the rate of the last minutes, 4 per second, it is handed out at about <in 5m>"
        ),
    ),
    (sentence(DUE, earlier=1, rate=4.0), f"{BUT} waits behind others: 1 message is due earlier"),
    (sentence(DUE, earlier=10**9, rate=1e-9), f"{BUT} waits behind others: 1,000,000,000 messages are due earlier"),
    (sentence(info("pending", due_at=at(60)), earlier=10, rate=1.0), "is not due until <in 1m>"),
    (
        sentence(info("pending", due_at=at(60)), earlier=119, rate=1.0),
        "is not due until <in 1m>; at the rate of the last minutes, 1 per second, it is handed out at about <in 2m>",
    ),
    (
        sentence(info("retry", due_at=at(-3), attempts=1, error="E"), paused_ms=NOW - 9000),
        f"has failed once, the last time with E, {NEXT} {BUT} the queue has been paused since <9s ago>",
    ),
    (
        sentence(info("ready", due_at=at(-3), expires_at=at(-1)), paused_ms=NOW),
        f"{BUT} it expired at <1s ago>: the next consumer drops it",
    ),
    (
        sentence(info("ready", due_at=at(-3), envelope=None)),
        f"{BUT} its payload is gone or unreadable: the next consumer moves it to the dead letters",
    ),
    (
        sentence(PARKED, {"concurrency_per_key": 2}, parked=(NOW + 60_000, NOW - 3000)),
        f"{BUT} is held back by the limit per key: 2 messages {AGAIN}",
    ),
    (
        sentence(PARKED, {"concurrency_per_key": 1}, parked=(NOW + 60_000, NOW - 3000)),
        f"{BUT} is held back by the limit per key: 1 message {AGAIN}",
    ),
    (
        sentence(info("pending", due_at=at(-2)), {"concurrency_per_key": 2}, parked=(NOW - 2000, NOW - 3000)),
        "has been due since <3s ago>, and is handed out as soon as a consumer has room: web-7 was seen 2s ago",
    ),
    (
        sentence(PARKED, parked=(NOW + 60_000, NOW - 3000)),
        f"{BUT} is held back by the limit per key, which was removed: a consumer looks again by <in 1m>",
    ),
    (sentence(PARKED, {"concurrency_per_key": 2}, parked=(NOW + 9, NOW - 3000)), "is not due until <in 1m>"),
]
RUNNING = [
    (sentence(RUNS), f"is running: attempt 2 is held by {NOBODY} until <in 28s>"),
    (
        sentence(RUNS, consumers=[holds("web-7", -1920, 2)], stats=QueueStats(queue="jobs", handler_time={4096: 9})),
        (
            "is running: attempt 2 is held by consumer web-7 until <in 28s>; it has been held for 32m, "
            "far longer than usual: 99 % of handlers took less than 4.1s"
        ),
    ),
    (
        sentence(
            info("unack", attempts=1, lease_until=at(28), timeout=60.0),
            consumers=[holds("web-7", -90, 1)],
            stats=QueueStats(queue="jobs"),
        ),
        (
            "is running: attempt 1 is held by consumer web-7 until <in 28s>; it has been held for 1m 30s, "
            "longer than its time limit of 1m"
        ),
    ),
    (
        sentence(
            info("unack", attempts=2, lease_until=at(28), timeout=7200.0),
            consumers=[holds("web-7", -1920, 2)],
            stats=QueueStats(queue="jobs", handler_time={4096: 9}),
        ),
        "is running: attempt 2 is held by consumer web-7 until <in 28s>",
    ),
    (
        sentence(
            RUNS, consumers=[holds("web-7", -1920, 2, 7200.0)], stats=QueueStats(queue="jobs", handler_time={4096: 9})
        ),
        "is running: attempt 2 is held by consumer web-7 until <in 28s>",
    ),
    (
        sentence(RUNS, consumers=[holds("web-7", -1920, 2)], stats=QueueStats(queue="jobs")),
        "is running: attempt 2 is held by consumer web-7 until <in 28s>",
    ),
    (sentence(RUNS, ledger=[GIVEN]), "is running: attempt 2 is held by consumer web-7 until <in 28s>"),
    (
        sentence(RUNS, consumers=[holds("web-7", -9, 2), holds("web-8", -2, 2), holds("web-9", -1, 1)]),
        "is running: attempt 2 is held by consumer web-8 until <in 28s>",
    ),
    (
        sentence(RUNS, ledger=[entry("delivered", -2, 1, consumer="web-7")]),
        f"is running: attempt 2 is held by {NOBODY} until <in 28s>",
    ),
    (
        sentence(info("unack", lease_until=at(28), attempts=1, cancelled=True)),
        f"is running: attempt 1 is held by {NOBODY} until <in 28s>; {CANCELLED}",
    ),
    (sentence(LOST), f"was lost: {ENDED}, and a consumer is about to take it back"),
    (
        sentence(LOST, seen=TOO_OLD, ledger=[GIVEN]),
        f"was lost by consumer web-7: {ENDED}, and no consumer of queue jobs has been seen for 5m (the last was web-7)",
    ),
]
DEAD = [
    (
        sentence(info("dead", died_at=at(-60), reason="retries-exhausted", error="ValueError: boom", attempts=4)),
        "has been dead since <1m ago>, with the reason: retries-exhausted: ValueError: boom",
    ),
    (
        sentence(info("dead", died_at=at(-60), reason="no price", error="Reject: no price")),
        "has been dead since <1m ago>, with the reason: Reject: no price",
    ),
    (
        sentence(info("dead", died_at=at(-60), reason="unwanted")),
        "has been dead since <1m ago>, with the reason: unwanted",
    ),
    (sentence(info("dead", died_at=at(-60))), "has been dead since <1m ago>, for an unknown reason"),
]
CASES = [*GONE, *NOT_DUE, *IS_DUE, *RUNNING, *DEAD]


@pytest.mark.parametrize(("wanted", "expected"), CASES, ids=map(str, range(len(CASES))))
def test_sentence_says_what_holds_a_message_back(wanted: str, expected: str):
    assert wanted == f"a {expected}"


def test_occurrence_is_shown_with_its_schedule():
    headers = {"delayq-schedule": "nightly", "delayq-slot": NOW, "delayq-plan": '{"when":"@daily"}'}
    occurrence = msgspec.structs.replace(info("pending", due_at=at(3600)), id=f"nightly@{NOW}")
    text = sentence(msgspec.structs.replace(occurrence, envelope=Envelope(FORMAT, RAW, b"", 0, None, headers)))
    assert text == "a, an occurrence of schedule nightly, is not due until <in 1h>"


def test_long_error_is_cut_to_one_line():
    text = sentence(info("retry", due_at=at(5), attempts=1, error="boom\n\tat " + "x" * 1000))
    assert "boom at xxx" in text
    assert "xx…, and its next attempt" in text
    assert len(text) < MOST_ERROR + 100


def test_time_is_shown_with_its_date_and_zone():
    text = why(Known("jobs", "a", info("pending", due_at=at(5)), Standing(NOW, None, 0, 0, None, None, None)))
    assert text == f"a is not due until {at(5).astimezone().isoformat(' ', 'milliseconds')} (in 5s)"
