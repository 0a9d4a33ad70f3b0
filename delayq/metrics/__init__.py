"""Metrics of queues and topics for Prometheus, with prometheus_client: ``pip install 'delayq[metrics]'``."""

from __future__ import annotations

try:
    import prometheus_client as _prometheus_client  # noqa: F401  # so that a missing package is reported in words
except ImportError as error:
    raise ImportError("delayq.metrics needs prometheus_client: pip install 'delayq[metrics]'") from error

from delayq.metrics.collector import Exposition, Metrics
from delayq.metrics.discovery import DiscoveredQueues
from delayq.metrics.http_server import MetricsServer, Response

__all__ = ["DiscoveredQueues", "Exposition", "Metrics", "MetricsServer", "Response"]
