from __future__ import annotations

from typing import Any

import pytest

from tests.harness.lua.raw import NOW

ENVELOPE = "payload delayq-results#60000-{} end"


def given(queue: Any, state: str | None, token: str = "T", record: Any = None) -> None:
    """A message in a state with a token, and a record: its token and status."""
    if state is not None:
        queue.given(**{state: {"a": NOW}}, messages={"a": ENVELOPE.format(token) if token else "payload"})
    if record is not None:
        queue.redis.hset(queue.keys.result("a"), mapping=dict(zip(("token", "status"), record, strict=True)))


@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry"])
@pytest.mark.parametrize("record", [None, ("T", "retry"), ("T", "dead"), ("U", "done")], ids=str)
def test_message_that_waits_or_runs_is_live(queue, state, record):
    given(queue, state, record=record)
    assert queue.results([("a", "T"), ("a", "")]) == [b"live", b"live"]


@pytest.mark.parametrize(
    ("state", "token", "record", "asked", "word"),
    [
        (None, "T", ("T", "done"), "T", "kept"),
        (None, "T", ("T", "done"), "", "kept"),
        (None, "T", ("T", "expired"), "T", "kept"),
        (None, "T", ("U", "done"), "T", "gone"),  # of another message
        (None, "T", ("T", "retry"), "T", "gone"),  # it was purged
        (None, "T", None, "T", "gone"),
        (None, "T", None, "", "gone"),
        ("dead", "T", None, "T", "dead"),
        ("dead", "T", ("T", "dead"), "T", "kept"),
        ("dead", "T", ("T", "retry"), "T", "dead"),
        ("dead", "U", None, "T", "gone"),
        ("garbage", "T", None, "T", "gone"),
        ("pending", "U", ("T", "done"), "T", "kept"),  # the id was sent again
        ("pending", "U", None, "T", "gone"),
        ("pending", "", None, "", "plain"),
        ("pending", "", ("T", "done"), "", "kept"),
    ],
)
def test_word_says_what_has_become_of_a_message(queue, state, token, record, asked, word):
    given(queue, state, token, record)
    assert queue.results([("a", asked)]) == [word.encode()]


def test_dead_letter_without_its_payload_is_dead(queue):
    queue.given(dead={"a": NOW})
    assert queue.results([("a", "T"), ("a", "")]) == [b"dead", b"dead"]


def test_header_counts_only_at_the_end_of_the_envelope(queue):
    queue.given(pending={"a": NOW}, messages={"a": ENVELOPE.format("fake") + ENVELOPE.format("T")})
    assert queue.results([("a", "fake"), ("a", "T")]) == [b"gone", b"live"]
