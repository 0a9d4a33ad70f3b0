"""Checks an archive that a job reads: a mistyped path is bad input, not an empty archive."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from delayq.errors import InvalidInput
from delayq.lake import object_store
from delayq.lake.shown_path import shown
from delayq.spark.archiving import folders
from delayq.spark.archiving.append_table import PARTITION, WORK, queues_of
from delayq.spark.jobs.archive import TABLE


def check_archive(path: str, queues: Sequence[str] = ()) -> None:
    """Refuse a folder that is not an archive, and a queue that is not in it."""
    if not (object_store.exists(f"{path}/{TABLE}") or object_store.exists(f"{path}/{WORK}")):
        raise InvalidInput(
            f"the archive {shown(path)!r} does not exist: give the --to folder of delayq pipeline archive"
        )
    parts = {unquote(name.removeprefix(PARTITION)) for name in folders.names(f"{path}/{TABLE}")}
    known = sorted(parts | set(queues_of(path)))
    if unknown := [name for name in queues if name not in known]:
        raise InvalidInput(
            f"the archive {shown(path)!r} has no queue {' or '.join(unknown)}; it has {', '.join(known) or 'none'}: "
            "add a queue with delayq pipeline archive"
        )
