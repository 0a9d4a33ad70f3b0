"""Archive a ledger while its archiver is killed again and again: ``python -m tests.spark.killing_archive --kills 8``.

Another reader looks at the archive all the while, and at the end it has each entry once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Self

import pyarrow.dataset as ds
import redis

from delayq import Queue
from delayq.keys import QueueKeys
from tests.ledgers import entry
from tests.servers import RedisServer, server_binaries

AT = 1_763_726_400_000
SHARDS = 2
LATEST_SECONDS = 4.0  # after the first batch of a run has begun
START_SECONDS = 60.0
DONE_SECONDS = 600.0


class Reader:
    """Reads the archive without Spark, over and over, and counts what it sees twice."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.looks = self.doubled = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def entries(self) -> list[tuple[int, str]]:
        """Return what is there, as a number of its shard and an entry each."""
        table = ds.dataset(str(self._path), format="parquet").to_table(["shard", "entry"])
        return list(zip(table["shard"].to_pylist(), table["entry"].to_pylist(), strict=True))

    def _run(self) -> None:
        while not self._ended.wait(0.2):
            with contextlib.suppress(FileNotFoundError):  # nothing yet; or a batch is being done again
                found = self.entries()
                self.looks += 1
                self.doubled += len(found) - len(set(found))


def fill(client: redis.Redis, shard: int, count: int) -> None:
    """Append entries of two days to the ledger of a shard."""
    key = QueueKeys("delayq", "jobs", shard).events
    for start in range(0, count, 1000):
        pipeline = client.pipeline(transaction=False)
        for i in range(start, start + 1000):
            pipeline.xadd(key, entry(f"m{i}", "sent", AT + i * 1000, due=AT))
        pipeline.execute()


def archiver(url: str, path: Path, batch: int, log: Any) -> subprocess.Popen[bytes]:
    """Start the command, in a process group of its own."""
    command = [sys.executable, "-m", "delayq.cli", "pipeline", "archive", "jobs", "--to", str(path), "--url", url]
    return subprocess.Popen([*command, "--batch", str(batch)], start_new_session=True, stdout=log, stderr=log)


def batches(path: Path) -> int:
    """Return how many batches were begun."""
    return sum(each.name.isdecimal() for each in (path / "_work" / "queue=jobs" / "checkpoint" / "offsets").glob("*"))


def kill_at_random(process: subprocess.Popen[bytes], path: Path, with_java: bool) -> float:
    """Kill the driver at work, with the Java that it has started or without it; return after how many seconds of it."""
    before, deadline = batches(path), time.monotonic() + START_SECONDS
    while batches(path) == before and time.monotonic() < deadline:
        time.sleep(0.02)
    seconds = random.uniform(0, LATEST_SECONDS)
    time.sleep(seconds)
    if with_java:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()  # Java finds out, and ends by itself, some time later
    process.wait()
    return seconds


def main() -> int:
    """Play it; return 0 when each entry is there once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--entries", type=int, default=400_000, help="a multiple of 2,000")
    parser.add_argument("--batch", type=int, default=8000)
    wanted = parser.parse_args()
    server = RedisServer(list(server_binaries().values())[-1])
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(server), server.client() as client:
        path, log = Path(folder) / "archive", (Path(folder) / "log").open("wb")
        with Queue("jobs", url=server.url, shards=SHARDS) as queue:
            queue.configure(events=1_000_000)
        for shard in range(SHARDS):
            fill(client, shard, wanted.entries // SHARDS)
        with Reader(path / "events") as reader:
            for number in range(wanted.kills):
                seconds = kill_at_random(archiver(server.url, path, wanted.batch, log), path, number % 2 == 0)
                there = len(reader.entries()) if (path / "events").exists() else 0
                print(
                    f"killed {seconds:.1f} s after its first batch had begun: {there:,} entries are there", flush=True
                )
            code = archiver(server.url, path, wanted.batch, log).wait(DONE_SECONDS)
            found = reader.entries()
        whole = len(found) == len(set(found)) == wanted.entries
        print(
            f"exit code {code}; {len(found):,} entries, {len(set(found)):,} of them different, of {wanted.entries:,}; "
            f"{reader.looks} looks at the archive meanwhile have seen {reader.doubled} entries twice"
        )
        log.close()
        if code:
            print((Path(folder) / "log").read_text()[-3000:])
    return 0 if whole and code == 0 and not reader.doubled else 1


if __name__ == "__main__":
    sys.exit(main())
