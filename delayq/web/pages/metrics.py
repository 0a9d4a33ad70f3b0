"""Metrics: what Prometheus is told of all queues of all servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delayq.errors import DelayqError
from delayq.web.health_sweep import in_turns
from delayq.web.poller import ServerPoller
from delayq.web.snapshot import QueueSnapshot, count

MOST_QUEUES = 1000
"""Of a server, those whose names come first, as `delayq exporter` has it."""


SECONDS = 5.0
"""That a scrape waits for servers, as `delayq exporter` does."""


async def metrics(request: Request) -> Response:
    """Answer a scrape; with the extra `metrics` only."""
    try:
        from prometheus_client import CollectorRegistry  # noqa: PLC0415  # an extra
        from prometheus_client.exposition import choose_encoder  # noqa: PLC0415
    except ImportError as error:
        raise HTTPException(501, "Metrics need prometheus_client: pip install 'delayq[metrics]'.") from error
    watches: Mapping[str, ServerPoller] = request.app.state.watches
    told = await asyncio.gather(*map(_told, watches.values()))
    registry = CollectorRegistry()
    registry.register(ServersCollector(dict(zip(watches, told, strict=True))))
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    text = await asyncio.to_thread(encode, registry)  # a thousand queues take a second
    return Response(text, headers={"content-type": content_type})


class ServerMetrics(NamedTuple):
    """What a server tells: of its first queues, how many are left out, and why nothing could be read, or nothing."""

    queues: Sequence[QueueSnapshot] = ()
    left_out: int = 0
    error: str = ""


async def _told(watch: ServerPoller) -> ServerMetrics:
    """Ask a server; one that does not answer keeps no other from the scrape."""
    try:
        async with asyncio.timeout(SECONDS):
            names = await watch.server.queue_names()
            seen = await in_turns(names[:MOST_QUEUES], lambda name: watch.safely(name, count))
            return ServerMetrics(seen, max(0, len(names) - MOST_QUEUES))
    except TimeoutError:
        return ServerMetrics(error=f"no answer within {SECONDS:g} s")
    except DelayqError as error:
        return ServerMetrics(error=str(error))


class ServersCollector:
    """What servers have told, for a registry. Of several, each sample has the label `server`."""

    def __init__(self, told: Mapping[str, ServerMetrics]) -> None:
        self._told = dict(zip(told if len(told) > 1 else [""], told.values(), strict=True))

    def describe(self) -> list[Any]:
        """Return nothing, as `delayq.metrics.Metrics`."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the families."""
        from delayq.metrics import families  # noqa: PLC0415  # an extra
        from delayq.metrics.scrape import QueueReading  # noqa: PLC0415

        names = ["server", "queue"] if len(self._told) > 1 else ["queue"]
        rows = [
            ({"server": server, "queue": seen.name}, seen)
            for server, told in self._told.items()
            for seen in told.queues
        ]
        yield families.up(names, [(labels, not seen.error) for labels, seen in rows], "queue")
        readings = [(labels, QueueReading(seen.stats, seen.alive)) for labels, seen in rows if not seen.error]
        yield from families.of_queues(readings, names)
        ups = [({"server": server}, not told.error) for server, told in self._told.items()]
        yield families.up(["server"], ups, "server")
        left = {server: told.left_out for server, told in self._told.items()}
        yield families.left_out(left)


ROUTES = [Route("/metrics", metrics, name="metrics")]
