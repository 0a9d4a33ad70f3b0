"""Journals: everything that was written can be read."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest

from tests.harness.chaos import history
from tests.harness.chaos.history import Journal


def test_journals_are_read_in_the_order_of_their_events(tmp_path: Path) -> None:
    first, second = Journal(tmp_path / "a.jsonl"), Journal(tmp_path / "b.jsonl")
    first.note("attempted", "m")
    second.note("delivered", "m", attempt=1, ms=5.0, due_ms=4.0)
    first.note("sent", "m", ms=4.0)
    events = history.read(tmp_path)
    assert [event.kind for event in events] == ["attempted", "delivered", "sent"]
    assert (events[1].id, events[1].attempt, events[1].ms, events[1].due_ms) == ("m", 1, 5.0, 4.0)
    assert {event.pid for event in events} == {os.getpid()}
    assert events[0].wall_ms == 0
    assert events[1].wall_ms == pytest.approx(time.time() * 1000, abs=60_000)


def test_fault_is_noted_for_the_process_it_hit(tmp_path: Path) -> None:
    Journal(tmp_path / "a.jsonl").note("fault", pid=1, note="SIGKILL")
    assert [(event.pid, event.note) for event in history.read(tmp_path)] == [(1, "SIGKILL")]


def test_truncated_last_line_of_a_journal_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Journal(path).note("attempted", "m")
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:-1])
    assert len(history.read(tmp_path)) == 1


def test_line_truncated_elsewhere_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    Journal(path).note("attempted", "m")
    whole = path.read_bytes()
    path.write_bytes(whole[:20] + whole)
    with pytest.raises(msgspec.DecodeError):
        history.read(tmp_path)
