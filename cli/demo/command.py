"""demo: the life of messages, live."""

from __future__ import annotations

import logging
import secrets
import shutil
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import click

from delayq.consumer import Consumer
from delayq.doctor import examine
from delayq.model.queue_stats import QueueStats
from delayq.model.show import show_duration
from delayq.queue import Queue

from ..bench import clear
from ..connection import ServerOptions
from ..options import command, server_options
from ..output import print_fields
from ..stats import balance
from .display import DemoView, stage
from .messages import ACTIONS, BACKOFF, EXPECTED, SPAN, TOTAL, Mailer, cast

LONGEST_SECONDS = 25.0  # the last message is due after 10
LOOK_SECONDS = 0.1
WORKERS = 4
CONSUMER = "demo"
REMOVE_SECONDS = 40.0  # the store's server ends after its last user, and is killed after 30 s


@command("delayq demo", "Watch messages live, from send to ack.")
@server_options
def demo(server: ServerOptions) -> int:
    """Watch 40 messages live: delays, retries, a dead letter, a cancel, a reschedule, an expiry. It stops by itself.

    Uses its own store in a temporary folder or, with --url, its own queue on that server, and leaves nothing behind.
    """
    logging.getLogger("delayq").setLevel(logging.ERROR)  # the demo itself says what happens
    with _place(server) as (home, where):
        queue = home.queue(f"demo-{secrets.token_hex(3)}", backoff=BACKOFF)
        click.echo(f"{TOTAL} messages, due over {SPAN:.0f} seconds; {WORKERS} workers; {where}")
        try:
            with stage() as view:
                mailer = Mailer(view.say)
                counts = _play(queue, view, mailer)
            return _verdict(queue, counts, mailer.early)
        finally:
            clear(queue)


@contextmanager
def _place(server: ServerOptions) -> Generator[tuple[ServerOptions, str]]:
    """Yield the server to use, and its description."""
    if server.url:
        yield server, "on the server of --url"
        return
    folder = Path(tempfile.mkdtemp(prefix="delayq-demo-"))
    try:
        with ServerOptions(f"embedded://{folder}", server.prefix) as own:
            yield own, f"embedded store in {folder}"
    finally:
        _remove(folder)


def _play(queue: Queue, view: DemoView, mailer: Mailer) -> QueueStats:
    """Send and handle the messages, and change some of them; return the final counts."""
    consumer = Consumer(queue, mailer, concurrency=WORKERS, shutdown_timeout=5, name=CONSUMER)
    consumer.start()
    try:
        queue.send_many(list(cast()))
        view.say(f"{TOTAL} messages sent")
        actions, expired = list(ACTIONS), 0
        while True:
            if actions and view.seconds >= actions[0].second:
                action = actions.pop(0)
                action.act(queue)
                view.say(action.text)
            counts = queue.stats()
            view.update(counts)
            if counts.expired > expired:
                expired = counts.expired
                view.say("code      expired: counted, but not started")
            if counts.inside == counts.dead or view.seconds > LONGEST_SECONDS:
                return counts
            time.sleep(LOOK_SECONDS)
    finally:
        consumer.stop()


def _verdict(queue: Queue, counts: QueueStats, early: int) -> int:
    """Print the sums, compare them with what was expected, and run the doctor; return an exit code."""
    report = examine(queue)
    late = [show_duration(counts.lateness_quantile(share) or 0) for share in (0.5, 1)]
    ended = f"{counts.acked} acked + {counts.nacked} retried + {counts.died} died + {counts.expired} expired"
    print_fields(
        [
            ("balance", balance(counts)),
            ("attempts", f"{counts.delivered} = {ended}"),
            ("lateness", f"half under {late[0]}, all under {late[1]}; {early or 'none'} early"),
            ("doctor", "healthy" if report.healthy else "; ".join(map(str, report.errors))),
        ]
    )
    wrong = {name: getattr(counts, name) for name, wanted in EXPECTED.items() if getattr(counts, name) != wanted}
    if wrong or counts.missing or early:
        raise click.ClickException(f"wrong: {wrong}; {counts.missing} missing; {early} early")
    return int(not report.healthy)


def _remove(folder: Path) -> None:
    """Remove the store's folder; its server may still be writing."""
    deadline = time.monotonic() + REMOVE_SECONDS
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.1)
