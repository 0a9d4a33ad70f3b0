"""The examination of a queue's schedules: will each of them go on?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from delayq.calls import Call, Steps, expect, id_of
from delayq.operations import arming, scheduling
from delayq.operations.core import Core
from delayq.operations.findings import Finding, Severity
from delayq.operations.report import Report
from delayq.plan import plan_of

Mend = Callable[[Core, str], Steps[Any]]


def look_at_schedules(core: Core, report: Report, repair: bool) -> Steps[None]:
    """Report what is wrong with schedules: what is so at two instants."""
    report.say("looking at schedules")
    first = yield from _wrong(core)
    second = (yield from _wrong(core)) if first else {}
    for name, (text, remedy, mend) in second.items():
        if first.get(name, ("",))[0] != text:
            continue
        repaired = repair and mend is not None
        if repaired and mend is not None:
            yield from mend(core, name)
        severity: Severity = "error" if mend is not _revive else "warning"
        about = f"schedule {name!r} {text}"
        report.tell(Finding("schedule", None, about, "mended" if repaired else remedy, severity, repaired))


def _wrong(core: Core) -> Steps[dict[str, tuple[str, str, Mend | None]]]:
    scripts, key = arming.home(core), arming.home(core).keys.schedules
    counts, records, slots = yield [scripts.stats(), Call(key, ("HGETALL", key), dict), scripts.armed(10**9, 0)]
    armed, now = dict(expect(slots)), expect(counts).now_ms
    found: dict[str, tuple[str, str, Mend | None]] = {}
    for name in sorted(armed.keys() - {id_of(raw) for raw in expect(records)}):
        found[name] = ("is armed, but nothing is known of it", "repair forgets it", scheduling.remove)
    for raw, record in expect(records).items():
        name = id_of(raw)
        envelope = arming.opened(record)
        if envelope is None or plan_of(envelope.headers or {}) is None:
            text = "cannot be read: another program has written it, or a newer delayq"
            found[name] = (text, "add it again, or remove it", None)
        elif name not in armed:
            found[name] = ("is not armed: it would never fire", "repair arms its next slot", scheduling.resume)
    overdue = {name: slot for name, slot in armed.items() if 0 < slot <= now and name not in found}
    for name in (yield from arming.gone(core, overdue)):
        text = "has lost its occurrence: it was cancelled, purged, or deleted by another program"
        found[name] = (text, "a consumer arms the next slot within a minute", _revive)
    return found


def _revive(core: Core, _: str) -> Steps[int]:
    return (yield from arming.revive(core))
