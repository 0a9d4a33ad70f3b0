"""exporter: metrics of all queues of one or more servers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import click

from delayq import signals
from delayq.errors import DelayqError
from delayq.model.server_url import HIDDEN, redact
from delayq.model.validation import check_queue_name

from .connection import ServerOptions
from .consume.monitor import metrics_library, metrics_server, routes
from .options import NamedServer, command, prefix_option, servers_option
from .output import note

if TYPE_CHECKING:
    from delayq.metrics import DiscoveredQueues, Metrics

PORT = 8701
SECONDS = 60.0  # how long --once waits for the queues, once they are known


@command(
    """
    delayq send emails hello --delay 1h
    delayq exporter --once
    """,
    "Serve metrics of all queues and topics, for Prometheus.",
)
@click.option("--port", default=PORT, type=click.IntRange(0, 65_535), help="The port; 0 picks a free one.")
@click.option(
    "--host",
    default="127.0.0.1",
    help="The address to listen on; 0.0.0.0 means all (needed in a container).",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A host name that scrapers may use; repeatable. Default: the loopback names on a loopback address, else any.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    help="Report this topic as down if it does not exist; repeatable.",
)
@click.option(
    "--max-queues",
    type=click.IntRange(1, 100_000),
    metavar="N",
    default=1000,
    help="Read at most this many queues, and this many topics, of each server: the first by name.",
)
@click.option("--once", is_flag=True, help="Print what a scrape would return, and exit.")
@servers_option
@prefix_option
def exporter(
    places: Sequence[NamedServer], prefix: str, port: int, host: str, hosts: Sequence[str], topics: Sequence[str],
    max_queues: int, once: bool,
) -> int:  # fmt: skip
    """Serve /metrics of all queues and topics of each --url until SIGTERM or Ctrl-C. New ones appear within a minute.

    One exporter per server is enough. With several servers, each sample has a label server, with the server's name or
    else its address. delayq_server_up is 0 if a server does not answer. /healthz succeeds if the exporter runs, /readyz
    if all servers answer.

    With --once, print the metrics and exit, for example for the textfile collector of node_exporter. Exit code 1 if a
    queue could not be read.
    """
    if topics and len(places) > 1:
        raise click.UsageError("--topic works with only one --url: run one exporter per server")
    named = [check_queue_name(each, "topic name") for each in topics]
    library = metrics_library("delayq exporter")
    with ExitStack() as stack:
        urls = [each.url for each in places] or (None,)
        servers = [stack.enter_context(ServerOptions(url, prefix, makes_store=False)) for url in urls]
        labels = [each.name or address(each.url) for each in places] if len(places) > 1 else [""]
        found = [
            stack.enter_context(library.DiscoveredQueues(each, label, max_queues, named, whole=once))
            for each, label in zip(servers, labels, strict=True)
        ]
        if once:
            _note_away(servers)
            return _print(library.Metrics(servers=found, seconds=SECONDS), found)
        metrics = library.Metrics(servers=found)
        with signals.stopping() as stop, metrics_server(library, host, port, routes(metrics, lambda _: ""), hosts):
            stop.wait()
    return 0


def address(url: str) -> str:
    """Return the label of a server: its address, without secrets and settings."""
    scheme, _, rest = redact(url).partition("://")
    place = rest.partition("?")[0]
    if place == HIDDEN:
        return scheme
    return place.rpartition("@")[2] if scheme.startswith("redis") else place


def _note_away(servers: Sequence[ServerOptions]) -> None:
    """Say on stderr why a server cannot be read."""
    for server in servers:
        try:
            server.client()
        except DelayqError as error:
            note(f"delayq: {error}")


def _print(metrics: Metrics, servers: Sequence[DiscoveredQueues]) -> int:
    """Print what a scrape would return after the first search; return an exit code."""
    for server in servers:
        with suppress(DelayqError):  # the page says that it is down
            server()
    page, down = metrics.judged()
    click.echo(page.body.decode(), nl=False)
    return int(bool(down))
