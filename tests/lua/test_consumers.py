from __future__ import annotations

from tests.harness.lua.raw import NOW

HOUR = 3_600_000


def test_consumers_are_listed_with_when_they_were_last_seen_latest_first(queue):
    queue.given(consumers={"a": NOW - 20_000, "b": NOW}, reports={"a": "report of a", "b": "report of b"})
    assert queue.consumers() == (NOW, [("b", NOW, b"report of b"), ("a", NOW - 20_000, b"report of a")], 0)


def test_queue_without_consumers_lists_none(queue):
    assert queue.consumers() == (NOW, [], 0)


def test_consumers_not_seen_for_an_hour_are_left_out(queue):
    queue.now = NOW + HOUR
    queue.given(consumers={"old": NOW, "young": NOW + 1}, reports={"old": "{}", "young": "{}"})
    assert [name for name, _, _ in queue.consumers().reports] == ["young"]


def test_consumers_seen_before_the_clock_was_set_back_are_left_out(queue):
    queue.given(consumers={"late": NOW + 1, "me": NOW}, reports={"late": "{}", "me": "{}"})
    assert [name for name, _, _ in queue.consumers().reports] == ["me"]


def test_consumers_without_details_are_left_out(queue):
    queue.given(consumers={"left": NOW, "me": NOW}, reports={"me": "{}"})
    assert [name for name, _, _ in queue.consumers().reports] == ["me"]


def test_a_page_has_five_hundred(queue):
    names = {f"c{n}": NOW - n for n in range(1001)}
    queue.given(consumers=names, reports=dict.fromkeys(names, "{}"))
    pages = [queue.consumers(skip) for skip in (0, 500, 1000)]
    assert [page.more for page in pages] == [500, 1000, 0]
    assert [name for page in pages for name, _, _ in page.reports] == list(names)
