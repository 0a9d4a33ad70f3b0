from __future__ import annotations

from typing import Any

from delayq.quarantine import Quarantine


class Fake:
    """A delivery, as far as the quarantine looks at it."""

    def __init__(self, name: str, suspect: bool = False) -> None:
        self.name = name
        self.is_suspect = suspect

    def __repr__(self) -> str:
        return self.name


def test_harmless_messages_pass():
    messages = [Fake("a"), Fake("b")]
    quarantine: Quarantine[Any] = Quarantine(10)
    assert quarantine.admit(messages) == (messages, [])
    assert quarantine.limit(7) == 7
    assert quarantine.released(messages) is None


def test_suspect_runs_once_it_is_all_that_is_held_and_nothing_is_claimed_beside_it():
    quarantine: Quarantine[Any] = Quarantine(10)
    harmless, suspect, other = Fake("harmless"), Fake("suspect", True), Fake("other", True)
    assert quarantine.admit([harmless, suspect, other]) == ([harmless], [other])
    assert quarantine.limit(7) == 0
    assert quarantine.waiting() == [suspect]
    assert quarantine.released([harmless, suspect]) is None
    assert quarantine.released([suspect]) is suspect
    assert quarantine.limit(7) == 0
    assert quarantine.waiting() == []
    assert quarantine.released([suspect]) is None
    assert quarantine.released([]) is None
    assert quarantine.limit(7) == 1  # the next may be a suspect, too
    assert quarantine.admit([Fake("next")])[1] == []
    assert quarantine.limit(7) == 7


def test_handler_that_takes_long_idles_the_others_half_of_the_time_at_most(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("delayq.quarantine.time.monotonic", lambda: now[0])
    quarantine: Quarantine[Any] = Quarantine(10)
    long, suspect = Fake("long"), Fake("suspect", True)
    quarantine.admit([long, suspect])
    allowed = []
    for second in range(40):
        now[0] = 100.0 + second
        allowed.append(quarantine.limit(5))
    assert allowed == ([0] * 10 + [5] * 10) * 2
    assert quarantine.admit([Fake("b", True)])[0] == []
    assert quarantine.waiting() == [suspect]
