"""Examining: whether a queue, live, keeps its promises; and repairing it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from delayq.calls import Call, Steps, expect, one
from delayq.envelope import FORMAT
from delayq.errors import QueueMismatch, ServerError
from delayq.operations.core import MAX_SHARDS, Core
from delayq.operations.findings import Finding, Step
from delayq.operations.report import Report
from delayq.operations.servers import ask, dangers
from delayq.operations.shard_examination import ShardExamination
from delayq.scripts import Scripts


def examine(core: Core, repair: bool, on_step: Callable[[Step], None]) -> Steps[Report]:
    """Look at everything that a queue holds, and at its servers; repair what can be, when asked to."""
    report = Report(core.name, on_step)
    (meta,) = yield [_meta(core)]
    trouble = _meta_trouble(meta)
    if trouble is None:
        try:
            shards = yield from core.opened()
        except QueueMismatch as error:
            trouble = Finding("meta", None, str(error), "open it as it was made")
    if trouble is not None:
        report.tell(trouble)
        return report
    yield from _look_at_servers(shards, report)
    report.total = yield from _count(shards)
    if report.total and "shards" not in (yield from one(_meta(core))):  # once more: it is recorded before a first send
        yield from _look_at_missing_record(shards, report, repair)
    for number, scripts in enumerate(shards):
        where = f"shard {number}: " if len(shards) > 1 else ""
        yield from ShardExamination(core, scripts, report, repair, where).run()
        report.shards += 1
    return report


def _look_at_servers(shards: list[Scripts], report: Report) -> Steps[None]:
    report.say("looking at the server")
    run_ids = set()
    for scripts in shards:
        server = yield from ask(scripts)
        if server.run_id is None or server.run_id not in run_ids:
            run_ids.add(server.run_id)
            report.servers.append(server)
            for danger in dangers(server):
                report.tell(danger)


def _count(shards: list[Scripts]) -> Steps[int]:
    results = yield [scripts.stats() for scripts in shards]
    return sum(sum(result.counts.values()) for result in results if not isinstance(result, ServerError))


def _look_at_missing_record(shards: list[Scripts], report: Report, repair: bool) -> Steps[None]:
    text = (
        "the queue holds messages, but its number of shards is not recorded: a client with another one is not refused"
    )
    remedy = f"repair records {len(shards)}"
    if repair:
        expect((yield from one(shards[0].open(len(shards), create=True))))
        remedy = f"{len(shards)} recorded"
    report.tell(Finding("meta", None, text, remedy, repaired=repair))


def _meta(core: Core) -> Call[dict[str, str]]:
    key = core.shards[0].keys.meta
    return Call(key, ("HGETALL", key), _read_meta)


def _read_meta(reply: Any) -> dict[str, str]:
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in reply.items()}


def _meta_trouble(meta: dict[str, str] | ServerError) -> Finding | None:
    """What in the queue's record keeps it from being opened."""
    if isinstance(meta, ServerError):
        return Finding("meta", None, f"the queue's record cannot be read: {meta}", "remove what stands in its place")
    form, shards = meta.get("format", "1"), meta.get("shards", "1")
    if not (form.isdecimal() and 1 <= int(form) <= FORMAT):
        text = f"the queue's data has the format {form!r}, and this delayq reads 1 to {FORMAT}"
        return Finding("meta", None, text, "use the delayq that wrote it")
    if not (shards.isdecimal() and 1 <= int(shards) <= MAX_SHARDS):
        text = f"the queue is recorded with {shards!r} shards, which is no number from 1 to {MAX_SHARDS}"
        return Finding(
            "meta", None, text, "set the field `shards` of its key `meta` to the number that it was made with"
        )
    return None
