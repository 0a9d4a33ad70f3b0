"""The archiver of a ledger is killed repeatedly: its archive has each entry once at all times."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.dataset as ds
import redis

from delayq.protocol.queue_keys import QueueKeys
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.drivers import Driver
from tests.harness.chaos.world import Broken, World
from tests.harness.ledgers import entry

AT = 1_763_726_400_000
DAYS_MS = 2 * 86_400_000
SHARDS = 2
LOOK_SECONDS = 0.2
COLUMNS = pa.schema([("shard", pa.int32()), ("entry", pa.string())])


def run(world: World) -> Verdict:
    """Kill the driver, with and without its Java in turn, while another reader reads the archive."""
    server = world.server(appendonly=False)
    count, batch, kills = world.pick((20_000, 2_000, 1), (300_000, 5_000, 6))
    queue = world.queue(server.url, "jobs", shards=SHARDS)
    queue.configure(events=count)
    with server.client() as client:
        known = {(shard, each) for shard in range(SHARDS) for each in fill(client, shard, count // SHARDS)}
    path = world.folder / "archive"
    words = ("-m", "delayq.cli", "pipeline", "archive", "jobs", "--to", str(path), "--batch", str(batch))
    checkpoint = path / "_work" / "queue=jobs" / "checkpoint"
    with (
        Driver(world.folder, [checkpoint], *words, "--url", server.url) as driver,
        Reader(path / "events") as reader,
    ):
        for number in range(kills):
            driver.reach_a_moment(world.dice)
            (driver.kill if number % 2 else driver.kill_alone)()
        driver.finish()
        found = reader.entries()
    world.figures |= {"kills": str(kills), "looks": str(reader.looks)}
    if reader.wrong or not reader.looks:
        raise Broken(f"of {reader.looks} looks at the archive: {', '.join(reader.wrong)}")
    once = set(found)
    return Verdict(
        count, len(found), len(found) - len(once), 0, 0.0,
        lost=[f"{each}" for each in known - once], unexpected=[f"{each}" for each in once - known],
        unexplained=["twice"] * (len(found) - len(once)),
    )  # fmt: skip


def fill(client: redis.Redis, shard: int, count: int) -> list[str]:
    """Append entries of two days to the ledger of a shard; return their ids."""
    key = QueueKeys("delayq", "jobs", shard).events
    added: list[str] = []
    for start in range(0, count, 1000):
        pipeline = client.pipeline(transaction=False)
        for i in range(start, start + 1000):
            pipeline.xadd(key, entry(f"m{i}", "sent", AT + i * DAYS_MS // count, due=AT))
        added += [each.decode() for each in pipeline.execute()]
    return added


class Reader:
    """Reads the archive without Spark, over and over.

    Attributes:
        looks: how often it has read the archive.
        wrong: what was wrong: entries that are duplicated or lost, or missing files.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.looks = 0
        self.wrong: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def entries(self) -> list[tuple[int, str]]:
        """Return the entries, each with the number of its shard."""
        table = ds.dataset(str(self._path), COLUMNS, format="parquet").to_table()
        return list(zip(table["shard"].to_pylist(), table["entry"].to_pylist(), strict=True))

    def _run(self) -> None:
        known: set[tuple[int, str]] = set()
        while not self._ended.wait(LOOK_SECONDS):
            if not self._path.exists():  # nothing yet
                continue
            try:
                found = self.entries()
            except (OSError, pa.ArrowException) as error:  # a listed file must stay
                self.wrong.append(f"{error!r}")
                continue
            self.looks += 1
            if twice := len(found) - len(set(found)):
                self.wrong.append(f"{twice} entries twice")
            if gone := known.difference(found):
                self.wrong.append(f"{len(gone)} entries gone")
            known.update(found)
