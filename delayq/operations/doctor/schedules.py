"""Check that each of a queue's schedules will fire again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from delayq.model.occurrence import plan_of
from delayq.model.text import decode_id
from delayq.operations import scan, schedule_chain, schedules
from delayq.operations.doctor.finding import Finding, Severity
from delayq.operations.doctor.report import Report
from delayq.operations.queue_context import QueueContext, time_call
from delayq.protocol.operation import Operation, execute

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
    armed: set[str] = set()

    def look(items: dict[bytes, Any]) -> Operation[None]:
        armed.update(map(decode_id, items))
        yield from ()

    yield from scan.structure("ZSCAN", schedule_chain.home(context).keys.armed, look)
    stored = yield from schedules.read_all(context)
    now = yield from execute(time_call(context))
    found: dict[str, tuple[str, str, Mend | None]] = {}
    for name in sorted(armed - stored.keys()):
        found[name] = ("has a next slot but no definition", "repair removes it", schedules.remove)
    for name, each in stored.items():
        if plan_of(schedule_chain.opened(each.record)) is None:
            text = "cannot be read: another program or a newer delayq has written it"
            found[name] = (text, "add it again, or remove it", None)
        elif each.slot_ms is None:
            found[name] = ("has no next slot: it would never fire", "repair sets its next slot", schedules.resume)
    slots = {name: each.slot_ms for name, each in stored.items() if each.slot_ms is not None and name not in found}
    overdue = {name: slot for name, slot in slots.items() if 0 < slot <= now}
    for name in (yield from schedule_chain.gone(context, overdue, now)):
        text = "has lost its next occurrence: it was cancelled, purged, moved or deleted, or its id is another's"
        found[name] = (text, "a consumer schedules the next one within a minute", _revive)
    return found


def _revive(context: QueueContext, _: str) -> Operation[int]:
    count = yield from schedule_chain.revive(context)
    while context.sweeps.armed:
        count += yield from schedule_chain.revive(context)
    return count
