"""``relay --metrics-port``: what waits in the outbox, and what the relay has done, for Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from delayq.metrics import Exposition
from delayq.outbox import open_database
from delayq.outbox.lag import Lag, lag

from .lag import HELP, samples

if TYPE_CHECKING:
    from delayq.outbox import Relay

UP = "Whether the database of the outbox answered."
SECONDS = 5
"""How long a scrape waits for the database, and for scrapes before it; Prometheus itself waits ten."""

SENT = "Rows that this relay has sent."
REFUSED = "Rows that Redis has refused permanently."


class RelayMetrics(Collector):
    """Collects metrics of an outbox. Each scrape has a connection of its own, one at a time.

    Args:
        url: of the database.
        relay: whose counts are given, too.
    """

    def __init__(self, url: str, relay: Relay) -> None:
        self._url = url
        self._relay = relay
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """Read the outbox, and yield what was read; if its database does not answer, only that."""
        found = self._found()
        yield GaugeMetricFamily("delayq_outbox_up", UP, found is not None)
        for name, values in samples(found).items() if found else ():
            family = GaugeMetricFamily(name, HELP[name], labels=["state"] if "" not in values else ())
            for state, value in values.items():
                family.add_metric([state] if state else [], value)
            yield family
        yield CounterMetricFamily("delayq_outbox_relayed", SENT, self._relay.moved)
        yield CounterMetricFamily("delayq_outbox_refused", REFUSED, self._relay.refused)

    def _found(self) -> Lag | None:
        """Return what waits; None if the database does not say it in time."""
        if not self._lock.acquire(timeout=SECONDS):
            return None
        try:
            with closing(open_database(self._url)) as database:
                try:
                    database.limit(SECONDS)
                    return lag(database)
                except database.errors:
                    return None
        finally:
            self._lock.release()

    def exposition(self, accept: str = "", beside: Collector | None = None) -> Exposition:
        """Return the response to a scrape, as `delayq.metrics.Metrics` does."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        if beside is not None:
            registry.register(beside)
        encode, content_type = choose_encoder(accept)
        return Exposition(encode(registry), content_type)

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering does not read the database."""
        return []

    @staticmethod
    def silent(seconds: float) -> list[str]:
        """Return nothing: the relay itself knows whether Redis and the database answer."""
        del seconds
        return []
