"""Check that each of a queue's schedules will fire again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from delayq.model.occurrence import FINISHED, plan_of
from delayq.model.text import decode_id
from delayq.operations import schedule_chain, schedules
from delayq.operations.doctor.finding import Finding, Severity
from delayq.operations.doctor.report import Report
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, unwrap

Mend = Callable[[QueueContext, str], Operation[Any]]


def look_at_schedules(context: QueueContext, report: Report, repair: bool) -> Operation[None]:
    """Report what is wrong with schedules at two instants."""
    report.say("looking at schedules")
    first = yield from _wrong(context)
    second = (yield from _wrong(context)) if first else {}
    for name, (text, remedy, mend) in second.items():
        if first.get(name, ("",))[0] != text:
            continue
        repaired = repair and mend is not None
        if repaired and mend is not None:
            yield from mend(context, name)
        severity: Severity = "error" if mend is not _revive else "warning"
        about = f"schedule {name!r} {text}"
        report.tell(Finding("schedule", None, about, "repaired" if repaired else remedy, severity, repaired))


def _wrong(context: QueueContext) -> Operation[dict[str, tuple[str, str, Mend | None]]]:
    scripts, key = schedule_chain.home(context), schedule_chain.home(context).keys.schedules
    counts, records, slots = yield [
        scripts.stats(),
        Command(key, ("HGETALL", key), dict),
        scripts.armed(10**9, FINISHED),
    ]
    armed, now = dict(unwrap(slots)), unwrap(counts).now_ms
    found: dict[str, tuple[str, str, Mend | None]] = {}
    for name in sorted(armed.keys() - {decode_id(raw) for raw in unwrap(records)}):
        found[name] = ("has a next slot but no definition", "repair removes it", schedules.remove)
    for raw, record in unwrap(records).items():
        name = decode_id(raw)
        envelope = schedule_chain.opened(record)
        if plan_of(envelope) is None:
            text = "cannot be read: another program or a newer delayq has written it"
            found[name] = (text, "add it again, or remove it", None)
        elif name not in armed:
            found[name] = ("has no next slot: it would never fire", "repair sets its next slot", schedules.resume)
    overdue = {name: slot for name, slot in armed.items() if 0 < slot <= now and name not in found}
    for name in (yield from schedule_chain.gone(context, overdue, now)):
        text = "has lost its next occurrence: it was cancelled, purged, moved or deleted, or its id is another's"
        found[name] = (text, "a consumer schedules the next one within a minute", _revive)
    return found


def _revive(context: QueueContext, _: str) -> Operation[int]:
    count = yield from schedule_chain.revive(context)
    while context.sweeps.armed:
        count += yield from schedule_chain.revive(context)
    return count
