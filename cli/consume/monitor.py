"""``consume --metrics-port``: metrics and health of the consumer and its queues over HTTP."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import click

from delayq.aio import Queue as AsyncQueue
from delayq.errors import InvalidInput
from delayq.model.extras import install
from delayq.model.show import show_duration
from delayq.queue import Queue
from delayq.topic import Topic

from ..options import DURATION, Function
from .consumers import AsyncConsumerRunner
from .queue_reader import AsyncQueueReader, EventLoopThread

if TYPE_CHECKING:
    from delayq.metrics import Metrics, MetricsServer, Response
    from delayq.metrics.http_server import Route
    from delayq.outbox import Relay

    from ..relay_metrics import RelayMetrics

OWN = ("metrics_port", "metrics_host", "stall_timeout")
READY_SECONDS = 2.0  # for Redis to answer; the timeout of a probe should be longer


class Monitored(Protocol):
    """A consumer, or a supervisor of several."""

    @property
    def is_running(self) -> bool: ...
    @property
    def stalled(self) -> float: ...


class MonitoredTargets(NamedTuple):
    """What the metrics cover."""

    queues: Iterable[Queue | AsyncQueue] = ()
    topics: Sequence[Topic] = ()


class MetricsPort(NamedTuple):
    """Where to serve, and after how many seconds a consumer whose loop does not run counts as stalled."""

    number: int
    host: str
    stall_seconds: float


def monitor_options(function: Function, whose: str = "consumer's") -> Function:
    """--metrics-port and its options; the function gets a `Monitor` as `monitor`.

    Args:
        whose: loop is watched.
    """

    @click.option(
        "--metrics-port",
        type=click.IntRange(0, 65_535),
        metavar="PORT",
        help="Serve /metrics, /healthz and /readyz on this port; 0 picks a free one.",
    )
    @click.option(
        "--metrics-host",
        default="127.0.0.1",
        metavar="HOST",
        help="With --metrics-port: the address to listen on; 0.0.0.0 means all (needed in a container).",
    )
    @click.option(
        "--stall-timeout",
        type=DURATION,
        default="60s",
        metavar="TIME",
        help=f"With --metrics-port: /healthz fails if the {whose} loop has not run for this long.",
    )
    @click.pass_context
    @functools.wraps(function)
    def with_monitor(ctx: click.Context, *args: Any, **kwargs: Any) -> Any:
        number, host, seconds = (kwargs.pop(name) for name in OWN)
        for name in OWN[1:] if number is None else ():
            if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--{name.replace('_', '-')} needs --metrics-port")
        port = None if number is None else MetricsPort(number, host, seconds)
        return ctx.invoke(function, *args, monitor=Monitor(port), **kwargs)

    return with_monitor


class Monitor:
    """Watches the consumers of this process, and serves metrics of them and their queues."""

    def __init__(self, port: MetricsPort | None) -> None:
        self._port = port
        self._watched: list[Monitored] = []

    def watch(self, *consumers: Monitored) -> None:
        """Watch these too."""
        self._watched += consumers

    @property
    def stalled(self) -> float:
        """The longest time in seconds that the loop of a consumer has not run."""
        return max((each.stalled for each in self._watched), default=0.0)

    @contextmanager
    def serving(self, targets: Callable[[], MonitoredTargets], apart: bool = False) -> Generator[None]:
        """Serve while the block runs, if a port was given.

        Args:
            targets: returns what to monitor.
            apart: nothing in this process consumes it.

        Raises:
            InvalidInput: two queues have the same name.
            click.UsageError: a package is missing.
            click.ClickException: it cannot listen.
        """
        if self._port is None:
            yield
            return
        library = metrics_library("--metrics-port")
        loop = EventLoopThread() if apart else self._loop
        queues, topics = targets()
        metrics = library.Metrics(
            [each if isinstance(each, Queue) else AsyncQueueReader(each, loop) for each in queues], topics
        )
        with metrics_server(library, self._port.host, self._port.number, routes(metrics, self._trouble)):
            yield

    @contextmanager
    def serving_relay(self, metrics: Callable[[], RelayMetrics], relay: Relay) -> Generator[None]:
        """Serve metrics and health of a relay while the block runs, if a port was given; raises as `serving`."""
        if self._port is None:
            yield
            return
        library, stall_seconds = metrics_library("--metrics-port"), self._port.stall_seconds

        def trouble(ready: bool) -> str:
            if relay.stalled > stall_seconds:
                return f"the relay's loop has not run for {show_duration(relay.stalled)}"
            return relay.trouble if ready else ""

        with metrics_server(library, self._port.host, self._port.number, routes(metrics(), trouble)):
            yield

    def _loop(self) -> Any:
        return next((each.loop for each in self._watched if isinstance(each, AsyncConsumerRunner)), None)

    def _trouble(self, ready: bool) -> str:
        if self._port is not None and self.stalled > self._port.stall_seconds:
            return f"the consumer's loop has not run for {show_duration(self.stalled)}"
        is_running = self._watched and all(each.is_running for each in self._watched)
        return "" if is_running or not ready else "the consumer is starting or stopping"


def routes(metrics: Metrics | RelayMetrics, trouble: Callable[[bool], str]) -> dict[str, Callable[[str], Response]]:
    """Return the handlers by path.

    Args:
        trouble: returns why this process is not alive or, called with True, not ready; "" if it is.
    """

    def readiness(_: str) -> Response:
        if not (problem := trouble(True)) and (silent := metrics.silent(READY_SECONDS)):
            problem = f"no answer from Redis within {READY_SECONDS:g} s for {', '.join(silent)}"
        return _answer(problem)

    return {
        "/metrics": functools.partial(page, metrics),
        "/healthz": lambda _: _answer(trouble(False)),
        "/readyz": readiness,
    }


def metrics_server(
    library: Any, host: str, port: int, routes: Mapping[str, Route], hosts: Sequence[str] = ()
) -> MetricsServer:
    """Return the metrics server; if it cannot listen, fail with exit code 1, not 2."""
    try:
        server: MetricsServer = library.MetricsServer(host, port, routes, hosts)
    except InvalidInput as error:
        raise click.ClickException(str(error)) from error
    return server


def page(metrics: Metrics | RelayMetrics, accept: str) -> Response:
    """Return the answer to a scrape: metrics of the queues, or of the outbox, and of this process."""
    from prometheus_client import REGISTRY  # noqa: PLC0415  # of the extra, as below

    from delayq.metrics import Response  # noqa: PLC0415

    return Response(200, *metrics.exposition(accept, beside=REGISTRY))


def _answer(trouble: str) -> Response:
    from delayq.metrics import Response  # noqa: PLC0415

    return Response(503 if trouble else 200, f"{trouble or 'ok'}\n".encode())


def metrics_library(wanted: str) -> Any:
    """Return the module `delayq.metrics`, which `wanted` needs."""
    try:
        from delayq import metrics  # noqa: PLC0415  # an optional extra
    except ImportError as error:
        raise click.UsageError(f"{wanted} needs the package prometheus_client: {install('metrics')}") from error
    return metrics
