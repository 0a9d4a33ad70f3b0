"""`python -m tests.harness.simulation SEED [COUNT]`: simulate seeds; show the trace of a single one."""

from __future__ import annotations

import sys
import time

import click

from tests.harness.servers import RedisServer, server_binaries
from tests.harness.simulation.server import connect
from tests.harness.simulation.simulation import Failed, play


@click.command(help=__doc__)
@click.argument("seed", type=click.IntRange(min=0))
@click.argument("count", type=click.IntRange(min=1), default=1)
@click.option("--url", metavar="URL", help="A server, all of whose data are deleted. Default: a new one.")
def main(seed: int, count: int, url: str | None) -> None:
    """Simulate seeds, one after the other; exit 1 if one fails."""
    server = None if url else RedisServer(list(server_binaries().values())[-1])
    failed, began = 0, time.monotonic()
    try:
        connection = connect(server.url if server else str(url))
        for number in range(seed, seed + count):
            try:
                played = play(number, connection)
            except Failed as error:
                click.echo("\n".join([str(error).splitlines()[0], *error.trace]) if count == 1 else str(error))
                failed += 1
                continue
            if count == 1:
                click.echo(played.trace)
    finally:
        if server:
            server.close()
    click.echo(f"{count} seeds, {failed} failed, {time.monotonic() - began:.1f} s", err=True)
    sys.exit(1 if failed else 0)


main()
