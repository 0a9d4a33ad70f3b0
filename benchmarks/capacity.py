"""``python -m benchmarks.capacity``: the size of messages in Redis and in a lake, measured and computed."""

from __future__ import annotations

import json
import random
import string
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
from delayq.cli.output import print_table

from delayq.lake.layout import HOUR_MS, DeferredRow
from delayq.lake.queue_folder import QueueFolder
from delayq.model.envelope import encode_envelope
from delayq.model.footprint import LAYOUTS, Shape, in_lake, reserved, waiting
from delayq.model.message_ids import new_ids
from tests.harness.footprints import used_by
from tests.harness.servers import RedisServer, server_binaries

PAYLOADS = (20, 100, 300, 1000, 5000)  # bytes
VOCABULARY = 3000  # words

HOUR = "2030-01-01T09"

COLUMNS = ["what", "#payload", "#measured", "#computed", "#difference"]


def redis_rows(version: str, messages: int) -> Iterator[Sequence[str]]:
    """Yield the rows of a version's table."""
    layout = LAYOUTS[version]
    server = RedisServer(server_binaries()[version])
    try:
        for payload in PAYLOADS:
            shape = Shape(payload)
            used = used_by(server, messages, shape)
            yield _row(
                f"Redis {version}, a message", payload, used / messages, waiting(messages, shape, layout) / messages
            )
        both = used_by(server, messages, shape, unique_for=3600)
        computed = reserved(messages, shape, layout)
        yield _row(f"Redis {version}, a reserved id", payload, (both - used) / messages, computed / messages)
    finally:
        server.close()


def lake_rows(messages: int, seed: int) -> Iterator[Sequence[str]]:
    """Yield the rows of the lake: an hour of messages, written as the lake writes them."""
    lot = random.Random(seed)
    words = ["".join(lot.choices(string.ascii_lowercase, k=lot.randint(2, 9))) for _ in range(VOCABULARY)]
    kinds: dict[str, Callable[[int], bytes]] = {
        "words": lambda size: _text(lot, words, size),
        "random bytes": lot.randbytes,
    }
    with tempfile.TemporaryDirectory() as path:
        folder = QueueFolder(path, "reminders")
        for kind, make in kinds.items():
            for payload in PAYLOADS:
                file = folder.write(HOUR, "bench", _hour(messages, lot, make, payload))
                size = Path(folder.hour_folder(HOUR), file.name).stat().st_size
                computed = in_lake(messages, Shape(payload), is_text=kind == "words")
                yield _row(f"lake, {kind}", payload, size / messages, computed / messages)


def _hour(count: int, lot: random.Random, make: Callable[[int], bytes], payload: int) -> list[DeferredRow]:
    """Return an hour of messages."""
    return [
        DeferredRow(id, lot.randrange(HOUR_MS), 0, encode_envelope(make(payload), max_retries=3))
        for id in new_ids(count)
    ]


def _text(lot: random.Random, words: Sequence[str], size: int) -> bytes:
    """Return a JSON document of the given size: a user's number and random words."""
    text = " ".join(lot.choices(words, k=size // 3))
    return json.dumps({"user": lot.randrange(5_000_000), "text": text}).encode()[:size]


def _row(what: str, payload: int, measured: float, computed: float) -> Sequence[str]:
    return [what, f"{payload:,}", f"{measured:,.1f}", f"{computed:,.1f}", f"{computed / measured - 1:+.1%}"]


@click.command()
@click.option(
    "--messages", default=100_000, show_default=True, type=click.IntRange(10_000), help="Messages per measurement."
)
@click.option("--seed", default=7, show_default=True, help="Seed of the payloads of words.")
def main(messages: int, seed: int) -> None:
    """Measure the bytes per message in Redis, for each installed version, and in a lake."""
    versions = [version for version in LAYOUTS if version in server_binaries()]
    redis = [row for version in versions for row in redis_rows(version, messages)]
    print_table(COLUMNS, [*redis, *lake_rows(messages, seed)])


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.capacity")
