"""top: show queues live, as top shows processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import click
import msgspec

from delayq.errors import DelayqError, InvalidInput
from delayq.model.queue_stats import check_buckets
from delayq.model.show import plural, show_duration
from delayq.operations import manage
from delayq.queue import Queue

from ..connection import ServerOptions
from ..options import DURATION, command, json_option, server_options
from ..output import WIDE, note, print_json
from ..stats import stats_record
from ..upcoming import bucket_option, window_option
from .render import frame, table
from .snapshot import QueueRow, Snapshot, TopicRow, look, pulse
from .state import TopView
from .terminal import screen

LEAST_SECONDS = 0.1
MOST_SECONDS = 3600.0
PER_SECOND = ("sent", "delivered", "acked", "failed")
QUANTILES = {
    "late_half": "lateness_p50",
    "late_most": "lateness_p99",
    "ran_half": "handler_time_p50",
    "ran_most": "handler_time_p99",
}
MOST_TOPICS = 1000  # the default of the metrics too
SEARCH_SECONDS = 60.0  # a search for new queues scans all keys of the server
STEP_SECONDS = 0.1  # of that search at each look, at least one round trip


@command(
    """
    delayq send emails hello --delay 1m
    delayq top --once --interval 100ms
    """,
    "Watch queues live: states, rates, lateness, what is next.",
)
@click.argument("names", metavar="[QUEUE]...", nargs=-1)
@click.option("--interval", type=DURATION, metavar="TIME", default="2s", help="How often to refresh.")
@window_option("5m")
@bucket_option("15s")
@click.option("--once", is_flag=True, help="Take two readings one interval apart, print one frame and exit.")
@server_options
@json_option
def top(
    server: ServerOptions,
    names: Sequence[str],
    interval: float,
    window: float,
    bucket: float,
    once: bool,
    as_json: bool,
) -> int:
    """Watch each QUEUE, or all queues, until you press q: the messages in each state, and the messages per second.

    "late 50%" and "late 99%" show how late deliveries were since the last refresh: half, or 99 %, were less late than
    this. "ran 99%" is the same for handler times. "overdue" is how long the earliest due message has waited. "cons"
    counts the live consumers. "upcoming" shows what falls due within --window, one bar per --bucket. A dim queue is
    paused.

    Keys: < and > choose the column to sort by, r reverses the order, / filters by name, the arrow keys select a queue,
    Enter shows its details, P pauses or resumes it, t shows the topics, ? lists all keys. Set NO_COLOR for no colours.
    Without a terminal, or with --json, the command prints one frame, as with --once.
    """
    if not LEAST_SECONDS <= interval <= MOST_SECONDS:
        raise InvalidInput(f"--interval {show_duration(interval)} must be between 100ms and 1h")
    check_buckets(window, bucket)
    watch = TopWatch(server, names, window, bucket)
    is_once = once or as_json or not sys.stdout.isatty()
    if is_once:
        watch.search(whole=True)
        return _print(watch, interval, as_json)
    watch.begin()
    _show(watch, interval)
    return 0


class TopWatch:
    """The watched queues, and their last readings.

    Args:
        names: of the queues; empty for all queues.
    """

    def __init__(self, server: ServerOptions, names: Sequence[str], window: float, bucket: float) -> None:
        self._server = server
        self._named = list(dict.fromkeys(names))
        self._window, self._bucket = window, bucket
        self._queues: dict[str, Queue] = {}
        self._firsts: dict[str, Snapshot] = {}
        self._looks: dict[str, Snapshot] = {}
        self._search_at = 0.0
        self._steps: Iterator[None] | None = None
        self._failed = ""  # why the last search that ended has failed
        self._refused: list[str] = []
        self.troubles: list[str] = []

    def begin(self) -> None:
        """Find the first queues; raise DelayqError if there are none to show. Otherwise `look` reports the error."""
        try:
            self.search()
        except DelayqError:
            if not self._queues:
                raise

    def look(self) -> list[QueueRow]:
        """Read each queue and return its row; `troubles` has the errors of queues that cannot be read."""
        self.troubles, self._refused = self._refused, []
        pulses: list[QueueRow] = []
        try:
            self.search()
            self.troubles += [self._failed] if self._failed else []
        except DelayqError as error:
            self.troubles.append(str(error))
        for name, queue in self._queues.items():
            try:
                now = look(queue, self._window, self._bucket)
            except DelayqError as error:
                self.troubles.append(f"{name}: {error}")
                continue
            pulses.append(pulse(self._looks.get(name), now, self._firsts.get(name)))
            self._firsts.setdefault(name, now)
            self._looks[name] = now
        return pulses

    def topics(self) -> list[TopicRow]:
        """Read each topic, as `look` reads queues."""
        rows: list[TopicRow] = []
        try:
            self._find(whole=False)
        except DelayqError as error:
            self.troubles.append(str(error))
        names = sorted(self._server.search.names["topic"])
        if left_out := names[MOST_TOPICS:]:
            self.troubles.append(f"{plural(len(left_out), 'topic')} beyond the first {MOST_TOPICS:,} not shown")
        for name in names[:MOST_TOPICS]:
            try:
                with self._server.topic(name) as topic:
                    rows.append(TopicRow(name, topic.length(due=False), topic.groups(quick=True)))
            except DelayqError as error:
                self.troubles.append(f"{name}: {error}")
        return rows

    def pause_or_resume(self, row: QueueRow) -> None:
        """Pause or resume a queue, unless its state has changed since it was shown."""
        queue = self._queues.get(row.queue)
        try:
            if queue is None or not queue.execute(manage.toggle, row.stats):
                self._refused.append(f"{row.queue} has changed in the meantime: press P again")
        except DelayqError as error:
            self._refused.append(f"{row.queue}: {error}")

    def search(self, whole: bool = False) -> None:
        """Find the queues if it is time; raise DelayqError if the server fails, or for a bad name.

        Args:
            whole: find all. Otherwise, if the registry has names, later calls continue the scan for others.
        """
        try:
            if not self._named:
                self._find(whole)
        finally:  # if this user may not scan keys, there are those in the registry
            names = self._named or sorted(self._server.search.names["queue"])
            self._queues = {name: self._queues.get(name) or self._server.queue(name) for name in names}

    def _find(self, whole: bool) -> None:
        if time.monotonic() < self._search_at:
            return
        search, until = self._server.search, time.monotonic() + STEP_SECONDS
        self._steps = self._steps or search.steps()
        try:
            for _ in self._steps:
                if any(search.names.values()) and not whole and time.monotonic() >= until:
                    return
            self._search_at = time.monotonic() + SEARCH_SECONDS
            self._steps, self._failed = None, ""
        except DelayqError as error:
            self._steps, self._failed = None, str(error)
            raise


def _print(watch: TopWatch, interval: float, as_json: bool) -> int:
    """Print one frame; return an exit code."""
    watch.look()
    time.sleep(interval)
    pulses = watch.look()
    for trouble in watch.troubles:
        note(trouble)
    if as_json:
        for each in pulses:
            print_json(_record(each))
    elif pulses:
        _print_table(pulses)
    elif not watch.troubles:
        note("no queues")
    return int(bool(watch.troubles))


def _record(seen: QueueRow) -> dict[str, Any]:
    rates = seen.rates
    record: dict[str, Any] = {"per_second": {name: getattr(rates, name, None) for name in PER_SECOND}}
    record |= {name: getattr(rates, field, None) for name, field in QUANTILES.items()}
    record["consumers_alive"] = seen.alive
    record["troubles"] = [msgspec.structs.asdict(each) for each in seen.troubles]
    record["upcoming"] = [msgspec.structs.asdict(bucket) for bucket in seen.upcoming]
    return stats_record(seen.stats) | record


def _print_table(pulses: Sequence[QueueRow]) -> None:
    from rich.console import Console  # noqa: PLC0415

    console = Console(width=None if sys.stdout.isatty() else WIDE, highlight=False)
    with console.capture() as captured:
        console.print(table(pulses, console.width))
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def _show(watch: TopWatch, interval: float) -> None:
    """Show frames until q or Ctrl-C is pressed."""
    view = TopView()
    view.take(watch.look())  # connect before the screen opens, so that log lines do not disturb it
    looked, at = time.monotonic(), datetime.now().astimezone()
    try:
        with screen() as (draw, wait):
            while not view.has_ended:
                above = _above(view, at, interval)
                draw(partial(frame, view, above, "; ".join(watch.troubles)))
                left = interval if view.is_paused else max(0.0, looked + interval - time.monotonic())
                for key in wait(left):
                    view.press(key)
                if view.to_pause is not None:
                    watch.pause_or_resume(view.to_pause)
                    view.to_pause, view.wants_look = None, True
                is_time = time.monotonic() >= looked + interval and not view.is_paused
                if is_time or view.wants_look:
                    view.wants_look = False
                    view.take(watch.look())
                    if view.page == "topics":
                        view.topics = watch.topics()
                    looked, at = time.monotonic(), datetime.now().astimezone()
    except KeyboardInterrupt:
        return


def _above(view: TopView, at: datetime, interval: float) -> str:
    """Return the first line."""
    how = "frozen: p resumes" if view.is_paused else f"every {show_duration(interval)}"
    return f"delayq top · {at:%H:%M:%S} · {plural(len(view.shown), 'queue')} · {how} · q quits"
