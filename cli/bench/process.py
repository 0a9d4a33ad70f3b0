"""Drives the consumer that ``delayq bench`` runs in a process of its own: the sender's threads do not slow it down."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from types import TracebackType
from typing import Self

import click
import msgspec

from ..connection import ServerOptions
from .consumer import READY, DrainOrder, DrainResult

START_SECONDS = 30.0  # a machine under load; an idle one needs half a second


class ConsumerProcess:
    """A process that consumes on order; ended with the block, in whatever state it is.

    Args:
        server: where the queues are; the process connects to it by itself.
    """

    def __init__(self, server: ServerOptions) -> None:
        environment = os.environ | ({"DELAYQ_URL": server.url} if server.url else {})  # in no list of processes
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.consumer", server.prefix],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # what a buffer has read ahead is not seen by select
            env=environment,
            start_new_session=True,  # Ctrl-C reaches the command alone, which then ends this process
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
        """Let it consume; return once it does."""
        self._orders.write(msgspec.json.encode(order) + b"\n")
        self._orders.flush()
        if self._line(START_SECONDS) != READY:
            raise click.ClickException("the consumer's process does not start")

    def end(self, seconds: float) -> DrainResult:
        """Return the result, for which it is given so many seconds."""
        return msgspec.json.decode(self._line(seconds), type=DrainResult)

    def _line(self, seconds: float) -> bytes:
        if not select.select([self._answers], [], [], seconds)[0]:
            raise click.ClickException(f"the consumer's process is not done after {seconds:.0f} seconds")
        line = self._answers.readline()
        if not line:
            raise click.ClickException(f"the consumer's process has ended with exit code {self.process.wait()}")
        return line
