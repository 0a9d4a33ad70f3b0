"""What a consumer stores about itself, and how it is read."""

from __future__ import annotations

import json
import os
import platform
import time
from typing import Any

import pytest

import delayq
from delayq.model import consumer_info
from delayq.model.units import from_ms

NOW = 1_000_000_000


class Delivery:
    """The part of a delivery that a consumer stores."""

    def __init__(self, id: str, attempt: int = 1) -> None:
        self.id = id
        self.attempt = attempt
        self.handed_ms = NOW - 1500.25


def described(*held: Any, **given: Any) -> consumer_info.ConsumerInfo:
    began = time.monotonic() - 60
    read = consumer_info.read("me", NOW, NOW - 500, consumer_info.describe(8, began, 12, 3, held), **given)
    assert read is not None
    return read


def test_consumer_record_says_where_it_runs_and_what_it_did(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.model.consumer_info.time.monotonic", lambda: 1000.0)
    info = described()
    assert (info.name, info.host, info.pid, info.version) == (
        "me", platform.node(), os.getpid(), delayq.__version__,
    )  # fmt: skip
    assert (info.concurrency, info.handled, info.failed) == (8, 12, 3)
    assert (info.at, info.seen_at) == (from_ms(NOW), from_ms(NOW - 500))
    assert (info.seen_at - info.started_at).total_seconds() == 60


def test_consumer_record_lists_what_it_holds_and_since_when():
    info = described(Delivery("a"), Delivery("b", 3))
    assert info.holds == (
        consumer_info.Held("a", from_ms(NOW - 1501), 1),
        consumer_info.Held("b", from_ms(NOW - 1501), 3),
    )
    assert info.holds_count == 2


def test_consumer_record_says_which_time_limits_apply_if_its_version_reports_them():
    held: list[Any] = [Delivery("a"), Delivery("b")]
    document = consumer_info.describe(8, 0.0, held=held, limit_of=lambda each: 7200 if each.id == "b" else None)
    assert b'"limits":[0,7200000]' in document
    for report, limits in ((document, [None, 7200]), (document.replace(b"limits", b"latest"), [None, None])):
        info = consumer_info.read("me", NOW, NOW, report)
        assert info is not None
        assert [each.timeout for each in info.holds] == limits


def test_100_messages_are_listed_and_all_counted():
    info = described(*(Delivery(f"m{n}") for n in range(250)))
    assert [each.id for each in info.holds] == [f"m{n}" for n in range(100)]
    assert info.holds_count == 250


def test_consumer_record_stays_small_with_long_ids():
    info = described(*(Delivery("x" * 250 + f"{n:06}") for n in range(100)))
    assert len(info.holds) == 8192 // 256
    assert info.holds_count == 100


def test_id_that_is_not_valid_text_is_listed_as_it_is_shown():
    assert described(Delivery("a\udcff")).holds[0].id == r"a\xff"


@pytest.mark.parametrize(("unseen_ms", "alive"), [(0, True), (30_000, True), (30_001, False)])
def test_consumer_seen_within_half_a_minute_is_alive(unseen_ms: int, alive: bool):
    info = consumer_info.read("me", NOW, NOW - unseen_ms, consumer_info.describe(1, 0.0))
    assert info is not None
    assert info.is_alive is alive


@pytest.mark.parametrize("document", [b"", b"text", b"[]", b"{}", b'{"host": 5}', b"\xff"])
def test_document_of_another_program_is_not_a_consumer(document: bytes):
    assert consumer_info.read("me", NOW, NOW, document) is None


def test_fields_of_a_later_version_are_ignored():
    document = json.loads(consumer_info.describe(1, 0.0)) | {"mood": "good"}
    assert consumer_info.read("me", NOW, NOW, json.dumps(document).encode()) is not None


def test_consumer_record_counts_handlers_beyond_their_limit_if_its_version_reports_them():
    document = consumer_info.describe(1, 0.0, over=2)
    for report, count in ((document, 2), (document.replace(b',"over":2', b""), 0)):
        info = consumer_info.read("me", NOW, NOW, report)
        assert info is not None
        assert info.over_limit == count
