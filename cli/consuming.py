"""consume: handling messages as they fall due."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import click
import structlog

from delayq.consumer import Consumer
from delayq.errors import DelayqError
from delayq.job import Pool
from delayq.supervisor import SUPERVISOR_ENV, Supervisor, is_orphan

from . import candidates
from .awaiting import Awaited
from .fanning import Subscription, consume_topic, topic_options
from .logging import LogFormat, configure
from .options import DURATION, LONGEST_RUN, command, server_options
from .programs import Programs
from .reloading import Reloader
from .server import Server
from .serving import consumers_of
from .targets import load_queue, split, weighed

ORPHAN_SECONDS = 1.0  # between two looks at whether the supervisor still lives

log = structlog.get_logger("delayq")


@command(
    """
    delayq send emails '{"to": "a@example.org"}'
    delayq consume emails --exec 'cat; echo " attempt $DELAYQ_ATTEMPT of $DELAYQ_ID"' --burst
    delayq send newsletters 'dear all'
    delayq consume emails=5 newsletters=1 --exec 'echo "$DELAYQ_QUEUE: $(cat)"' --burst
    delayq consume --topic orders --group log --start 0 builtins:print --burst
    """,
    "Handle messages as they fall due.",
)
@click.argument("targets", metavar="TARGET[=WEIGHT]...", nargs=-1, required=True, shell_complete=candidates.targets)
@click.option("--exec", "program", metavar="CMD", help="Run this shell command for each message of the queues TARGET.")
@click.option("--strict", is_flag=True, help="Begin with a TARGET's messages only while none of those before it waits.")
@click.option(
    "--concurrency",
    "-c",
    type=click.IntRange(1, 10_000),
    help="Handlers at a time, of all TARGETs together: 8, or with --pool process a core each.",
)
@click.option(
    "--pool",
    default="thread",
    show_default=True,
    type=click.Choice(["thread", "process"]),
    help="What plain handlers run in; process is for those that compute.",
)
@click.option(
    "--timeout",
    type=LONGEST_RUN,
    metavar="TIME",
    help="For each handler: then a program, a process and an async one are ended, and a thread is told of.",
)
@click.option(
    "--processes", "-p", default=1, show_default=True, type=click.IntRange(1, 1000), help="Restarted when they die."
)
@click.option("--burst", is_flag=True, help="End when nothing is due.")
@click.option(
    "--reload", is_flag=True, help="For development: begin anew when a Python file in this folder, or below, changes."
)
@click.option(
    "--max-messages", type=click.IntRange(1), metavar="N", help="End after N messages of all TARGETs, in each process."
)
@click.option(
    "--shutdown-timeout",
    default="30s",
    type=DURATION,
    metavar="TIME",
    show_default=True,
    help="For what runs at the end.",
)
@click.option(
    "--lease",
    default="30s",
    type=DURATION,
    metavar="TIME",
    show_default=True,
    help="With --exec: how long the message of a consumer that vanished waits for another one.",
)
@click.option(
    "--log-format", default="console", type=click.Choice(["console", "json"]), show_default=True, help="On stderr."
)
@click.option("--events", is_flag=True, help="Keep a ledger of each TARGET; see delayq show --history.")
@topic_options
@server_options
@click.pass_context
def consume(
    ctx: click.Context, server: Server, subscription: Subscription | None, targets: Sequence[str], events: bool,
    program: str | None, strict: bool, concurrency: int | None, pool: Pool, timeout: float | None, processes: int,
    burst: bool, reload: bool, max_messages: int | None, shutdown_timeout: float, lease: float, log_format: LogFormat,
) -> int:  # fmt: skip
    """Handle messages as they fall due, until SIGTERM or Ctrl-C; then finish what runs, and hand back the rest.

    TARGET is MODULE:QUEUE, a Queue in an importable module with its handler, such as tasks:emails; it connects as the
    module says, and by --url where the module says nothing. With --exec, TARGET is the name of a queue.

    While several TARGETs are backlogged, each has the same part of the handlers' runs; with WEIGHTs, 1 to 1000, as much
    as those say. A queue whose own name ends in = and digits is given with its weight: a=5=1. Those of delayq.aio share
    an event loop, and beside others they have a --concurrency, and --max-messages, of their own.

    With --topic, TARGET is MODULE:HANDLER: a function, plain or async, that is called with each Record of the topic.

    \b
    --exec runs CMD with sh for each message:
      stdin        the payload: JSON as it was sent, or the bytes
      environment  DELAYQ_ID, DELAYQ_QUEUE, DELAYQ_ATTEMPT (deliveries of this ID so far),
                   DELAYQ_MAX_RETRIES, DELAYQ_DUE_AT, and DELAYQ_HEADER_NAME for each header
      exit code    0 acks; 65 (EX_DATAERR) makes it a dead letter at once;
                   75 (EX_TEMPFAIL), any other and a signal have it retried later
      stdout       passes through
      stderr       is logged, line by line, and its end is kept as the error
    """  # noqa: D301  # click wants the character
    configure(log_format)
    weights = weighed(targets, strict) if subscription is None else {targets[0]: None}
    _check(ctx, program, subscription)
    if server.url:
        os.environ["DELAYQ_URL"] = server.url  # for queues of modules, and never in the arguments of a child
    if reload:
        return _reloader(ctx, weights, program, processes, shutdown_timeout).run()
    if processes > 1:
        return Supervisor(_alone(ctx), processes, shutdown_timeout, ends=burst or max_messages is not None).run()
    if subscription is not None:
        options: dict[str, Any] = {
            "shutdown_timeout": shutdown_timeout,
            "timeout": timeout,
            "concurrency": concurrency or 8,
        }
        _watch_supervisor()
        consume_topic(server, subscription, targets[0], options, {"burst": burst, "max_records": max_messages})
        return 0
    programs = Programs(program, timeout) if program else None
    queues = {server.queue(name, lease=lease) if programs else load_queue(name): each for name, each in weights.items()}
    for queue in queues if events else ():
        queue.core.wish(events=True)
    options = {"concurrency": concurrency, "shutdown_timeout": shutdown_timeout, "strict": strict}
    options |= {"pool": pool, "timeout": None if programs else timeout}
    if pool == "process":
        options["initializer"] = partial(configure, log_format)
    consumers = consumers_of(queues, programs, options)
    _watch_supervisor()
    try:
        return _Fleet(consumers, burst, max_messages).run()
    finally:
        if programs:
            _end(programs)


def _check(ctx: click.Context, program: str | None, subscription: Subscription | None) -> None:
    """Refuse options that do nothing for this kind of TARGET."""
    if subscription is not None:
        return
    for name in ("lease", "prefix"):
        if program is None and _is_given(ctx, name):
            raise click.UsageError(f"--{name} goes with --exec: a queue in a module has the {name} of its Queue(…)")
    if program is not None and ctx.params["pool"] == "process":
        raise click.UsageError("--pool process goes with MODULE:QUEUE: a program of --exec is a process already")
    if len(ctx.params["targets"]) > 1 and ctx.params["pool"] == "process":
        raise click.UsageError("--pool process is for one TARGET: give each a delayq consume of its own")


def _end(programs: Programs) -> None:
    """End what still runs; one signal more must not leave it behind."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    programs.end()
    for number, old in previous.items():
        signal.signal(number, old)


def _reloader(
    ctx: click.Context, targets: Iterable[str], program: str | None, processes: int, shutdown_timeout: float
) -> Reloader:
    if program is not None:
        raise click.UsageError("--reload goes with MODULE:QUEUE: a program of --exec is started anew for each message")
    for target in targets:
        split(target)  # what no change of a file mends is refused at once
    python, *words = _alone(ctx)
    # -B: compiled files are told apart by the second, and two saves within one would be taken for one.
    return Reloader([python, "-B", *words], processes, shutdown_timeout, Path.cwd())


def _alone(ctx: click.Context) -> list[str]:
    """Return the command line of one process of several."""
    words = [sys.executable, "-P", "-m", "delayq.cli", "consume"]  # -P: modules of this folder hide none of Python's
    for option in ctx.command.params:
        name = option.name or ""
        if isinstance(option, click.Option) and _is_given(ctx, name) and name not in ("processes", "reload", "url"):
            words.append(max(option.opts, key=len))
            words += [] if option.is_flag else [str(ctx.params[name])]
    return [*words, "--", *ctx.params["targets"]]


def _is_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _watch_supervisor() -> None:
    """End this process in good order when its supervisor was killed."""
    if SUPERVISOR_ENV not in os.environ:
        return

    def watch() -> None:
        while not is_orphan():
            time.sleep(ORPHAN_SECONDS)
        log.warning("the supervisor is gone: stopping")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="delayq-supervisor-watch", daemon=True).start()


class _Fleet:
    """Consumers side by side in this process."""

    def __init__(self, consumers: Sequence[Consumer | Awaited], burst: bool, max_messages: int | None) -> None:
        self._consumers = consumers
        self._limits: dict[str, Any] = {"burst": burst, "max_messages": max_messages}
        self._errors: list[BaseException] = []
        self._signals = 0

    def run(self) -> int:
        """Run all until each has ended, or a signal comes; a second one ends them at once."""
        if len(self._consumers) == 1:
            self._consumers[0].run(**self._limits)
            return 0
        threads = [threading.Thread(target=self._run, args=(each,), daemon=True) for each in self._consumers]
        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            for thread in threads:
                thread.start()
            self._wait(threads)
        finally:
            for number, old in previous.items():
                signal.signal(number, old)
        if self._errors:
            raise self._errors[0]
        return 0

    def _run(self, consumer: Consumer | Awaited) -> None:
        try:
            consumer.run(**self._limits)
        except DelayqError as error:
            self._errors.append(error)

    def _wait(self, threads: Iterable[threading.Thread]) -> None:
        while any(thread.is_alive() for thread in threads) and self._signals < 2:
            if self._signals or self._errors:  # again and again: one that is only just starting has missed the first
                for consumer in self._consumers:
                    consumer.stop()
            for thread in threads:
                thread.join(0.05)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1
