"""top: queues live, as top shows processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

import click
import msgspec

from delayq.errors import DelayqError, InvalidInput
from delayq.operations import manage
from delayq.operations.counts import check_buckets
from delayq.operations.topics import group_admin, read
from delayq.queue import Queue

from ..connection import ServerOptions
from ..formats import show_duration
from ..options import DURATION, command, json_option, server_options
from ..output import WIDE, note, plural, print_json
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
MOST_TOPICS = 1000  # as many as metrics read
SEARCH_SECONDS = 60.0  # the search for new queues goes over all keys of the server


@command(
    """
    delayq send emails hello --delay 1m
    delayq top --once --interval 100ms
    """,
    "Watch queues live: rates, states, lateness, what is next.",
)
@click.argument("names", metavar="[QUEUE]...", nargs=-1)
@click.option("--interval", type=DURATION, metavar="TIME", default="2s", show_default=True, help="How often to look.")
@window_option("5m")
@bucket_option("15s")
@click.option("--once", is_flag=True, help="Look twice, an interval apart, print one frame and end.")
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
    """Watch each QUEUE, or all queues, until q is pressed: how many messages are where, and how many move a second.

    Late is how late hand-outs since the last look were, ran how long handlers took: half of them, and 99 %, less than
    shown. Overdue is for how long the earliest message that is due has waited; cons are the consumers that live. The
    bars are what falls due within --window, from now on, a bar each --bucket. A queue in dim letters is paused.

    Keys: < and > choose the column to sort by, r reverses, / filters by name, the arrows select a queue, Enter shows
    all of it, P pauses or resumes it, t shows the topics, ? lists all keys. With NO_COLOR set there are no colours.
    Where there is no terminal, and with --json, one frame is printed, as with --once.
    """
    if not LEAST_SECONDS <= interval <= MOST_SECONDS:
        raise InvalidInput(f"--interval {show_duration(interval)} is not between 100ms and 1h")
    check_buckets(window, bucket)
    watch = TopWatch(server, names, window, bucket)
    watch.search()
    if once or as_json or not sys.stdout.isatty():
        return _print(watch, interval, as_json)
    _show(watch, interval)
    return 0


class TopWatch:
    """The queues that are watched, and what was last seen of them.

    Args:
        names: of the queues; none for all there are.
    """

    def __init__(self, server: ServerOptions, names: Sequence[str], window: float, bucket: float) -> None:
        self._server = server
        self._named = list(dict.fromkeys(names))
        self._window, self._bucket = window, bucket
        self._queues: dict[str, Queue] = {}
        self._firsts: dict[str, Snapshot] = {}
        self._looks: dict[str, Snapshot] = {}
        self._search_at = self._topic_search_at = 0.0
        self._topic_names: list[str] = []
        self._topics_left_out = 0
        self._refused: list[str] = []
        self.troubles: list[str] = []

    def look(self) -> list[QueueRow]:
        """Look at each queue, and return what has come of it; `troubles` are of those that cannot be read."""
        self.troubles, self._refused = self._refused, []
        pulses: list[QueueRow] = []
        try:
            self.search()
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
        """Look at each topic, as `look` does at queues."""
        rows: list[TopicRow] = []
        try:
            self._search_topics()
        except DelayqError as error:
            self.troubles.append(str(error))
        if self._topics_left_out:
            self.troubles.append(f"{plural(self._topics_left_out, 'topic')} after the first {MOST_TOPICS:,} not read")
        for name in self._topic_names:
            try:
                with self._server.topic(name) as topic:
                    rows.append(TopicRow(name, topic.execute(read.length), topic.execute(group_admin.groups, 1)))
            except DelayqError as error:
                self.troubles.append(f"{name}: {error}")
        return rows

    def _search_topics(self) -> None:
        if time.monotonic() >= self._topic_search_at:
            names = sorted(set(self._server.each_topic_name()))
            self._topic_names, self._topics_left_out = names[:MOST_TOPICS], len(names[MOST_TOPICS:])
            self._topic_search_at = time.monotonic() + SEARCH_SECONDS

    def pause_or_resume(self, row: QueueRow) -> None:
        """Pause or resume a queue, unless that is no longer what was shown."""
        queue = self._queues.get(row.queue)
        try:
            if queue is None or not queue.execute(manage.toggle, row.stats):
                self._refused.append(f"{row.queue} has changed meanwhile: press P again")
        except DelayqError as error:
            self._refused.append(f"{row.queue}: {error}")

    def search(self) -> None:
        """Find the queues, when it is time; raises DelayqError when the server does not serve, or for a bad name."""
        if time.monotonic() < self._search_at:
            return
        names = self._named or self._server.queue_names()
        self._queues = {name: self._queues.get(name) or self._server.queue(name) for name in names}
        self._search_at = time.monotonic() + SEARCH_SECONDS


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
        note("no queue here: nothing was ever sent")
    return int(bool(watch.troubles))


def _record(seen: QueueRow) -> dict[str, Any]:
    rates = seen.rates
    told: dict[str, Any] = {"per_second": {name: getattr(rates, name, None) for name in PER_SECOND}}
    told |= {name: getattr(rates, field, None) for name, field in QUANTILES.items()}
    told["consumers_alive"] = seen.alive
    told["troubles"] = [msgspec.structs.asdict(each) for each in seen.troubles]
    told["upcoming"] = [msgspec.structs.asdict(bucket) for bucket in seen.upcoming]
    return stats_record(seen.stats) | told


def _print_table(pulses: Sequence[QueueRow]) -> None:
    from rich.console import Console  # noqa: PLC0415

    console = Console(width=None if sys.stdout.isatty() else WIDE, highlight=False)
    with console.capture() as captured:
        console.print(table(pulses, console.width))
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def _show(watch: TopWatch, interval: float) -> None:
    """Show frame after frame until q is pressed, or Ctrl-C."""
    view = TopView()
    view.take(watch.look())  # what is logged when connecting is no part of the screen
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
