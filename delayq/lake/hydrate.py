"""Hydrating: regular runs load the hours of a lake that fall due soon into Redis, ahead of time.

    open ── manifest: loading ── messages sent ── manifest: loaded
     ↑                                                │
     └────────────── a file is added ─────────────────┘

A run may be killed at any point. The next one starts again what it had begun. Messages that were sent are not sent
again, because their marks are reserved, even if the messages are gone.
"""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from delayq.errors import (
    DelayqError,
    InvalidInput,
    KeyOverwritten,
    LakeMismatch,
    LoginRefused,
    QueueFull,
    QueueMismatch,
)
from delayq.lake import layout
from delayq.lake.deferred_messages import RESERVE_MS
from delayq.lake.layout import HOUR_MS, Loaded, Loading, Manifest
from delayq.lake.load import LEAST_RESERVE_MS, ChangeSnapshots, LoadTask, load
from delayq.lake.queue_folder import Hour, QueueFolder
from delayq.lake.shown_path import shown
from delayq.model.units import Seconds, milliseconds, timestamp_ms
from delayq.operations.queue_context import QueueContext, server_ms
from delayq.protocol.operation import computed
from delayq.queue import Queue

KEEP = dt.timedelta(days=30)
QUEUE_TROUBLES = (LakeMismatch, LoginRefused, KeyOverwritten, QueueMismatch, QueueFull)  # others can be loaded
FILES_AT_ONCE = 64  # between two writes of manifests; from several hours, so that a cluster has enough to do

T = TypeVar("T")
Load = Callable[[Sequence[LoadTask]], Iterable[Loaded]]


class HourLoaded(NamedTuple):
    """A file that a run has loaded, with the results for its messages."""

    queue: str
    hour: str
    file: Loaded


def hydrate(
    queue: Queue,
    lake: str | os.PathLike[str],
    horizon: Seconds,
    *,
    now: dt.datetime | None = None,
    until: dt.datetime | None = None,
    keep: Seconds | None = KEEP,
    load_files: Load | None = None,
) -> list[HourLoaded]:
    """Load the hours of a queue in a lake that begin within the horizon into Redis.

    Files that are loaded already are skipped; files that were added to an hour since are loaded. Runs may overlap, and
    may be interrupted at any point.

    Args:
        horizon: seconds or a timedelta, longer than the time between two runs.
        now: the time to use; None for the server's.
        until: load hours that begin by then, instead of those that begin within the horizon.
        keep: seconds or a timedelta for which files stay after their hour, if all of it was loaded; None for ever.
        load_files: loads files, in any order, and returns the results in the order of the files; None to load them
            here.

    Returns:
        The files that were loaded, by hour.

    Raises:
        LakeMismatch: a file is gone or was changed, an interrupted load cannot be completed, a run was repeated too
            late, or this process was suspended after a snapshot; everything else was loaded.
    """
    folder = QueueFolder(lake, queue.name)
    now_ms = queue.execute(server_ms) if now is None else timestamp_ms(now, "now")
    last_ms = now_ms + milliseconds(horizon, "horizon") if until is None else timestamp_ms(until, "until")
    if now is not None and not queue.execute(_own_time):
        raise InvalidInput(f"now={now!r} is not the time that the scripts use: give the queue the same clock")
    hydration = _Hydration(folder, now_ms, load_files or _here(queue, folder))
    return hydration.run(last_ms, None if keep is None else milliseconds(keep, "keep"))


def hydrate_each(queues: Iterable[str], hydrate: Callable[[str], list[HourLoaded]]) -> list[HourLoaded]:
    """Hydrate queues one by one; return what was loaded.

    Raises:
        LakeMismatch, LoginRefused, KeyOverwritten, QueueMismatch, QueueFull: the first error, with the texts of all
            errors; the other queues were loaded.
    """
    done: list[HourLoaded] = []
    troubles: list[DelayqError] = []
    for queue in queues:
        try:
            done += hydrate(queue)
        except QUEUE_TROUBLES as error:
            troubles.append(error)
    if len(troubles) > 1:
        raise type(troubles[0])("; ".join(dict.fromkeys(map(str, troubles)))) from troubles[0]
    if troubles:
        raise troubles[0]
    return done


@computed
def _own_time(context: QueueContext) -> float | str:
    return context.clock()


def _here(queue: Queue, folder: QueueFolder) -> Load:
    snapshots = ChangeSnapshots(queue, folder)
    return lambda tasks: [load(queue, folder, task, snapshots) for task in tasks]


class _Hydration:
    def __init__(self, folder: QueueFolder, now_ms: int, load_files: Load) -> None:
        self._folder = folder
        self._now_ms = now_ms
        self._load_files = load_files
        self._troubles: dict[str, None] = {}
        self._moved_on: set[str] = set()  # hours in which a file was replaced after they were listed

    def run(self, last_ms: int, keep_ms: int | None) -> list[HourLoaded]:
        last = layout.hour_of(last_ms)  # compare names, which sort as hours do: parsing a year of them takes longer
        hours = [hour for hour in self._folder.hours() if hour.name <= last and hour.files]
        done = self._bring(hours)
        while self._moved_on:
            names, self._moved_on = self._moved_on, set()
            done += self._bring(self._folder.hours(*names))
        if keep_ms is not None:
            over = (hour for hour in hours if layout.start_ms(hour.name) + HOUR_MS + keep_ms <= self._now_ms)
            for hour in over:
                self._tried(self._prune, hour)
        if self._troubles:
            raise LakeMismatch("; ".join(self._troubles))
        return done

    def _bring(self, hours: Sequence[Hour]) -> list[HourLoaded]:
        groups = _groups(self._tried(self._begin, hour) for hour in hours)
        return [each for tasks in groups for each in self._load(tasks)]

    def _tried(self, work: Callable[[Hour], list[T]], hour: Hour) -> list[T]:
        """Work on an hour; note its errors and continue with the others."""
        try:
            return work(hour)
        except LakeMismatch as error:
            self._troubles[str(error)] = None
            return []

    def _begin(self, hour: Hour) -> list[LoadTask]:
        """Note that the new files of an hour are being loaded, and return them."""
        manifest = self._manifest(hour.name)
        known = {each.file for each in manifest.loaded}
        begun = {each.file: each for each in manifest.loading}
        ends = max(self._now_ms, layout.start_ms(hour.name) + HOUR_MS) + RESERVE_MS
        missing = begun.keys() - hour.files.keys() - known
        gone = {name for name in missing if self._folder.was_replaced(hour.name, name)}
        replaced = [*manifest.replaced, *(begun[name] for name in sorted(gone))]
        names = sorted((hour.files.keys() | begun.keys()) - known - gone)  # a lost file stays in, to be reported
        sent = _known_until(replaced)  # perhaps sent in part before it was replaced
        loading = [begun.get(name) or Loading(name, min(ends, sent.get(_source(name), ends))) for name in names]
        until = _known_until([*manifest.loaded, *loading])
        late, again = self._refused(hour.name, loading, until)
        tasks = [each for each in loading if each.file not in late | again]
        noted = [each for each in loading if each.file in begun or each.file not in again]
        ended = _known_until([*manifest.loaded, *noted])
        left = [each for each in replaced if each.reserved_until_ms < ended.get(_source(each.file), math.inf)]
        if tasks or (noted, left) != (manifest.loading, manifest.replaced):
            self._note(replace(manifest, replaced=left), noted)
        return [
            LoadTask(self._folder.queue, hour.name, each.file, each.reserved_until_ms, until[_source(each.file)])
            for each in tasks
        ]

    def _refused(self, hour: str, loading: Sequence[Loading], until: Mapping[str, int]) -> tuple[set[str], set[str]]:
        """Return the files of an hour that cannot be loaded, because Redis has forgotten what it was sent of them.

        If it forgets that only after the start of this run, the loads themselves refuse.

        Returns:
            The files whose own load broke off, or the load of a file that they replace; and those of repeated runs.
        """
        late = [each.file for each in loading if each.reserved_until_ms <= self._now_ms]
        soon = self._now_ms + LEAST_RESERVE_MS
        again = [each.file for each in loading if until[_source(each.file)] < soon <= each.reserved_until_ms]
        for files, text in ((late, _too_late), (again, _done_again)):
            if files:
                self._troubles[text(shown(self._folder.hour_folder(hour)), files)] = None
        return set(late), set(again)

    def _manifest(self, hour: str) -> Manifest:
        return self._folder.manifest(hour) or Manifest(self._folder.queue, hour)

    def _load(self, tasks: Sequence[LoadTask]) -> list[HourLoaded]:
        loaded = zip(tasks, self._load_files(tasks), strict=True)
        done = [HourLoaded(task.queue, task.hour, each) for task, each in loaded]
        for hour, group in groupby(done, key=lambda each: each.hour):
            self._note_loaded(hour, [each.file for each in group])
        for each in done:
            if each.file.trouble:
                self._note_trouble(each.hour, each.file)
        return [each for each in done if not each.file.trouble]

    def _note_trouble(self, hour: str, file: Loaded) -> None:
        """Note that a file cannot be loaded or, if it was replaced, that its hour must be listed again."""
        troubles = {file.trouble: None}
        try:
            if self._folder.was_replaced(hour, file.file):
                self._moved_on.add(hour)
                return
        except LakeMismatch as error:
            troubles[str(error)] = None
        self._troubles |= troubles

    def _note_loaded(self, hour: str, files: Sequence[Loaded]) -> None:
        """Note what was loaded; a file with an error, or with a held message, is to be loaded again."""
        manifest = self._manifest(hour)  # read again: another run may have loaded other files
        known = {each.file for each in manifest.loaded}
        done = [each for each in files if not (each.held or each.trouble or each.file in known)]
        known |= {each.file for each in done}
        loading = [each for each in manifest.loading if each.file not in known]
        self._note(replace(manifest, loaded=[*manifest.loaded, *done]), loading)

    def _note(self, manifest: Manifest, loading: list[Loading]) -> None:
        self._folder.put_manifest(replace(manifest, state="loading" if loading else "loaded", loading=loading))

    def _prune(self, hour: Hour) -> list[LoadTask]:
        """Remove the files of an hour if all were loaded; its changes stay, for messages moved to other hours."""
        manifest = self._manifest(hour.name)
        if hour.files.keys() <= {each.file for each in manifest.loaded}:
            pruned = [replace(each, pruned=True) for each in manifest.loaded]
            self._folder.put_manifest(replace(manifest, loaded=pruned))  # first: then a missing file is not a loss
            for file in hour.files.values():
                self._folder.remove(hour.name, file)
        return []


def _groups(of_hours: Iterable[list[LoadTask]]) -> Iterator[list[LoadTask]]:
    group: list[LoadTask] = []
    for tasks in of_hours:
        group += tasks
        if len(group) >= FILES_AT_ONCE:
            yield group
            group = []
    if group:
        yield group


def _source(name: str) -> str:
    file = layout.File.read(name)
    return name if file is None else file.source


def _known_until(loading: Iterable[Loading]) -> dict[str, int]:
    """Return, by source, until when Redis knows everything that it was sent of a run, or of a single file."""
    known: dict[str, int] = {}
    for each in loading:
        source = _source(each.file)
        known[source] = min(each.reserved_until_ms, known.get(source, each.reserved_until_ms))
    return known


def _too_late(where: str, files: Sequence[str]) -> str:
    return (
        f"a load of {where} broke off so long ago that Redis has forgotten which messages it has sent: "
        f"{', '.join(files)}. To send them all, some perhaps twice, remove these files from `loading` in its "
        f"{layout.MANIFEST}@….json. To send none, also delete the files"
    )


def _done_again(where: str, files: Sequence[str]) -> str:
    return (
        f"{where} has new files of runs whose other files were loaded so long ago that Redis has forgotten their "
        f"messages: {', '.join(files)}. To send all messages of the new files, some perhaps twice, replace the run at "
        "the start of their names by another one. To send none, delete these files"
    )
