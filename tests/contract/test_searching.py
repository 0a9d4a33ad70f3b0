"""Searches find the chosen messages and act on them step by step, and can continue where another stopped."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from typing import Any

import pytest
import redis

from delayq import Outgoing, Queue
from delayq.errors import InvalidInput
from delayq.model.causes import kind_of, like
from delayq.model.choice import Choice
from delayq.model.units import from_ms, timestamp_ms
from delayq.operations.bulk import actions
from delayq.operations.bulk.actions import cancelling, requeueing, rescheduling, retiming, shifted, spread
from delayq.operations.bulk.purge import Purge, extent
from delayq.operations.bulk.search import Search, find, find_ids
from delayq.operations.bulk.sweep import Sweep
from delayq.protocol.queue_keys import QueueKeys
from tests.contract.conftest import Make, Now

PAGE = 10
CHOICES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "payload": ({"payload": '"n":1'}, [1, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]),
    "payload-in-bytes": ({"payload": b"\xff\x00"}, [20]),
    "payload-with-umlaut": ({"payload": "grün"}, [3]),
    "payload-in-other-letters": ({"payload": "GRÜN"}, []),
    "header": ({"headers": {"tenant": "2"}}, [2, 5, 8, 11, 14, 17]),
    "both": ({"headers": {"tenant": "2"}, "payload": '"n":1'}, [11, 14, 17]),
    "all": ({}, list(range(21))),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use small pages and steps, so that a few messages take several."""
    monkeypatch.setattr("delayq.operations.bulk.search.MAX_MOVED", PAGE)
    monkeypatch.setattr("delayq.operations.bulk.search.STEP_BYTES", 300)


@pytest.fixture
def stocked(queue: Queue) -> Queue:
    payloads = [{"n": n, "color": "grün" if n == 3 else "red"} for n in range(20)]
    outgoing = [Outgoing(each, delay=60, id=f"{n:02}", headers={"tenant": n % 3}) for n, each in enumerate(payloads)]
    queue.send_many([*outgoing, Outgoing(b"raw \xff\x00", delay=60, id="20")])
    return queue


def found(queue: Queue, search: Search) -> list[str]:
    ids: list[str] = []
    while not search.done:
        ids += [message_id for message_id, _ in queue.execute(search.step)]
    return ids


@pytest.mark.parametrize("payload", [None, "color"])
def test_search_can_be_bounded_by_times_and_an_id_prefix(queue: Queue, payload: str | None):
    start = queue.stats().at
    queue.send_many(
        [Outgoing({"color": n}, at=start + dt.timedelta(minutes=n), id=f"{'ab'[n % 2]}{n:02}") for n in range(1, 60)]
    )
    since, until = start + dt.timedelta(minutes=15), start + dt.timedelta(minutes=40)
    search = Search("pending", Choice(since=since, until=until, id_prefix="b", payload=payload))
    assert sorted(found(queue, search)) == [f"b{n:02}" for n in range(15, 41, 2)]
    assert search.looked_at <= 26  # messages outside the range are not even read


def test_causes_count_the_last_hour_and_the_one_before(queue: Queue):
    queue.send_many([Outgoing(n) for n in range(3)])
    for message in queue.receive(3):
        message.reject("no luck")
    died = queue.stats().at
    for minutes, counts in ((1, (3, 0)), (61, (0, 3)), (121, (0, 0))):
        (cause,) = queue.dead.causes(100, now=died + dt.timedelta(minutes=minutes)).causes
        assert (cause.last_hour, cause.hour_before) == counts
    assert [each.text for each in queue.dead.causes(shown=str.upper).causes] == ["NO LUCK"]


def test_range_that_ends_before_it_starts_is_refused():
    noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    with pytest.raises(InvalidInput, match="give a later end"):
        Choice(since=noon, until=noon - dt.timedelta(seconds=1))


@pytest.mark.parametrize("minutes", [10, -10])
def test_shift_moves_each_message_once(queue: Queue, minutes: int):
    start = queue.stats().at.replace(microsecond=0)
    queue.send_many([Outgoing(n, at=start + dt.timedelta(minutes=60 + n), id=f"{n:02}") for n in range(35)])
    by = shifted(minutes * 60_000)
    progress = swept(queue, Sweep("pending", Choice(), retiming(by), backwards=minutes > 0))
    assert (progress.matched, progress.outcomes) == (35, {"rescheduled": 35})
    due = {info.id: info.due_at for info in queue.peek("pending", 100)}
    assert due == {f"{n:02}": start + dt.timedelta(minutes=60 + n + minutes) for n in range(35)}


def test_spread_gives_each_message_one_time_within_the_range(queue: Queue):
    start = queue.stats().at.replace(microsecond=0)
    queue.send_many([Outgoing(n, at=start + dt.timedelta(minutes=60 + n), id=f"{n:03}") for n in range(300)])
    due = spread(timestamp_ms(start + dt.timedelta(minutes=90)), 3_600_000)
    for matched in (300, 0):  # messages that already have their time are left alone
        progress = swept(queue, Sweep("pending", Choice(), retiming(due), due, backwards=True))
        assert progress.matched == matched
    times = [info.due_at for info in queue.peek("pending", 300) if info.due_at]
    assert all(dt.timedelta(minutes=90) <= at - start < dt.timedelta(minutes=150) for at in times)
    tenths = Counter(int((at - start - dt.timedelta(minutes=90)).total_seconds() // 360) for at in times)
    assert min(tenths.values()) > 15


def swept(queue: Queue, sweep: Sweep) -> Any:
    while not sweep.done:
        queue.execute(sweep.step)
    return sweep.progress


def test_search_finds_exactly_the_chosen_messages(stocked: Queue, subtests: pytest.Subtests):
    for name, (wanted, numbers) in CHOICES.items():
        with subtests.test(name):
            search = Search("pending", Choice(**wanted))
            assert sorted(found(stocked, search)) == [f"{n:02}" for n in numbers]
            assert search.looked_at == 21


def test_search_continues_where_another_stopped(stocked: Queue):
    ids: list[str] = []
    looked, cursor = 0, None
    while True:
        search = Search("pending", Choice(payload="color"), cursor)
        ids += [message_id for message_id, _ in stocked.execute(search.step)]
        looked, cursor = looked + search.looked_at, search.cursor
        if search.done:
            break
    assert (sorted(ids), looked) == ([f"{n:02}" for n in range(20)], 21)


def test_search_continues_after_a_deleted_message(stocked: Queue):
    search = Search("pending", Choice())
    seen = [message_id for message_id, _ in stocked.execute(search.step)]
    for message_id in seen:
        stocked.cancel(message_id)
    left = found(stocked, Search("pending", Choice(), search.cursor))
    assert sorted([*seen, *left]) == [f"{n:02}" for n in range(21)]


def test_invalid_search_position_is_refused(subtests: pytest.Subtests):
    for cursor in ["", "x 5 a", "0 x a", "-1 5 a"]:
        with subtests.test(cursor=cursor), pytest.raises(InvalidInput, match="cursor"):
            Search("pending", Choice(), cursor)


def test_search_for_a_time_says_what_it_has_found_and_continues(stocked: Queue):
    ids, cursor = list[str](), None
    while cursor != "end":
        seen = stocked.execute(find, "pending", Choice(payload="color"), cursor, seconds=0, shown=2)
        assert (len(seen.messages), seen.total) == (min(2, seen.matched), 21)
        again = stocked.execute(find, "pending", Choice(payload="color"), cursor, seconds=60, most=1)
        assert seen.matched <= again.matched
        ids += [each.id for each in again.messages]
        cursor = "end" if again.cursor is None else again.cursor
    assert sorted(ids) == [f"{n:02}" for n in range(20)]
    whole = stocked.execute(find, "pending", Choice(), seconds=60)
    assert (whole.matched, whole.looked_at, whole.is_all) == (21, 21, True)
    times = [each.due_at for each in stocked.peek("pending", 100)]
    assert (whole.first_at, whole.last_at) == (times[0], times[-1])
    none = stocked.execute(find, "pending", Choice(), "0 5 a", seconds=60, most=0)
    assert (none.looked_at, none.messages, none.cursor) == (0, [], "0 5 a")


def test_named_messages_are_found_in_their_state_only(stocked: Queue):
    stocked.cancel("01")
    seen = stocked.execute(find_ids, "pending", ["03", "01", "nowhere", "20"], 1)
    assert (seen.matched, seen.looked_at, len(seen.messages)) == (2, 4, 1)


def test_purge_in_steps_deletes_no_more_than_it_was_asked_to(stocked: Queue):
    total, last_ms = stocked.execute(extent, "pending")
    assert last_ms is not None
    assert (total, from_ms(last_ms)) == (21, stocked.peek("pending", 100)[-1].due_at)
    for most, up_to, gone in ((0, last_ms, 0), (5, last_ms, 5), (100, 1, 0), (100, last_ms, 16)):
        purge = Purge("pending", most, up_to)
        while not purge.done:
            stocked.execute(purge.step)
        assert purge.count == gone
    assert stocked.execute(extent, "pending") == (0, None)


def test_sweep_acts_on_the_chosen_messages(stocked: Queue):
    progress = swept(stocked, Sweep("pending", Choice(headers={"tenant": 2}), cancelling))
    assert (progress.total, progress.looked_at, progress.matched, progress.outcomes) == (21, 21, 6, {"cancelled": 6})
    assert (stocked.stats().pending, stocked.stats().cancelled) == (15, 6)


def test_dry_sweep_counts_and_changes_nothing(stocked: Queue):
    progress = swept(stocked, Sweep("pending", Choice(headers={"tenant": 2}), None))
    assert (progress.matched, progress.outcomes, stocked.stats().pending) == (6, {}, 21)


@pytest.mark.same_on_all_clients
@pytest.mark.parametrize("later", [0, 30_000, 60_000, 90_000])
def test_each_message_is_rescheduled_once_wherever_it_moves_to(stocked: Queue, now: Now, later: int):
    stocked.send_many([Outgoing(n, delay=n, id=f"other-{n}") for n in range(100)])
    there = len([n for n in range(100) if n * 1000 == later]) + (21 if later == 60_000 else 0)
    due = int(now.ms) + later
    progress = swept(stocked, Sweep("pending", Choice(), rescheduling(due), due))
    assert (progress.matched, progress.outcomes) == (121 - there, {"rescheduled": 121 - there})
    assert {info.due_at for info in stocked.peek("pending", 1000)} == {stocked.page("pending").messages[0].due_at}


def test_sweep_does_not_touch_messages_that_arrive_meanwhile(stocked: Queue):
    sweep = Sweep("pending", Choice(), cancelling)
    stocked.execute(sweep.step)
    stocked.send_many([Outgoing(None, delay=90, id=f"new-{n}") for n in range(30)])
    assert swept(stocked, sweep).outcomes == {"cancelled": 21}
    assert {info.id for info in stocked.peek("pending", 100)} == {f"new-{n}" for n in range(30)}


def test_act_returns_the_outcome_of_each_message(queue: Queue):
    queue.send_many([Outgoing(None, id="runs"), Outgoing(None, id="dies")])
    for message in queue.receive(2):
        if message.id == "dies":
            message.reject("no")
    queue.send(None, id="waits", delay=60)
    ids = ["runs", "waits", "gone", "waits"]
    assert queue.execute(actions.each, rescheduling("+0"), [*ids, "dies"]) == {
        "runs": "in_flight",
        "waits": "rescheduled",
        "gone": "unknown",
        "dies": "dead",
    }
    requeued = queue.execute(actions.each, requeueing("+0"), [*ids, "dies"])
    assert requeued == {"runs": "left", "waits": "left", "gone": "left", "dies": "requeued"}
    cancelled = queue.execute(actions.each, cancelling, ids)
    assert cancelled == {"runs": "in_flight", "waits": "cancelled", "gone": "unknown"}


def test_message_with_a_foreign_id_can_be_cancelled_and_rescheduled(queue: Queue, client: redis.Redis):
    keys = QueueKeys("delayq", "jobs")
    foreign = b"\xff\xfe"
    client.zadd(keys.pending, {foreign: 2_000_000_000_000})
    due = 1_999_999_999_999
    assert swept(queue, Sweep("pending", Choice(), rescheduling(due), due)).outcomes == {"rescheduled": 1}
    assert client.zscore(keys.pending, foreign) == due
    assert swept(queue, Sweep("pending", Choice(), cancelling)).outcomes == {"cancelled": 1}
    assert client.zrange(keys.pending, 0, -1) == []


def test_dead_letters_are_grouped_by_cause(queue: Queue, now: Now):
    errors = ["HTTP 503: try in 10 s", "HTTP 502: try in 7 s\nat line 3", "KeyError: 'x'", None]
    for number in range(10):
        queue.send(None, id=f"{number}")
        (message,) = queue.receive(1)
        message.reject("no", error=errors[number % 4] if number < 8 else errors[0])
        now.later(60)
    causes = queue.dead.causes()
    assert (causes.total, causes.looked_at) == (10, 10)
    groups = [(each.text, each.count, each.example) for each in causes.causes]
    assert groups[0] == ("no: HTTP #: try in # s", 6, "9")
    assert sorted(groups[1:]) == [("no", 2, "7"), ("no: KeyError: 'x'", 2, "6")]
    assert (causes.causes[0].last_at - causes.causes[0].first_at).total_seconds() == 540


def test_only_the_latest_dead_letters_are_grouped(make: Make, now: Now):
    queue = make("solo", shards=1)
    for number in range(5):
        queue.send(None, id=f"{number}")
        (message,) = queue.receive(1)
        message.reject(f"reason {number}")
        now.later(1)
    causes = queue.dead.causes(2)
    assert (causes.total, causes.looked_at) == (5, 2)
    assert {each.reason for each in causes.causes} == {"reason 4", "reason 3"}


@pytest.mark.parametrize(
    "error", ["HTTP 503: try in 10 s", "a.b [c] 1(2)* # 7", "first 1\nsecond", "x" * 300 + "7", "\\d+ # \\Z 5"]
)
def test_cause_matches_the_errors_it_was_made_from(error: str):
    choice = like("no", kind_of(error))
    assert choice.means(error, "no", None)
    assert choice.means(re.sub(r"\d+", "123456", error), "no", None)
    assert not choice.means(f"other {error}", "no", None)
    assert not choice.means(error, "yes", None)


def test_cause_with_many_numbers_in_a_row_is_matched_without_backtracking():
    choice = like(None, f"order {'#' * 100} failed")
    assert not choice.means(f"order {'1' * 200}", None, None)  # there are 10^58 of them
