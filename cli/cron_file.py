"""A file of schedules, and how the stored schedules differ from it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from delayq.errors import InvalidInput
from delayq.model.delivery import Outgoing
from delayq.model.occurrence import Missed, make_plan
from delayq.model.schedule import Schedule
from delayq.model.validation import check_schedule_name
from delayq.operations import schedules
from delayq.queue import Queue

from .json_lines import BYTE_ORDER_MARK, seconds_of

TIMES = ("when", "timezone", "missed", "grace", "start", "end", "jitter")
COMPARED = (*TIMES, "task", "payload", "headers", "max_retries", "timeout")


Job: TypeAlias = tuple[schedules.Prepared, Schedule]


class CronJob(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A table of the file."""

    when: str
    timezone: str = "UTC"
    missed: Missed = "once"
    grace: float | str | None = None
    start: dt.datetime | None = None
    end: dt.datetime | None = None
    jitter: float | str = 0.0
    payload: Any = None
    exec: str | None = None
    task: str | None = None
    headers: dict[str, Any] = {}
    max_retries: int | None = None
    timeout: float | str | None = None


class ScheduleChange(msgspec.Struct, frozen=True):
    """A change to a schedule: it is stored if it is `prepared`, otherwise removed."""

    name: str
    text: str
    prepared: schedules.Prepared | None = None

    def __str__(self) -> str:
        return self.text

    def make(self, queue: Queue) -> None:
        """Apply the change."""
        if self.prepared is None:
            queue.schedules.remove(self.name)
        else:
            queue.execute(schedules.add, self.prepared)


def read_jobs(queue: Queue, file: Path) -> list[Job]:
    """Return the checked schedules of a file; raise InvalidInput that names the file and the schedule."""
    try:
        tables: dict[str, Any] = msgspec.toml.decode(file.read_bytes().removeprefix(BYTE_ORDER_MARK))
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError, RecursionError) as error:
        raise InvalidInput(f"{file}: {error}") from error
    jobs = []
    for name, table in tables.items():
        try:
            jobs.append(_prepare(queue, name, _job(table)))
        except InvalidInput as error:
            raise InvalidInput(f"{file}: [{name}]: {error}") from error
    return jobs


def _job(table: object) -> CronJob:
    known = CronJob.__struct_fields__
    if not isinstance(table, dict):
        raise InvalidInput(f"{table!r} is not a table: write [NAME], and below it when = and other fields")
    wrong = [f"unknown field {key!r}" for key in table if key not in known]
    wrong += ["when is missing"] if "when" not in table else []
    if wrong:
        raise InvalidInput(f"{', '.join(wrong)}: the fields are {', '.join(known)}; only the first is required")
    try:
        return msgspec.convert(table, CronJob)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error)) from error


def _prepare(queue: Queue, name: str, job: CronJob) -> Job:
    if job.exec is not None and job.payload is not None:
        raise InvalidInput("give either payload or exec, not both")
    if job.exec is not None and job.task is not None:
        raise InvalidInput("give either task or exec, not both")
    grace, jitter = seconds_of(job.grace), seconds_of(job.jitter) or 0
    plan = make_plan(job.when, job.timezone, job.missed, grace, job.start, job.end, jitter, own=False)
    payload = job.payload if job.exec is None else job.exec.encode()
    if job.task is not None and payload is None:
        payload = {}
    timeout = seconds_of(job.timeout)
    message = Outgoing(payload, max_retries=job.max_retries, headers=job.headers, timeout=timeout, task=job.task)
    prepared, described = queue.execute(schedules.check, name, plan, message=message)
    assert described is not None
    return prepared, described


def differences(queue: Queue, wanted: Sequence[Job]) -> list[ScheduleChange]:
    """Return the changes from the stored schedules to the wanted ones, in their order; removals are last."""
    stored = {each.name: each for each in queue.schedules.list()}
    changes = []
    for prepared, new in wanted:
        old = stored.get(new.name)
        if old is None:
            changes.append(ScheduleChange(new.name, f"+ {new.name}: {new.when} ({new.timezone})", prepared))
        elif changed := _changed(old, new):
            changes.append(ScheduleChange(new.name, f"~ {new.name}: {changed}", prepared))
    names = {new.name for _, new in wanted}
    gone = [each for each in stored.values() if each.name not in names and not each.own]
    changes += [ScheduleChange(each.name, f"- {each.name}: {each.when} ({each.timezone})") for each in gone]
    for name in queue.execute(schedules.unreadable):
        if name not in names and _is_name(name):  # no command accepts another name; `delayq doctor` shows it
            changes.append(
                ScheduleChange(name, f"- {name}: cannot be read: another program or a newer delayq has written it")
            )
    return changes


def _is_name(name: str) -> bool:
    try:
        check_schedule_name(name)
    except InvalidInput:
        return False
    return True


def _changed(old: Schedule, new: Schedule) -> str:
    pairs = [(name, getattr(old, name), getattr(new, name)) for name in COMPARED]
    said = [f"{name} {before!r} -> {after!r}" for name, before, after in pairs if before != after]
    return ", ".join(said + (["a function's -> the file's"] if old.own else []))
