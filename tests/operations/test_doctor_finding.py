from __future__ import annotations

from typing import Any

import pytest

from delayq.model.envelope import encode_envelope
from delayq.model.placement import STATES, WAITING
from delayq.model.units import MAX_LEASE_MS, MAX_TIME_MS
from delayq.operations.doctor.finding import CLOCK_STEP_MS, PRECEDENCE, Finding, ailments, is_time
from delayq.protocol.replies import StoredMessage

NOW = 1_700_000_000_000
STORED = b"1700000000000" + encode_envelope("x", 3)


def wrong(*states: Any, scores: Any = None, **known: Any) -> list[tuple[str, str]]:
    """What is wrong with a message in these states: kinds and severities."""
    nothing: dict[str, Any] = {"deliveries": None, "error": None, "reason": None, "cancelled": False, "stored": STORED}
    found = StoredMessage(scores or dict.fromkeys(states, NOW), **nothing | known)
    return [(finding.kind, finding.severity) for finding in ailments("m", found, NOW)]


@pytest.mark.parametrize("state", STATES)
def test_healthy_message_has_no_finding(state: Any):
    assert wrong(state, reason="rejected" if state == "dead" else None) == []


def test_missing_message_has_no_finding():
    assert wrong(stored=None) == []


def test_message_in_two_states_is_reported_with_both_and_where_it_is_kept():
    found = StoredMessage({"pending": NOW, "unack": NOW}, None, None, None, False, STORED)
    (finding,) = ailments("m", found, NOW)
    assert (finding.kind, finding.text, finding.remedy) == (
        "duplicate",
        "is in unack and pending at once",
        "repair keeps it in unack",
    )


def test_precedence_names_every_state():
    assert sorted(PRECEDENCE) == sorted(STATES)


@pytest.mark.parametrize(
    ("state", "ailing"),
    [
        *((state, [("payload-missing", "error")]) for state in WAITING),
        ("unack", [("payload-missing", "warning")]),
        ("dead", [("payload-missing", "error")]),
        ("garbage", []),
    ],
)
def test_missing_payload_is_a_finding_where_it_is_needed(state: Any, ailing: Any):
    assert wrong(state, stored=None) == ailing


def test_dead_letter_with_reason_payload_missing_is_healthy():
    assert wrong("dead", stored=None, reason="payload-missing") == []


def test_payload_without_a_message_is_an_orphan():
    assert wrong() == [("orphan", "error")]


@pytest.mark.parametrize("state", STATES)
def test_unreadable_envelope_is_a_finding_for_undelivered_messages(state: Any):
    assert wrong(state, stored=b"?") == ([("unreadable", "warning")] if state in WAITING else [])


@pytest.mark.parametrize("name", ["deliveries", "error"])
def test_delivery_details_belong_to_messages_in_the_queue(name: str):
    value = {"deliveries": "1.0.0.0", "error": "E"}[name]
    assert {state for state in STATES if wrong(state, **{name: value})} == {"garbage"}
    assert wrong(stored=None, **{name: value}) == [("leftover", "error")]


def test_reason_belongs_to_dead_letters():
    assert {state for state in STATES if not wrong(state, reason="R")} == {"dead"}


def test_cancellation_belongs_to_running_messages():
    assert {state for state in STATES if not wrong(state, cancelled=True)} == {"unack"}


@pytest.mark.parametrize("deliveries", ["", "1", "1.0.0", "1.0.0.0.0", "a.b.c.d", "1.0.0.0 "])
def test_unreadable_attempts_are_a_finding(deliveries: str):
    assert wrong("retry", deliveries=deliveries) == [("attempts", "error")]


LATEST_LEASE = NOW + MAX_LEASE_MS + CLOCK_STEP_MS


@pytest.mark.parametrize(
    ("state", "score", "fits"),
    [
        ("pending", 0, True),
        ("pending", -1, False),
        ("pending", MAX_TIME_MS, True),
        ("pending", MAX_TIME_MS + 1, False),
        ("retry", float("inf"), False),
        ("dead", float("-inf"), False),
        ("unack", LATEST_LEASE, True),
        ("unack", LATEST_LEASE + 1, False),
        ("unack", 0, True),
    ],
)
def test_score_out_of_range_for_its_state_is_a_finding(state: Any, score: float, fits: bool):
    assert is_time(state, score, NOW) is fits
    assert wrong(scores={state: score}) == ([] if fits else [("score", "error")])


def test_finding_reads_as_a_sentence():
    assert (
        str(Finding("orphan", "m1", "has no home", "repair gives it one"))
        == "message m1 has no home: repair gives it one"
    )
    assert str(Finding("books", None, "3 are missing", "look")) == "3 are missing: look"
