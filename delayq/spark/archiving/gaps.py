"""Entries that a ledger dropped before they were archived or counted: where, and how many, if known.

    PATH/lost/queue=…/batch-*.parquet   one row per shard from which this batch lacks entries, as `Loss`

Spark records how far each batch goes, and Redis 7.0 and newer how many entries were appended up to there. If a batch
has fewer, the difference was lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds

from delayq.errors import DataLost
from delayq.lake import object_store
from delayq.lake.object_store import parquet, place, write_table
from delayq.lake.shown_path import shown
from delayq.model.positions import number_of
from delayq.model.record import Extent
from delayq.spark.archiving.append_table import AppendTable, StoredBatch
from delayq.spark.archiving.streaming import OnBatch
from delayq.spark.reading import offsets as at
from delayq.spark.reading.batch_reader import EntryStreams
from delayq.spark.reading.offsets import BEGINNING, Offset
from delayq.spark.reading.streams import REMEDY
from delayq.spark.redis_options import RedisOptions

TABLE = "lost"
SCHEMA = pa.schema(
    [
        ("shard", pa.int32()),
        ("after", pa.string()),
        ("first", pa.string()),
        ("until", pa.string()),
        ("missing", pa.int64()),
    ]
)


class Loss(NamedTuple):
    """Entries of a shard that an archive or a report lacks: a number of those after `after`, up to and with `until`.

    Attributes:
        after: the last entry of the batch before.
        first: the first existing entry after it; None if there is none.
        until: the end of the batch.
        missing: how many are missing; None if unknown, as the server does not count or the ledger was created again.
    """

    queue: str
    shard: int
    after: str
    first: str | None
    until: str
    missing: int | None

    def __str__(self) -> str:
        count = "an unknown number" if self.missing is None else f"{self.missing:,}"
        there = "none of them exists" if self.first is None else f"the first existing one is {self.first}"
        return f"{count} of the entries after {self.after} up to {self.until}, in shard {self.shard}; {there}"


class ShardEntries(NamedTuple):
    """The entries of a shard in a batch.

    Attributes:
        rows: how many entries there are.
        first: the earliest of them.
    """

    rows: int
    first: str


FindEntries: TypeAlias = Callable[[int], Mapping[int, ShardEntries]]
"""Returns the entries of a batch, by its number, for each shard."""
OnLoss: TypeAlias = Callable[[Loss], None]


def noting_losses(
    server: RedisOptions, table: AppendTable, look: FindEntries, tell: OnBatch, tell_loss: OnLoss
) -> OnBatch:
    """Return a function that records what each batch lacks, before the batch counts as done."""

    def note(stored: StoredBatch) -> None:
        for loss in note_losses(server, table, stored.number, look(stored.number)):
            tell_loss(loss)
        tell(stored)

    return note


@contextmanager
def with_remedy(path: str, done: str) -> Iterator[None]:
    """Replace the remedy in DataLost by that of a job.

    Args:
        done: what the job does with entries, such as "archived".
    """
    try:
        yield
    except DataLost as error:
        raise DataLost(
            f"{str(error).removesuffix(REMEDY)}. The remaining entries can be {done} with --skip-lost "
            f"(skip_lost=True), which records the missing ones in {shown(path)}/lost, or in another folder. If entries "
            "were trimmed, run it more often, or let the ledger keep more with `delayq configure QUEUE --events N`"
        ) from error


def note_losses(server: RedisOptions, table: AppendTable, batch: int, there: Mapping[int, ShardEntries]) -> list[Loss]:
    """Record what a batch lacks, replacing an earlier record of it; return it."""
    losses = list(_losses(server, table, batch, there))
    if losses:
        rows = [loss._asdict() for loss in losses]
        path = f"{table.path}/{TABLE}/{table.partition}/batch-{batch:010d}.parquet"
        write_table(path, pa.Table.from_pylist(rows, SCHEMA))
    return losses


def _losses(server: RedisOptions, table: AppendTable, batch: int, there: Mapping[int, ShardEntries]) -> Iterator[Loss]:
    noted = _noted(table, batch)
    source = EntryStreams(server.options(events=table.queue), SCHEMA).source
    ends = at.load(source, noted)
    starts = at.load(source, _noted(table, batch - 1)) if batch else at.begun(source, noted)
    if starts is None:  # written by a version that did not record where it began
        return
    extents = _extents(server, table.queue)
    for shard, end in sorted(at.ahead(ends, starts).items()):
        start, found = starts.get(shard, BEGINNING), there.get(shard)
        same = at.since(start, end) == start
        missing = _missing(start, end, found.rows if found else 0, extents[shard]) if same else None
        if missing != 0:
            yield Loss(table.queue, shard, start.id, found.first if found else None, end.id, missing)


def _missing(start: Offset, end: Offset, found: int, extent: Extent) -> int | None:
    if start.entries is not None and end.entries is not None:
        missing = end.entries - start.entries - found
        return missing if missing >= 0 else None  # the count went down, so it is another stream
    return 0 if at.lost(start, extent) is None else None


def _noted(table: AppendTable, batch: int) -> dict[str, Any]:
    """Return Spark's record of a batch, whose last line says how far it goes."""
    noted: dict[str, Any] = msgspec.json.decode(
        object_store.read_bytes(f"{table.checkpoint}/offsets/{batch}").splitlines()[-1]
    )
    return noted


def in_table(table: AppendTable, batch: int) -> dict[int, ShardEntries]:
    """Return the entries of a batch in a table, by shard."""
    system, inner = place(table.folder)
    files = [f"{inner}/{name}" for name in table.of_batch(batch)]
    with parquet(table.folder):
        rows = ds.dataset(files, table.schema, "parquet", system).to_table(["shard", "entry"])
    entries: dict[int, list[str]] = defaultdict(list)
    for shard, entry in zip(rows["shard"].to_pylist(), rows["entry"].to_pylist(), strict=True):
        entries[shard].append(entry)
    return {shard: ShardEntries(len(each), min(each, key=number_of)) for shard, each in entries.items()}


def _extents(server: RedisOptions, queue: str) -> dict[int, Extent]:
    streams = EntryStreams(server.options(events=queue), SCHEMA)
    with streams.topic() as topic:
        return dict(enumerate(streams.extents(topic)))
