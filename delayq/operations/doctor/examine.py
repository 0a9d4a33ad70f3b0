"""Examine a live queue for faults, and repair them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from delayq.errors import QueueMismatch, ServerError, ServerNotReady, ServerUnreachable, ShardsMismatch
from delayq.model.envelope import QUEUE_FORMAT
from delayq.model.placement import MAX_SHARDS
from delayq.operations import presence, scan
from delayq.operations.doctor.finding import Finding, Step
from delayq.operations.doctor.report import Report
from delayq.operations.doctor.server import ask
from delayq.operations.doctor.shard import ShardExamination
from delayq.operations.doctor.versions import versions
from delayq.operations.queue_context import LOST, QueueContext
from delayq.protocol.command import Command, identity
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.queue_commands import QueueCommands

_AWAY = (ServerNotReady, ServerUnreachable)


def examine(context: QueueContext, repair: bool, on_step: Callable[[Step], None]) -> Operation[Report]:
    """Check everything that a queue holds, and its servers; with `repair`, repair what can be repaired."""
    [report] = yield from examine_all([context], repair, lambda _, step: on_step(step))
    return report


def examine_all(
    contexts: Iterable[QueueContext], repair: bool, on_step: Callable[[str, Step], None]
) -> Operation[list[Report]]:
    """Examine several queues of a server or a cluster; the keys of each server are scanned once for all of them.

    Args:
        on_step: called with each step and the name of its queue.
    """
    reports: list[Report] = []
    examinations: list[ShardExamination] = []
    for context in contexts:
        reports.append(Report(context.name, partial(on_step, context.name)))
        examinations += yield from _begin(context, reports[-1], repair)
    looks: dict[str, dict[str, scan.Look]] = {}
    for each in examinations:
        looks.setdefault(each.server, {}).update(each.looks())
    for each_server in looks.values():
        yield from scan.keys_of_ids(each_server)
    for each in examinations:
        yield from each.finish()
    return reports


def _begin(context: QueueContext, report: Report, repair: bool) -> Operation[list[ShardExamination]]:
    """Begin the examination of each shard; return those to finish."""
    (meta,) = yield [_meta(context)]
    if isinstance(meta, _AWAY):  # copies of it may be on other shards
        meta = {}
    trouble = _meta_trouble(meta)
    if trouble is None:
        try:
            shards = yield from context.opened()
        except QueueMismatch as error:
            remedy = (
                "open it with the number it was made with" if isinstance(error, ShardsMismatch) else "upgrade delayq"
            )
            trouble = Finding("meta", None, str(error), remedy)
    if trouble is not None:
        report.tell(trouble)
        return []
    if LOST in meta:
        yield from _tell_loss(context, report, repair)
    servers = yield from _look_at_servers(context, shards, report)
    begun = []
    counts = yield [scripts.stats() for scripts in shards]
    report.total = sum(sum(each.counts.values()) for each in counts if not isinstance(each, ServerError))
    (meta,) = yield [_meta(context)]  # once more: it is recorded before a first send
    if report.total and not isinstance(meta, _AWAY) and "shards" not in unwrap(meta):
        yield from _look_at_missing_record(shards, report, repair)
    yield from _look_at_versions(context, report, {} if isinstance(meta, _AWAY) else unwrap(meta))
    for number, scripts in enumerate(shards):
        where = f"shard {number}: " if len(shards) > 1 else ""
        if context.outlives(counts[number]):
            text = f"{where}it cannot be examined, and its messages wait: {counts[number]}"
            report.tell(Finding("unavailable", None, text, "bring its server back, or let a replica take over"))
        else:
            examination = ShardExamination(context, scripts, report, repair, where, servers[number])
            if (yield from examination.begin()):
                begun.append(examination)
        report.shards += 1
    return begun


def _tell_loss(context: QueueContext, report: Report, repair: bool) -> Operation[None]:
    key = context.shards[0].keys.meta
    if repair:
        unwrap((yield from execute(Command(key, ("HDEL", key, LOST), identity))))
    text = "the server has lost the queue's messages: it was flushed, or restarted without its data"
    remedy = "this finding is cleared" if repair else "restore a backup if you have one; repair clears this finding"
    report.tell(Finding(LOST, None, text, remedy, repaired=repair))


def _look_at_servers(context: QueueContext, shards: list[QueueCommands], report: Report) -> Operation[list[str]]:
    """Return for each shard what tells its server from others."""
    report.say("looking at the server")
    run_ids = set()
    servers = []
    for scripts in shards:
        server = yield from ask(scripts)
        servers.append((server.run_id or scripts.keys.meta) if context.spans_nodes() else "")
        if server.run_id is None or server.run_id not in run_ids:
            run_ids.add(server.run_id)
            report.servers.append(server)
            for danger in server.dangers():
                report.tell(danger)
    return servers


def _look_at_versions(context: QueueContext, report: Report, meta: dict[str, str]) -> Operation[None]:
    try:
        consumers = yield from presence.consumers(context)
    except ServerError:  # such as if another program has overwritten the list
        consumers = []
    report.versions = versions(meta.get("needs"), consumers)
    for finding in report.versions.too_old():
        report.tell(finding)


def _look_at_missing_record(shards: list[QueueCommands], report: Report, repair: bool) -> Operation[None]:
    text = (
        "the queue holds messages, but its number of shards is not recorded, so a client with a wrong number is not "
        "refused"
    )
    remedy = f"repair records {len(shards)}"
    if repair:
        unwrap((yield from execute(shards[0].open_queue(len(shards), create=True))))
        remedy = f"{len(shards)} recorded"
    report.tell(Finding("meta", None, text, remedy, repaired=repair))


def _meta(context: QueueContext) -> Command[dict[str, str]]:
    key = context.shards[0].keys.meta
    return Command(key, ("HGETALL", key), _read_meta)


def _read_meta(reply: Any) -> dict[str, str]:
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in reply.items()}


def _meta_trouble(meta: dict[str, str] | ServerError) -> Finding | None:
    """Return what is wrong with the queue's record, so that it cannot be opened; None for nothing."""
    if isinstance(meta, ServerError):
        return Finding(
            "meta", None, f"the queue's record cannot be read: {meta}", "remove the key that is in its place"
        )
    form, shards = meta.get("format", "1"), meta.get("shards", "1")
    if not (form.isdecimal() and 1 <= int(form) <= QUEUE_FORMAT):
        text = f"the queue's data has format {form!r}, but this delayq reads only 1 to {QUEUE_FORMAT}"
        return Finding("meta", None, text, "use the version of delayq that wrote it")
    if not (shards.isdecimal() and 1 <= int(shards) <= MAX_SHARDS):
        text = f"the queue's recorded number of shards is {shards!r}, not a number from 1 to {MAX_SHARDS:,}"
        return Finding("meta", None, text, "set the field `shards` of its key `meta` to the number it was made with")
    return None
