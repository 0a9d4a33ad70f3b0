"""Controls the consumer that is measured; in its own process, the sender's threads do not slow it down."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import click
import msgspec
from delayq.cli.connection import ServerOptions

from benchmarks.paired.consumer import READY, DrainOrder, DrainResult

ROOT = Path(__file__).parents[2]
START_SECONDS = 30.0  # for a busy machine; an idle one needs half a second


class ConsumerProcess:
    """A process that consumes on request; the end of the block kills it in any state.

    Args:
        server: the server of the queues; the process connects to it itself.
    """

    def __init__(self, server: ServerOptions) -> None:
        environment = os.environ | (
            {"DELAYQ_URL": server.url} if server.url else {}
        )  # not visible in the list of processes
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.consumer", server.prefix],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # select does not see what a buffer has already read
            env=environment,
            cwd=ROOT,
            start_new_session=True,  # Ctrl-C reaches only the command, which then ends this process
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._orders, self._answers = self.process.stdin, self.process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        self._orders.close()
        self._answers.close()

    def begin(self, order: DrainOrder) -> None:
        """Start consuming; return once it does."""
        self._orders.write(msgspec.json.encode(order) + b"\n")
        self._orders.flush()
        if self._line(START_SECONDS) != READY:
            raise click.ClickException("the consumer process did not start: try again")

    def end(self, seconds: float) -> DrainResult:
        """Return the result, within `seconds`."""
        return msgspec.json.decode(self._line(seconds), type=DrainResult)

    def _line(self, seconds: float) -> bytes:
        if not select.select([self._answers], [], [], seconds)[0]:  # noqa: TID251
            raise click.ClickException(f"the consumer process did not answer within {seconds:.0f} seconds")
        line = self._answers.readline()
        if not line:
            raise click.ClickException(f"the consumer process exited with code {self.process.wait()}")
        return line
