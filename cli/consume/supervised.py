"""What a process of several does for its supervisor."""

from __future__ import annotations

import os
import signal
import threading
import time

from delayq.log import log
from delayq.runtime.liveness_pipe import HeartbeatSender
from delayq.runtime.supervisor import SUPERVISOR_ENV, is_orphan

from .monitor import Monitor

LOOK_SECONDS = 1.0  # between two looks at whether the supervisor still lives, and the consumers turn


def watch_supervisor(monitor: Monitor) -> None:
    """End this process in good order when its supervisor was killed; tell it, as long as the consumers turn."""
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
