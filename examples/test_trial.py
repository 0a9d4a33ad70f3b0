#!/usr/bin/env python3
"""Test code that sends messages days ahead, in milliseconds and without a server.

A trial lasts two weeks. Unless the user subscribes, they get a reminder three days before the end, and a notice when
the trial is over. The first part of this file would be a module of the shop; the second part has its tests. The tests
use the program's own queue: `in_memory` replaces its storage for the duration of a test.

    pytest examples/test_trial.py
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from delayq import Message, Queue, Reject, backoff
from delayq.testing import Clock, assert_dead, assert_empty, assert_not_sent, assert_sent, in_memory

# -- the code under test -----------------------------------------------------------------------------------------------

trials = Queue("trials", max_retries=3, backoff=backoff.sequence([60, 600, 3600]))
subscribers: set[int] = set()
mailbox: list[tuple[str, str]] = []


class MailServer:
    """A mail server that can be down."""

    up = True


def begin_trial(user: int, address: str) -> None:
    for step, days in (("remind", 11), ("end", 14)):
        trials.send({"user": user, "to": address, "step": step}, delay=timedelta(days=days), id=f"{step}-{user}")


def subscribe(user: int) -> None:
    subscribers.add(user)
    for step in ("remind", "end"):
        trials.cancel(f"{step}-{user}")


@trials.handler
def proceed(message: Message) -> None:
    user, address, step = (message.payload[name] for name in ("user", "to", "step"))
    if "@" not in address:
        raise Reject(f"{address} is not an address")
    if user in subscribers:  # the message had already been delivered
        return
    if not MailServer.up:
        raise ConnectionError("the mail server is down")
    mailbox.append((address, "three days left" if step == "remind" else "your trial is over"))


# -- its tests ---------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    mailbox.clear()
    subscribers.clear()
    monkeypatch.setattr(MailServer, "up", True)
    with in_memory(trials) as clock:
        yield clock


def test_user_is_reminded_three_days_before_the_end(clock: Clock) -> None:
    begin_trial(7, "ann@example.org")
    assert_sent(trials, {"user": 7, "to": "ann@example.org", "step": "remind"}, due_in=timedelta(days=11))
    clock.run_for(days=10, hours=23)
    assert mailbox == []
    clock.run_for(hours=1)
    assert mailbox == [("ann@example.org", "three days left")]
    clock.run_for(days=3)
    assert mailbox[1:] == [("ann@example.org", "your trial is over")]
    assert_empty(trials)


def test_subscriber_gets_no_more_mails(clock: Clock) -> None:
    begin_trial(7, "ann@example.org")
    clock.run_for(days=5)
    subscribe(7)
    assert_not_sent(trials)
    assert clock.run_for(days=30) == []


def test_mail_is_retried_after_the_server_was_down(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_trial(7, "ann@example.org")
    clock.advance(days=11)
    monkeypatch.setattr(MailServer, "up", False)
    with pytest.raises(ConnectionError):  # a handler's error is raised here, after its message is scheduled for a retry
        clock.run_due()
    monkeypatch.setattr(MailServer, "up", True)
    clock.run_for(minutes=1)
    assert mailbox == [("ann@example.org", "three days left")]


def test_mail_that_always_fails_becomes_a_dead_letter(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    begin_trial(7, "ann@example.org")
    monkeypatch.setattr(MailServer, "up", False)
    deliveries = clock.run_for(days=12, raise_errors=False)
    assert [message.attempt for message in deliveries] == [1, 2, 3, 4]
    assert_dead(trials, id="remind-7", reason="retries-exhausted", error="mail server is down")


def test_invalid_address_is_not_retried(clock: Clock) -> None:
    begin_trial(8, "nobody")
    clock.run_for(days=11)
    dead = assert_dead(trials, {"user": 8, "to": "nobody", "step": "remind"}, reason="nobody is not an address")
    assert dead.attempts == 1


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
