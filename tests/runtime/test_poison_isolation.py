from __future__ import annotations

from typing import Any

import pytest

from delayq.runtime.poison_isolation import CLAIMS_OF_ONE, PoisonIsolation


class Fake:
    """A delivery, as the isolation sees it."""

    def __init__(self, name: str, suspect: bool = False) -> None:
        self.name = name
        self.is_suspect = suspect

    def __repr__(self) -> str:
        return self.name


def test_harmless_messages_pass():
    messages = [Fake("a"), Fake("b")]
    quarantine: PoisonIsolation[Any] = PoisonIsolation(10)
    assert quarantine.admit(messages, []) == (messages, [])
    assert quarantine.limit(7, messages) == 7


def test_lone_suspect_runs_and_nothing_is_claimed_beside_it():
    quarantine: PoisonIsolation[Any] = PoisonIsolation(10)
    suspect = Fake("suspect", True)
    assert quarantine.admit([suspect], []) == ([suspect], [])
    assert quarantine.limit(7, [suspect]) == 0
    assert quarantine.limit(7, []) == 1  # the next may be a suspect too


@pytest.mark.parametrize("with_it", [[], [Fake("a")], [Fake("other", True)]])
def test_suspect_with_company_is_handed_back_until_nothing_else_is_held(with_it: list[Fake]):
    quarantine: PoisonIsolation[Any] = PoisonIsolation(10)
    running, suspect = Fake("running"), Fake("suspect", True)
    held = [running] if not with_it else []
    run, back = quarantine.admit([suspect, *with_it], held)
    assert suspect in back
    assert not any(message.is_suspect for message in run)
    held += run or [running]
    assert quarantine.limit(7, held) == 0
    assert quarantine.limit(7, []) == 1
    assert quarantine.admit([suspect], []) == ([suspect], [])


def test_single_claims_end_when_no_suspect_comes():
    quarantine: PoisonIsolation[Any] = PoisonIsolation(10)
    quarantine.admit([Fake("suspect", True), Fake("a")], [])
    for _ in range(CLAIMS_OF_ONE):
        assert quarantine.limit(7, []) == 1
        quarantine.admit([Fake("next")], [])
    assert quarantine.limit(7, []) == 7


def test_long_handler_keeps_the_others_idle_at_most_half_of_the_time(monkeypatch: pytest.MonkeyPatch):
    now = [100.0]
    monkeypatch.setattr("delayq.runtime.poison_isolation.time.monotonic", lambda: now[0])
    quarantine: PoisonIsolation[Any] = PoisonIsolation(10)
    long = Fake("long")
    quarantine.admit([Fake("suspect", True)], [long])
    allowed = []
    for second in range(40):
        now[0] = 100.0 + second
        allowed.append(quarantine.limit(5, [long]))
    assert allowed == ([0] * 10 + [5] * 10) * 2


def test_suspects_that_come_with_others_do_not_make_them_wait_longer(monkeypatch: pytest.MonkeyPatch):
    now = [100.0]
    monkeypatch.setattr("delayq.runtime.poison_isolation.time.monotonic", lambda: now[0])
    quarantine: PoisonIsolation[Any] = PoisonIsolation(10)
    long, suspect = Fake("long"), Fake("suspect", True)
    quarantine.admit([suspect], [long])
    now[0] = 112.0
    assert quarantine.limit(5, [long]) == 5
    quarantine.admit([suspect, Fake("a")], [long])
    assert quarantine.limit(5, [long]) == 5
    quarantine.admit([suspect], [long])  # there is nothing else to claim
    assert quarantine.limit(5, [long]) == 0
