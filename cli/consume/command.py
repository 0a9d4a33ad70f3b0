"""consume: handle messages as they fall due."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import structlog
from click.core import ParameterSource

from delayq import signals
from delayq.model.other_libraries import OPTIONS
from delayq.model.validation import MOST_HANDLERS
from delayq.queue import Queue
from delayq.runtime.recycling import Recycling
from delayq.topic import Topic
from delayq.types import Pool

from .. import candidates
from ..connection import ServerOptions
from ..logging import LogFormat, LogLevel, configure
from ..options import DURATION, LONGEST_RUN, MEMORY, command, log_options, server_options
from ..targets import load_queue, split, weighed
from . import liveness_pipe
from .consumers import consumers_of
from .monitor import OWN as MONITORED
from .monitor import Monitor, MonitoredTargets, monitor_options
from .program import ProgramHandler
from .reload import Reloader
from .renewal import Renewal
from .startup import ask, when_served
from .supervisor import Supervisor, watch_supervisor
from .threads import ConsumerThreads
from .topic import Subscription, consume_topic, topic_options

log = structlog.get_logger("delayq")

URL_TYPED = "DELAYQ_URL_TYPED"
"""In a child's environment: DELAYQ_URL is what the command line says, which no queue may ignore."""


@command(
    """
    delayq send emails '{"to": "a@example.org"}'
    delayq consume emails --burst --exec 'cat; echo " of $DELAYQ_ID"'
    delayq send newsletters 'dear all'
    delayq consume emails=5 newsletters=1 --burst --exec 'cat'
    delayq consume --topic orders --group log --start 0 builtins:print --burst
    """,
    "Handle messages as they fall due.",
    elsewhere=OPTIONS,
)
@click.argument("targets", metavar="TARGET[=WEIGHT]...", nargs=-1, required=True, shell_complete=candidates.targets)
@click.option("--exec", "program", metavar="CMD", help="Run this shell command for each message.")
@click.option(
    "--exec-with-url",
    is_flag=True,
    help="With --exec: put DELAYQ_URL, with its password, into CMD's environment, for a CMD that calls delayq.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Strict priority: start a TARGET's messages only while no earlier TARGET has any waiting.",
)
@click.option(
    "--concurrency",
    "-c",
    type=click.IntRange(1, MOST_HANDLERS),
    help="Handlers that run at the same time, across all TARGETs. Default: 8, or one per core with --pool process.",
)
@click.option(
    "--pool",
    default="thread",
    type=click.Choice(["thread", "process"]),
    help="Where plain handlers run; use process for CPU-bound handlers.",
)
@click.option(
    "--timeout",
    type=LONGEST_RUN,
    metavar="TIME",
    help="Time limit per handler, unless the message has its own. Programs, processes and async handlers are "
    "stopped; threads are only logged.",
)
@click.option(
    "--processes",
    "-p",
    default=1,
    type=click.IntRange(1, 1000),
    help="Number of consumer processes; they are restarted if they die.",
)
@click.option(
    "--recycle-after",
    type=click.IntRange(1, 10**12),
    metavar="N",
    help="Replace a process with a new one after N messages, give or take a tenth: with --pool process, a process that "
    "runs handlers, otherwise the whole consumer process.",
)
@click.option(
    "--recycle-memory",
    type=MEMORY,
    metavar="SIZE",
    help="Also replace a process once it has this much resident memory, such as 500MB.",
)
@click.option("--burst", is_flag=True, help="Stop once no message is due.")
@click.option(
    "--no-wait",
    is_flag=True,
    help="Fail if the server does not answer at the start, instead of waiting for it. Implied by --burst. With "
    "--processes, a process that fails to start three times in a row is not restarted.",
)
@click.option(
    "--reload", is_flag=True, help="For development: restart when a Python file in or below this folder changes."
)
@click.option(
    "--max-messages",
    type=click.IntRange(1),
    metavar="N",
    help="Stop after N messages across all TARGETs, in each process.",
)
@click.option(
    "--shutdown-timeout",
    default="30s",
    type=DURATION,
    metavar="TIME",
    help="Time for running handlers to finish on shutdown. Unfinished messages are handed back without using a retry.",
)
@click.option(
    "--lease",
    default="30s",
    type=DURATION,
    metavar="TIME",
    help="With --exec: redeliver a message this long after its consumer has died.",
)
@log_options
@click.option(
    "--events",
    is_flag=True,
    help="Keep a ledger for each TARGET, unless delayq configure has turned it off; see delayq show --history.",
)
@monitor_options
@topic_options
@server_options
@click.pass_context
def consume(
    ctx: click.Context, server: ServerOptions, subscription: Subscription | None, monitor: Monitor,
    targets: Sequence[str],
    events: bool, program: str | None, exec_with_url: bool, strict: bool, concurrency: int | None, pool: Pool,
    timeout: float | None,
    processes: int, recycle_after: int | None, recycle_memory: int | None,
    burst: bool, no_wait: bool, reload: bool, max_messages: int | None, shutdown_timeout: float,
    lease: float, log_format: LogFormat, log_level: LogLevel,
) -> int:  # fmt: skip
    """Handle messages as they fall due, until SIGTERM or Ctrl-C. Then finish running messages and hand back the rest.

    A second Ctrl-C abandons running messages: they are redelivered when their leases end, and the exit code is 1.

    TARGET is MODULE:QUEUE, such as tasks:emails: a Queue with a handler or tasks in an importable module. A queue that
    names its server refuses --url with another one, and ignores DELAYQ_URL. With --exec, TARGET is the name of a queue.

    Several TARGETs with a backlog share the handlers equally, or by their WEIGHTs, 1 to 1,000. If a queue's name ends
    in = and digits, add a weight: a=5=1. Queues of delayq.aio share an event loop; alongside other queues they have
    their own --concurrency and --max-messages.

    Environment variables set options that the command line does not: DELAYQ_CONCURRENCY sets --concurrency, and so on.
    Options that select what is consumed have no variable: --exec, --exec-with-url, --topic, --group, --ledger, --start
    and --prefix.

    With --topic, TARGET is MODULE:HANDLER: a plain or async function that is called with each Record of the topic.

    \b
    --exec runs CMD with sh for each message:
      stdin        the payload: JSON as it was sent, or the bytes
      environment  DELAYQ_ID, DELAYQ_QUEUE, DELAYQ_ATTEMPT (deliveries of this ID
                   so far), DELAYQ_MAX_RETRIES, DELAYQ_DUE_AT,
                   DELAYQ_HEADER_NAME for each header; DELAYQ_SCHEDULE and
                   DELAYQ_SLOT, which are empty unless a schedule sent it;
                   DELAYQ_URL only with --exec-with-url
      exit code    0 acks it; 65 (EX_DATAERR) makes it a dead letter;
                   75 (EX_TEMPFAIL), any other code or a signal retries it later
      stdout       passes through
      stderr       is logged line by line; its end is kept as the error
    """  # noqa: D301  # click wants the character
    configure(log_format, log_level, of_servers=True)
    weights = weighed(targets, strict) if subscription is None else {targets[0]: None}
    _check(ctx, program, subscription)
    recycling = Recycling.of(recycle_after, recycle_memory)
    if os.environ.pop(URL_TYPED, ""):  # what handlers start must not read it
        ctx.set_parameter_source("url", ParameterSource.COMMANDLINE)
    if server.url:
        os.environ["DELAYQ_URL"] = (
            server.url
        )  # for queues in modules; not in the arguments of child processes, which others can see
    if reload:
        return _reloader(ctx, weights, program, processes, shutdown_timeout).run()
    if processes > 1 or (_renews_itself(ctx) and liveness_pipe.ENV not in os.environ):
        supervisor = Supervisor(
            _alone(ctx), processes, shutdown_timeout, ends=no_wait or burst or max_messages is not None
        )
        monitor.watch(supervisor)
        with monitor.serving(lambda: _monitored(server, subscription, weights, program), apart=True):
            return supervisor.run()
    renewal = Renewal(Recycling() if pool == "process" else recycling)
    watch_supervisor(lambda: monitor.stalled, renewal)
    waits = not (no_wait or burst)
    if program or subscription is not None:
        when_served(server.client, server.client, waits)
    if subscription is not None:
        options: dict[str, Any] = {
            "shutdown_timeout": shutdown_timeout,
            "timeout": timeout,
            "concurrency": concurrency or 8,
        }
        limits = {"burst": burst, "max_records": max_messages}
        with monitor.serving(lambda: MonitoredTargets(topics=[server.topic(subscription.topic, subscription.ledger)])):
            return int(consume_topic(server, subscription, targets[0], options, limits, monitor.watch) > 0)
    programs = ProgramHandler(program, timeout, exec_with_url) if program else None
    typed_url = server.url if _is_typed(ctx, "url") else None
    queue_of = partial(_named, server, lease) if programs else partial(load_queue, url=typed_url)
    queues = {queue_of(name): weight for name, weight in weights.items()}
    for queue in queues if events else ():
        queue.wish(events=True)
    options = {"concurrency": concurrency, "shutdown_timeout": shutdown_timeout, "strict": strict}
    options |= {"pool": pool, "timeout": None if programs else timeout}
    if pool == "process":
        options["initializer"] = partial(configure, log_format, log_level)
        options |= {"recycle_after": recycle_after, "recycle_memory": recycle_memory}
    renewal.note_fresh([*queues][-1].middleware)
    consumers = consumers_of(queues, programs, options)
    monitor.watch(*consumers)
    renewal.watch(consumers)
    try:
        with monitor.serving(lambda: MonitoredTargets(queues)):
            run = ConsumerThreads(consumers, burst, max_messages).run
            code = when_served(run, lambda: list(map(ask, queues)), waits)
            renewal.check()
            return code
    finally:
        if programs:
            with signals.ignored():  # another signal must not leave running programs behind
                programs.end()


def _named(server: ServerOptions, lease: float, name: str) -> Queue:
    """Return the queue of this name, and log if its name is new and much like another one."""
    queue = server.queue(name, lease=lease)
    if meant := server.likely_meant(name):
        log.warning("queue is new", queue=name, did_you_mean=meant)
    return queue


def _check(ctx: click.Context, program: str | None, subscription: Subscription | None) -> None:
    """Refuse options that do not apply to this kind of TARGET."""
    if subscription is not None:
        return
    for name in ("lease", "prefix"):
        if program is None and _is_given(ctx, name):
            raise click.UsageError(f"--{name} needs --exec: a queue in a module has the {name} of its Queue(…)")
    if program is None and ctx.params["exec_with_url"]:
        raise click.UsageError("--exec-with-url needs --exec: handlers in a module run with the consumer's environment")
    if program is not None and ctx.params["pool"] == "process":
        raise click.UsageError("--pool process needs MODULE:QUEUE: with --exec, each program is already a process")
    for name in ("recycle_after", "recycle_memory"):
        option = f"--{name.replace('_', '-')}"
        if program is not None and _is_given(ctx, name):
            raise click.UsageError(
                f"{option} needs MODULE:QUEUE: with --exec, each message already has a process of its own"
            )
        if ctx.params["pool"] == "thread" and ctx.params["max_messages"] is not None and _is_given(ctx, name):
            raise click.UsageError(
                f"{option} with --max-messages needs --pool process: a new consumer process would count its messages "
                "from 0 again"
            )
    if len(ctx.params["targets"]) > 1 and ctx.params["pool"] == "process":
        raise click.UsageError("--pool process takes only one TARGET: run one delayq consume for each")


def _reloader(
    ctx: click.Context, targets: Iterable[str], program: str | None, processes: int, shutdown_timeout: float
) -> Reloader:
    if program is not None:
        raise click.UsageError(
            "--reload needs MODULE:QUEUE: with --exec, the program is started for each message anyway"
        )
    if ctx.params["metrics_port"] is not None:
        if processes > 1:
            raise click.UsageError("--metrics-port with --reload works with only one process: leave out --processes")
        if _renews_itself(ctx):
            raise click.UsageError(
                "--metrics-port with --reload works with only one process at a time: leave out --recycle-after and "
                "--recycle-memory"
            )
    for target in targets:
        split(target)  # refuse at once what no change of a file can fix
    python, *words = _alone(ctx)
    # -B: compiled files have a resolution of a second, so the second of two saves within it would be missed.
    return Reloader([python, "-B", *words], processes, shutdown_timeout, Path.cwd())


def _alone(ctx: click.Context) -> list[str]:
    """Return the command line of one of several processes, or of the process that is reloaded.

    Options that variables set are not in it: the process reads these, too.
    """
    if _is_typed(ctx, "url"):
        os.environ[URL_TYPED] = "1"
    words = [sys.executable, "-P", "-m", "delayq.cli", "consume"]  # -P: modules of this folder must not hide Python's
    is_monitored = ctx.params["processes"] > 1 or _renews_itself(ctx)
    left_out = {"processes", "reload", "url", *(MONITORED if is_monitored else ())}
    for option in ctx.command.params:
        name = option.name or ""
        if isinstance(option, click.Option) and name in left_out and name in VARIABLES:
            os.environ.pop(VARIABLES[name], None)  # the process would read it
        elif isinstance(option, click.Option) and name not in left_out and _is_typed(ctx, name):
            words.append(max(option.opts, key=len))
            words += [] if option.is_flag else [str(ctx.params[name])]
    return [*words, "--", *ctx.params["targets"]]


def _renews_itself(ctx: click.Context) -> bool:
    """Whether the consumer's own process is replaced, and needs a supervisor, and not only processes of its pool."""
    return ctx.params["pool"] == "thread" and (_is_given(ctx, "recycle_after") or _is_given(ctx, "recycle_memory"))


def _is_typed(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _is_given(ctx: click.Context, name: str) -> bool:
    return _is_typed(ctx, name) or ctx.get_parameter_source(name) is ParameterSource.ENVIRONMENT


def _monitored(
    server: ServerOptions, subscription: Subscription | None, names: Iterable[str], program: str | None
) -> MonitoredTargets:
    """Return the queues and topics to monitor; the server may be unavailable yet."""
    options: dict[str, Any] = {"url": server.url, "prefix": server.prefix, "shards": None}
    if subscription is None:
        return MonitoredTargets([Queue(name, **options) if program else load_queue(name) for name in names])
    topic = Queue(subscription.topic, **options).events if subscription.ledger else Topic(subscription.topic, **options)
    return MonitoredTargets(topics=[topic])


def _read_variables() -> dict[str, str]:
    """Let variables set the options that do not say what is consumed; return the variable of each."""
    set_by: dict[str, str] = {}
    for option in consume.params:
        name = option.name or ""
        if isinstance(option, click.Option) and name not in CHOOSE and option.envvar is None:
            set_by[name] = option.envvar = f"DELAYQ_{name.upper()}"
    return set_by


CHOOSE = {"program", "exec_with_url", "topic", "group", "ledger", "start", "prefix", "help"}
"""Options that say what is consumed and from where."""

VARIABLES = _read_variables()
