"""Metrics of queues and topics for Prometheus, with prometheus_client: the extra ``metrics``."""

from __future__ import annotations

from delayq.model.extras import install

try:
    import prometheus_client as _prometheus_client  # noqa: F401  # so that a missing package is reported in words
except ImportError as error:
    raise ImportError(f"delayq.metrics needs prometheus_client: {install('metrics')}") from error

from delayq.metrics.collector import Exposition, Metrics
from delayq.metrics.discovery import DiscoveredQueues
from delayq.metrics.http_server import MetricsServer, Response

__all__ = ["DiscoveredQueues", "Exposition", "Metrics", "MetricsServer", "Response"]
