"""What top computes from two readings, and what its keys do, without a terminal."""

from __future__ import annotations

import io
import re
from typing import Any

import msgspec
import pytest
from delayq.cli.top.columns import COLUMNS, ordered
from delayq.cli.top.render import frame, table, totals_lines
from delayq.cli.top.snapshot import QueueRow, Snapshot, TopicRow, pulse
from delayq.cli.top.state import HELP_LINE, KEYS, TopView
from delayq.cli.top.terminal import keys
from delayq.cli.upcoming import sparkline
from rich.console import Console

from delayq.model.configuration import Usage
from delayq.model.consumer_info import ConsumerInfo, Held
from delayq.model.record import GroupInfo
from delayq.model.sample import Sample
from delayq.model.task_runs import TaskRuns
from delayq.model.units import from_ms
from delayq.types import QueueStats, Upcoming


def bucket(pending: int, retry: int = 0) -> Upcoming:
    return Upcoming(starts_at=from_ms(0), ends_at=from_ms(1), pending=pending, retry=retry)


def seen(at: float, **stats: Any) -> Snapshot:
    consumers = stats.pop("consumers", ())
    return Snapshot(
        QueueStats(queue=stats.pop("queue", "q"), at=from_ms(int(at * 1000)), **stats), [bucket(0)], consumers
    )


def test_rates_are_the_difference_of_two_readings():
    before = seen(10, sent=100, delivered=50, acked=40, nacked=5, died=1, lease_lost=1)
    now = seen(12, sent=120, delivered=60, acked=48, nacked=7, died=2, lease_lost=4)
    rates = pulse(before, now, before).rates
    assert rates is not None
    assert (rates.sent, rates.delivered, rates.acked, rates.failed) == (10, 5, 4, 3)


def test_first_reading_has_no_rates():
    assert pulse(None, seen(1, sent=5), None).rates is None


def test_lateness_is_that_of_deliveries_since_the_last_reading():
    before, now = seen(1, lateness={1: 1000, 4096: 5}), seen(2, lateness={1: 1000, 8: 60, 64: 40, 4096: 5})
    rates = pulse(before, now, before).rates
    assert rates is not None
    assert (rates.lateness_p50, rates.lateness_p99) == (0.008, 0.064)


def test_troubles_cover_the_last_minutes_not_the_last_reading():
    first, before, now = (seen(at, sent=2, died=died, dead=died) for at, died in ((1, 0), (98, 2), (100, 2)))
    assert [each.code for each in pulse(before, now, first).troubles] == ["dead-growing"]
    sampled = Snapshot(now.stats, [], samples=[Sample(from_ms(60_000), seen(70, died=1).stats)])
    (trouble,) = pulse(before, sampled, before).troubles
    assert trouble.text == "1 message died within the last 30s; 2 are dead now."


def test_least_important_columns_are_dropped_first():
    pulses = [shows("q")]
    shown = {width: [str(column.header) for column in table(pulses, width).columns] for width in (200, 80, 45, 5)}
    assert shown[200] == list(COLUMNS)
    assert shown[80] == [*("queue", "scheduled", "due", "running", "retrying", "dead", "acked/s", "cons", "trouble")]
    assert shown[45] == ["queue", "scheduled", "due", "dead", "cons", "trouble"]
    assert shown[5] == ["queue", "scheduled", "dead"]


def drawn(view: TopView, width: int, height: int) -> list[str]:
    """Return the lines on a terminal of this size."""
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(frame(view, "delayq top", "", width, height))
    return [line.rstrip() for line in console.export_text().splitlines()]


def busy(number: int) -> QueueRow:
    """Return a queue in trouble, with large counts."""
    consumers = [consumer(f"worker-{number}-of-a-host-with-a-long-name.example", seen_at=from_ms(2_000))]
    counts = {"scheduled": 1_234_567, "due": 34_567, "dead": 1_200, "died": 1_200, "lateness": {2048: 100}}
    row = shows(f"billing-{number}", **counts, sent=8_372_805, acked=867_300, nacked=4620, consumers=consumers)
    usage = Usage(concurrency=20, running=20, rate=100, period_ms=1000, handed_out=87)
    return msgspec.structs.replace(row, usage=usage)


@pytest.mark.parametrize("count", [3, 60])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50)])
def test_frame_fits_its_terminal_without_cuts(width: int, height: int, count: int):
    view = TopView()
    view.take([busy(number) for number in range(count)])
    for pressed in ("", "enter", "?", "t"):
        lines = drawn(press(view, pressed), width, height)
        assert len(lines) <= height
        assert not [line for line in lines if "…" in line]
        assert "q quits" in lines[-1] or pressed == "?"
        press(view, "escape")
    text = " ".join(" ".join(drawn(view, width, height)).split())
    assert all(each in text for each in (f"{8_372_805 * count:,} sent/s", "in trouble", "billing-2"))


def test_large_terminal_shows_limits_and_the_selected_queues_details():
    view = TopView()
    view.take([busy(number) for number in range(3)])
    text = drawn(press(view, "down"), 200, 50)
    assert "run 20/20 rate 87/100" in text[3]
    below = text[7:]
    assert below[0] == "billing-1"
    assert "limits     run 20/20 rate 87/100" in below
    assert any("worker-1-of-a-host-with-a-long-name.example on host" in line for line in below)
    small = drawn(view, 80, 24)
    assert not any(line.startswith("limits ") for line in small)


def test_further_troubles_are_counted_without_room():
    view = TopView()
    view.take([busy(0)])
    codes = [each.code for each in busy(0).troubles]
    assert len(codes) > 1
    assert drawn(view, 200, 10)[3].endswith(", ".join(codes))
    assert any(line.endswith(f"{codes[0]} +{len(codes) - 1}") for line in drawn(view, 80, 10))


def shown_of(pulse: QueueRow, *pressed: str) -> str:
    """What a wide terminal shows of a queue after pressing some keys."""
    view = TopView()
    view.take([pulse])
    console = Console(width=250, file=io.StringIO(), record=True)
    console.print(frame(press(view, *pressed), "above", "an error", 250, 40))
    return console.export_text()


def test_page_of_a_queue_lists_consumers_and_what_each_holds():
    held = (Held("order-1", from_ms(1_000), 1), Held("order-2", from_ms(1_500), 2))
    alive = consumer("here-1", seen_at=from_ms(100_000), holds=held, holds_count=2, handled=70, failed=3)
    gone = consumer("there-2", seen_at=from_ms(10_000))
    counts = {"sent": 2, "unack": 2, "lateness": {1: 8, 4: 4, 16: 1}, "handler_time": {1024: 5}}
    taker = consumer("mine-3", seen_at=from_ms(100_000), concurrency=0)
    text = shown_of(shows("q", **counts, consumers=[alive, gone, taker]), "enter")
    assert re.search(r"mine-3 on host, pid 7, delayq 1.2: receives; seen ", text)
    assert re.search(r"here-1 on host, pid 7, delayq 1.2: 70 handled, 3 failed, holds 2, since .* order-1; seen ", text)
    assert re.search(r"there-2 on host.* holds 0; seen ", text)
    assert "consumers  2 of 3 alive" in text
    assert re.search(r"lateness +▏█ ▄ ▁▏ 1ms to 16ms; now half <1ms, 99 % <16ms", text)
    assert re.search(r"handlers +▏ {10}█▏ 1ms to 1s; now half <1s, 99 % <1s", text)
    assert "No trouble." in text
    assert "an error" in text


def test_page_of_a_queue_says_how_its_most_run_tasks_ended():
    tasks = {f"t{n}": TaskRuns(acked=n) for n in range(6)} | {"wel\x1bcome": TaskRuns(acked=1200, failed=3, dead=1)}
    text = " ".join(shown_of(shows("q", tasks=tasks), "enter").split())
    assert "tasks wel\\x1bcome 1,200 acked, 3 failed, 1 dead; t5 5 acked; t4 4 acked; " in text
    assert "; t2 2 acked; 2 more" in text
    assert "tasks" not in shown_of(shows("q"), "enter")


def consumer(name: str, **known: Any) -> ConsumerInfo:
    defaults: dict[str, Any] = {
        "host": "host",
        "pid": 7,
        "version": "1.2",
        "at": from_ms(100_000),
        "started_at": from_ms(0),
    }
    return ConsumerInfo(name=name, **defaults | {"concurrency": 8, "handled": 0, "failed": 0} | known)


# What the keys do


@pytest.fixture
def view() -> TopView:
    view = TopView()
    view.take([shows("b", dead=1), shows("a", dead=3), shows("C", dead=2), shows("d", lateness={8: 5})])
    return view


def shows(queue: str, **stats: Any) -> QueueRow:
    first = seen(1, queue=queue)
    return pulse(first, seen(2, queue=queue, **stats), first)


def names(view: TopView) -> str:
    return "".join(each.queue for each in view.shown)


def press(view: TopView, *pressed: str) -> TopView:
    for key in pressed:
        view.press(key)
    return view


def test_numbers_sort_descending_and_names_ascending(view: TopView):
    assert names(view) == "Cabd"
    assert names(press(view, *">>>>>")) == "aCbd"
    assert view.sort == "dead"
    assert names(press(view, "r")) == "dbCa"
    assert names(press(view, *"<<<<<")) == "Cabd"
    assert names(press(view, "<")) == "Cabd"
    assert view.sort == list(COLUMNS)[-1]


def test_queue_without_a_figure_is_last_in_either_direction(view: TopView):
    for is_reversed in (False, True):
        assert ordered(view.shown, "late 99%", is_reversed)[0].queue == "d"


def test_selection_stays_with_its_queue_when_the_order_changes(view: TopView):
    press(view, "down", "j")
    assert view.pulse is not None
    assert view.pulse.queue == "b"
    press(view, *">>>>>")
    assert (view.pulse.queue, view.selected) == ("b", 2)
    assert press(view, "end").selected == 3
    assert press(view, "pageup").selected == 0
    view.take([])
    assert (press(view, "down", "enter").pulse, view.page) == (None, "queues")


def test_filter_takes_keys_as_text_until_it_ends(view: TopView):
    assert names(press(view, "/", "q")) == ""
    assert names(press(view, "backspace", "B")) == "b"
    assert not press(view, "enter").has_ended
    assert (view.filter, view.is_typing) == ("B", False)
    assert names(press(view, "escape")) == "Cabd"
    assert names(press(view, "/", "a", "escape")) == "Cabd"


def test_escape_goes_back_and_ends_only_from_the_whole_list(view: TopView):
    assert press(view, "enter").page == "queue"
    assert press(view, "?").page == "help"
    assert press(view, "x").page == "queues"
    press(view, "enter", "escape")
    assert (view.page, view.has_ended) == ("queues", False)
    assert press(view, "escape").has_ended


def test_queue_is_paused_only_after_y(view: TopView):
    press(view, "P")
    assert view.to_confirm is not None
    assert press(view, "n").to_pause is None
    assert view.to_confirm is None
    paused = press(view, "P", "y").to_pause
    assert paused is not None
    assert paused.queue == "C"


def test_totals_cover_the_shown_queues():
    consumers = [consumer("here", seen_at=from_ms(100_000))]
    due = {"oldest_due_at": from_ms(1000), "ready": 1, "unack": 1}
    rows = [
        shows("a", sent=30, acked=10, dead=7, died=7, consumers=consumers),
        shows("b", sent=2, **due),
    ]
    expected = "32 sent/s  10 acked/s  7 failed/s  overdue 1s  7 dead  1 consumer  2 in trouble"
    assert totals_lines(rows, 200) == [expected]
    assert totals_lines(rows, 78) == [expected.removesuffix("  2 in trouble"), "2 in trouble"]
    assert totals_lines([], 80) == ["0 sent/s  0 acked/s  0 failed/s  overdue -  0 dead  0 consumers  0 in trouble"]


def test_page_of_topics_starts_with_those_that_have_the_most_work_left():
    view = press(TopView(), "t")
    assert (view.page, view.wants_look) == ("topics", True)
    groups = [GroupInfo("billing", 2, 3, 40, "1-0", True, 5), GroupInfo("mail", 1, 0, 2, "9-0")]
    view.topics = [TopicRow("quiet", 7, ()), TopicRow("orders", 1200, groups), TopicRow("third", 1, ())]
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(frame(view, "above", "an error", 80, 7))
    lines = [line.split() for line in console.export_text().splitlines()]
    assert lines[1:4] == [
        ["topic", "records", "groups", "consumers", "unacked", "lag", "dead"],
        ["orders", "1,200", "2", "3", "3", "at", "least", "40", "5"],
        ["quiet", "7", "0", "0", "0", "0", "0"],
    ]
    assert "1 more with less work left" in " ".join(lines[4])
    assert press(view, "t").page == "queues"
    assert press(view, "t", "escape").page == "queues"


def test_keys_of_a_terminal_are_read_by_name():
    assert keys("q<\x1b[A\x1bOB\x1b[6~\r\x7f") == ["q", "<", "up", "down", "pagedown", "enter", "backspace"]
    assert keys("\x1b") == ["escape"]
    assert keys("\x1b[15~x\x1b[1;5A") == ["x"]


def test_help_line_names_only_existing_keys():
    found = {each for key in KEYS for each in key.replace("< >", "<>").replace("↑ ↓", "↑↓").split()}
    assert {each.split()[0] for each in HELP_LINE.split("  ")} <= found


@pytest.mark.parametrize(
    ("counts", "line"), [([0, 0], "  "), ([1, 1], "██"), ([0, 1, 500, 1000], " ▁▄█"), ([7, 8, 1], "▇█▁")]
)
def test_bars_show_how_full_buckets_are_and_only_zero_is_empty(counts: list[int], line: str):
    assert sparkline([bucket(count) for count in counts]) == line
