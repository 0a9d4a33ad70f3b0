"""check: whether the code at hand can handle the messages that wait."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any

import click
from click.core import ParameterSource

from delayq.aio import Queue as AsyncQueue
from delayq.model.misfit import Misfit
from delayq.model.show import plural
from delayq.operations.bulk.check import Checked, check_messages
from delayq.queue import Queue

from . import candidates
from .connection import ServerOptions
from .options import command, json_option, server_options
from .output import print_filled, print_json, say
from .progress import progress
from .targets import load_queue


@command(
    """
    delayq init
    delayq send emails '{"to": "a@example.org", "text": "hello"}'
    delayq check emails:emails
    """,
    "Before a deployment: check that code fits waiting messages.",
)
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True, shell_complete=candidates.targets)
@server_options
@json_option
@click.pass_context
def check(ctx: click.Context, server: ServerOptions, targets: Sequence[str], as_json: bool) -> int:
    """Check all waiting messages and dead letters of each TARGET against its code, and count those that would fail.

    TARGET is MODULE:QUEUE, as for delayq consume. A queue that names its server refuses --url with another one.

    A message would fail if its task or schedule has no function here, or if its payload does not match the function's
    annotations. Nothing is changed, no handler runs, and no value of a payload is shown. Dead letters count because
    they would fail again if you requeued them. Running messages, and those in a lake, are not checked. Exit code 1 if a
    message would fail.
    """
    if ctx.get_parameter_source("prefix") is ParameterSource.COMMANDLINE:
        raise click.UsageError("leave out --prefix: a queue in a module has the prefix of its Queue(…)")
    if server.url:
        os.environ["DELAYQ_URL"] = server.url  # for queues in modules
    typed_url = server.url if ctx.get_parameter_source("url") is ParameterSource.COMMANDLINE else None
    queues = [load_queue(target, typed_url) for target in dict.fromkeys(targets)]
    return max([_check(queue, as_json) for queue in queues])


def _check(queue: Queue | AsyncQueue, as_json: bool) -> int:
    with progress(f"checking {queue.name}", None) as bar:
        judge = queue.handlers.judge()
        if isinstance(queue, AsyncQueue):
            found = asyncio.run(_looked(queue, judge, bar.reach))
        else:
            found = queue.execute(check_messages, judge, bar.reach)
    if as_json:
        print_json({"queue": queue.name, **found._asdict()})
        return int(found.failing > 0)
    if found.misfits:
        columns = ("#count", "reason", "task", "field", "problem", "state", "examples")
        print_filled(columns, [_row(each) for each in found.misfits])
    failing = f"{found.failing:,} of them would fail" if found.failing else "none of them would fail"
    say(f"queue {queue.name}: looked at {plural(found.looked_at, 'message')}, {failing}")
    return int(found.failing > 0)


async def _looked(
    queue: AsyncQueue, judge: Callable[[Any], Exception | None], reach: Callable[[int, int], object]
) -> Checked:
    async with queue:  # its connections belong to this event loop
        return await queue.execute(check_messages, judge, reach)


def _row(group: Misfit) -> list[str]:
    texts = group.reason, group.task or "", group.field or "", group.problem or "", group.where
    return [f"{group.count:,}", *texts, ", ".join(group.samples)]
