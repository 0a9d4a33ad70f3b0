"""Metrics of all queues and topics of all servers, for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from delayq.errors import DelayqError
from delayq.model.extras import install
from delayq.model.health import stuck
from delayq.model.record import GroupReading
from delayq.model.validation import KINDS
from delayq.web.health_sweep import in_turns
from delayq.web.poller import ServerPoller
from delayq.web.routes import VIEW, Page
from delayq.web.servers import DashboardServer
from delayq.web.snapshot import QueueSnapshot, count

MOST = 1000
"""The number of queues, and of topics, that are read from a server, the first by name; as in `delayq exporter`."""


SECONDS = 5.0
"""How long a scrape waits for servers, as in `delayq exporter`."""


async def metrics(request: Request) -> Response:
    """Answer a scrape; needs the extra `metrics`."""
    try:
        from prometheus_client import CollectorRegistry  # noqa: PLC0415  # an extra
        from prometheus_client.exposition import choose_encoder  # noqa: PLC0415
    except ImportError as error:
        raise HTTPException(501, f"Metrics need prometheus_client: {install('metrics')}") from error
    watches: Mapping[str, ServerPoller] = request.app.state.watches
    of_servers = await asyncio.gather(*map(_metrics_of, watches.values()))
    registry = CollectorRegistry()
    registry.register(ServersCollector(dict(zip(watches, of_servers, strict=True))))
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    text = await asyncio.to_thread(encode, registry)  # a thousand queues take a second
    return Response(text, headers={"content-type": content_type})


class ServerMetrics(NamedTuple):
    """What was read from a server.

    Attributes:
        topics: the groups of each topic, by name; None for a topic that could not be read.
        left_out: how many queues and topics were not read.
        error: why nothing could be read, or empty.
    """

    queues: Sequence[QueueSnapshot] = ()
    topics: Mapping[str, Sequence[GroupReading] | None] = {}
    left_out: tuple[int, int] = (0, 0)
    error: str = ""


async def _metrics_of(watch: ServerPoller) -> ServerMetrics:
    """Read a server; a server that does not answer does not hold up the others."""
    try:
        async with asyncio.timeout(SECONDS):
            queues, topics = [await watch.server.all_names(kind) for kind in KINDS]
            seen = await in_turns(queues[:MOST], lambda name: watch.safely(name, count))
            groups = await in_turns(topics[:MOST], lambda name: _groups(watch.server, name))
            left_out = max(0, len(queues) - MOST), max(0, len(topics) - MOST)
            return ServerMetrics(seen, dict(zip(topics, groups, strict=False)), left_out)
    except TimeoutError:
        return ServerMetrics(error=f"no answer within {SECONDS:g} s")
    except DelayqError as error:
        return ServerMetrics(error=str(error))


async def _groups(server: DashboardServer, name: str) -> Sequence[GroupReading] | None:
    try:
        return await (await server.topic(name)).group_readings()
    except DelayqError:
        return None


class ServersCollector:
    """The metrics of all servers, for a registry. With several servers, each sample has the label `server`."""

    def __init__(self, of_servers: Mapping[str, ServerMetrics]) -> None:
        self._servers = dict(zip(of_servers if len(of_servers) > 1 else [""], of_servers.values(), strict=True))

    def describe(self) -> list[Any]:
        """Return nothing, as `delayq.metrics.Metrics` does."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the families."""
        from delayq.metrics import families  # noqa: PLC0415  # an extra
        from delayq.metrics.scrape import QueueReading  # noqa: PLC0415

        labels_of = ["server"] if len(self._servers) > 1 else []
        rows = [
            ({"server": server, "queue": seen.name}, seen)
            for server, found in self._servers.items()
            for seen in found.queues
        ]
        yield families.up([*labels_of, "queue"], [(labels, not seen.error) for labels, seen in rows], "queue")
        readings = [
            (labels, QueueReading(seen.stats, seen.alive, seen.usage, stuck(seen.stats, seen.consumers).total))
            for labels, seen in rows
            if not seen.error
        ]
        yield from families.of_queues(readings, [*labels_of, "queue"])
        yield from self._topics([*labels_of, "topic"])
        ups = [({"server": server}, not found.error) for server, found in self._servers.items()]
        yield families.up(["server"], ups, "server")
        for place, kind in enumerate(("queue", "topic")):
            yield families.left_out(kind, {server: found.left_out[place] for server, found in self._servers.items()})

    def _topics(self, names: Sequence[str]) -> Iterator[Any]:
        from delayq.metrics import families  # noqa: PLC0415  # an extra
        from delayq.metrics.scrape import TopicReading  # noqa: PLC0415

        rows = [
            ({"server": server, "topic": name}, groups)
            for server, found in self._servers.items()
            for name, groups in found.topics.items()
        ]
        if rows:
            yield families.up(names, [(labels, groups is not None) for labels, groups in rows], "topic")
            readings = [(labels, TopicReading(groups)) for labels, groups in rows if groups is not None]
            yield from families.of_topics(readings, names)


ROUTES = [Page(VIEW, "/metrics", metrics, name="metrics")]
