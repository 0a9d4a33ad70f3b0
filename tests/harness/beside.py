"""Handlers that notice if a message runs beside itself, in any thread or process."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Runs:
    """The runs of messages, as their handlers note them in a folder.

    A payload is a dict with the folder, the message's number and the seconds of its run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    def payload(self, number: int, seconds: float) -> dict[str, Any]:
        """Return the payload of a message."""
        return {"folder": str(self._folder), "number": number, "seconds": seconds}

    def begun(self) -> dict[int, int]:
        """Return how often each message has begun."""
        return {int(path.stem): path.stat().st_size for path in self._folder.glob("*.begun")}

    def beside(self) -> list[int]:
        """Return the messages that ran beside themselves."""
        return sorted(int(path.stem) for path in self._folder.glob("*.beside"))

    def ended(self) -> int:
        """Return how many messages have ended."""
        return len(list(self._folder.glob("*.ended")))


@contextmanager
def _noted(payload: dict[str, Any]) -> Iterator[None]:
    path = Path(payload["folder"]) / str(payload["number"])
    runs = path.with_suffix(".runs")
    with path.with_suffix(".begun").open("a") as begun:
        begun.write("x")
    try:
        os.close(os.open(runs, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        path.with_suffix(".beside").touch()
    yield
    runs.unlink(missing_ok=True)
    path.with_suffix(".ended").touch()


def run(message: Any) -> None:
    """Handle a message or a record."""
    with _noted(message.payload):
        time.sleep(message.payload["seconds"])


async def run_async(message: Any) -> None:
    """Handle a message or a record on an event loop."""
    with _noted(message.payload):
        await asyncio.sleep(message.payload["seconds"])
