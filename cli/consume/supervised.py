"""What one of several processes does for its supervisor."""

from __future__ import annotations

import os
import signal
import threading
import time

from delayq.log import log

from .liveness_pipe import HeartbeatSender
from .monitor import Monitor
from .supervisor import SUPERVISOR_ENV, is_orphan

LOOK_SECONDS = 1.0  # between checks that the supervisor is alive and the consumers' loops run


def watch_supervisor(monitor: Monitor) -> None:
    """Send heartbeats to the supervisor while the consumers' loops run; shut down if the supervisor was killed."""
    if SUPERVISOR_ENV not in os.environ:
        return
    heartbeat = HeartbeatSender()

    def watch() -> None:
        while not is_orphan():
            if monitor.stalled < LOOK_SECONDS:
                heartbeat.beat()
            time.sleep(LOOK_SECONDS)
        log.warning("supervisor gone, stopping")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="delayq-supervisor-watch", daemon=True).start()
