"""The doctor of a lake: compares files with their names and manifests, and loaded messages with Redis."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from delayq.doctor import Finding, Report, Step
from delayq.errors import LakeMismatch
from delayq.lake import layout
from delayq.lake.layout import DeferredMessage, File, Loaded, Manifest
from delayq.lake.load import marks
from delayq.lake.queue_folder import Hour, QueueFolder, rows_of
from delayq.lake.shown_path import shown
from delayq.model.show import plural, show_moment
from delayq.model.units import from_ms
from delayq.operations.doctor.report import silent
from delayq.operations.inspect import find_all
from delayq.operations.queue_context import QueueContext, server_ms
from delayq.queue import Queue

NAMED = 3  # ids per finding
RESTORE = "restore it from a backup"


def examine(queue: Queue, lake: str | os.PathLike[str], on_step: Callable[[Step], None] = silent) -> Report:
    """Check all that a queue has in a lake; change nothing.

    Raises:
        ServerError
    """
    report = Report(queue.name, on_step)
    _Examination(queue, QueueFolder(lake, queue.name), report).run()
    return report


class _Examination:
    def __init__(self, queue: Queue, folder: QueueFolder, report: Report) -> None:
        self._queue = queue
        self._folder = folder
        self._report = report
        self._now_ms = queue.execute(server_ms)
        queue.execute(QueueContext.opened)

    def run(self) -> None:
        hours = {hour.name: hour for hour in self._folder.hours()}
        self._report.total = sum(file.rows for hour in hours.values() for file in hour.files.values())
        manifests = {name: self._manifest(hour) for name, hour in hours.items()}
        self._look_at_runs(hours, manifests)
        for name, hour in hours.items():
            self._look_at_manifest(hour, manifests[name])
            for file in hour.files.values():
                self._look_at_file(hour, file, manifests[name])

    def _tell(self, kind: str, text: str, remedy: str) -> None:
        self._report.tell(Finding(kind, None, text, remedy))

    def _manifest(self, hour: Hour) -> Manifest:
        try:
            return self._folder.manifest(hour.name) or Manifest(self._folder.queue, hour.name)
        except LakeMismatch as error:
            self._tell("lake-manifest", str(error), RESTORE)
            return Manifest(self._folder.queue, hour.name)

    def _look_at_runs(self, hours: dict[str, Hour], manifests: dict[str, Manifest]) -> None:
        for run in self._folder.runs():
            for path in run.files:
                hour, _, name = path.partition("/")
                loaded = {each.file for each in manifests[hour].loaded} if hour in manifests else set()
                if name not in loaded and (hour not in hours or name not in hours[hour].files):
                    text = f"{shown(self._folder.hour_folder(hour))}/{name}, written by run {run.run}, is gone"
                    self._tell("lake-file-missing", text, f"{RESTORE}, or repeat the run under the same name")

    def _look_at_manifest(self, hour: Hour, manifest: Manifest) -> None:
        where = shown(self._folder.hour_folder(hour.name))
        named = {each.file for each in [*manifest.loaded, *manifest.loading]}
        pruned = {each.file for each in manifest.loaded if each.pruned}
        missing = named - hour.files.keys() - pruned
        replaced = {name for name in missing if self._folder.was_replaced(hour.name, name)}
        for name in sorted(missing - replaced):
            self._tell("lake-file-missing", f"{where}/{name}, listed in its manifest, is gone", RESTORE)
        for loaded in manifest.loaded:
            accounted = loaded.sent + loaded.existing + loaded.cancelled + loaded.void
            if accounted != loaded.rows:
                text = f"the manifest of {where} accounts for {accounted} of the {loaded.rows} rows of {loaded.file}"
                self._tell("lake-manifest", text, RESTORE)
        begun = (each for each in manifest.loading if each.file not in replaced)
        late = [each.file for each in begun if each.reserved_until_ms <= self._now_ms]
        if late:
            text = f"a load of {where} was interrupted too long ago to be completed: {', '.join(late)}"
            self._tell("lake-broken-off", text, "run delayq pipeline hydrate to see what to do")

    def _look_at_file(self, hour: Hour, file: File, manifest: Manifest) -> None:
        self._report.say(f"looking at {hour.name}")
        try:
            table = self._folder.read(hour.name, file)
        except LakeMismatch as error:
            text, _, remedy = str(error).rpartition(": ")
            self._tell("lake-file-changed", text, remedy)
            return
        loaded = next((each for each in manifest.loaded if each.file == file.name), None)
        if loaded is not None and loaded.reserved_until_ms > self._now_ms:
            self._look_for(hour, file, loaded, table)
        elif loaded is None and layout.start_ms(hour.name) <= self._now_ms:
            self._look_at_open(hour, file, table)
        self._report.messages += file.rows

    def _look_at_open(self, hour: Hour, file: File, table: pa.Table) -> None:
        """Check whether a file that was not loaded holds messages that are due."""
        due = [
            each.row.due_ms
            for each in self._deferred(hour, file, table)
            if each.row.due_ms <= self._now_ms and self._folder.is_there(each)
        ]
        if due:
            since = show_moment(from_ms(min(due)), from_ms(self._now_ms))
            where = f"{shown(self._folder.hour_folder(hour.name))}/{file.name}"
            text = f"{where} still holds {plural(len(due), 'due message')}, the first due since {since}"
            self._tell("lake-left-behind", text, f"run delayq pipeline hydrate {self._queue.name}, and more often")

    def _look_for(self, hour: Hour, file: File, loaded: Loaded, table: pa.Table) -> None:
        """Check that what was loaded is in Redis or is still reserved there."""
        lost: list[str] = []
        for batch in table.to_batches(1000):
            lost += self._lost([each for each in self._deferred(hour, file, batch) if self._folder.is_there(each)])
        if lost:
            where = shown(self._folder.hour_folder(hour.name))
            text = (
                f"Redis does not have {plural(len(lost), 'loaded message')} of {where}/{file.name}: "
                f"{', '.join(lost[:NAMED])}{', …' if len(lost) > NAMED else ''}"
            )
            until = from_ms(loaded.reserved_until_ms).isoformat(timespec="minutes")
            remedy = (
                f"if Redis has lost them, remove the file from `loaded` in {layout.MANIFEST}@….json, and hydrate "
                f"again: until {until}, messages that Redis still knows are not loaded twice"
            )
            self._tell("lake-lost", text, remedy)

    def _deferred(self, hour: Hour, file: File, table: pa.Table | pa.RecordBatch) -> Iterator[DeferredMessage]:
        """Yield those that were neither cancelled nor moved."""
        all_deferred = (DeferredMessage(hour.name, file.source, row) for row in rows_of(table))
        return (each for each in all_deferred if each.mark not in (hour.changes or ()))

    def _lost(self, deferred: Sequence[DeferredMessage]) -> list[str]:
        reserved = self._queue.execute(marks, deferred)
        ids = [each.row.id for each, until in zip(deferred, reserved, strict=True) if until is None]
        found = self._queue.execute(find_all, ids)
        return [message_id for message_id, each in zip(ids, found, strict=True) if not each.scores]
