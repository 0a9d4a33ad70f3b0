"""Renews the leases of a consumer on a separate thread, so that no fetch, duty or silent shard delays it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from delayq.errors import DelayqError
from delayq.log import log

STOP_SECONDS = 1.0
AGAIN_SECONDS = 0.5  # after a beat that failed


class Heartbeat:
    """Calls a function regularly, from `start` until `stop`; it can be started once.

    Args:
        beat: renews the leases; if it raises, the next beat comes soon.
        seconds: between two beats.
    """

    def __init__(self, beat: Callable[[], object], seconds: float) -> None:
        self._beat = beat
        self._seconds = seconds
        self._runs = threading.Lock()  # held while it runs: waiting for it is a sleep that `stop` can end
        self._thread = threading.Thread(target=self._run, name="delayq-heartbeat", daemon=True)

    def start(self) -> None:
        self._runs.acquire()
        self._thread.start()

    def stop(self) -> None:
        """End it, and wait up to a second for a running beat, which could reconnect after a close."""
        self._runs.release()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        seconds = self._seconds
        while not self._runs.acquire(timeout=seconds):
            try:
                self._beat()
            except Exception as error:  # noqa: BLE001  # without heartbeats, no lease would be renewed
                note_failure(error)
                seconds = min(AGAIN_SECONDS, self._seconds)
            else:
                seconds = self._seconds


def note_failure(error: Exception) -> None:
    """Log that a beat has failed."""
    if isinstance(error, DelayqError):
        log.debug("heartbeat failed", error=str(error))
    else:
        log.error("heartbeat failed", error=repr(error))
