"""The signals that end a consumer in good order."""

from __future__ import annotations

import signal


def ending() -> list[signal.Signals]:
    """Return SIGTERM, SIGINT, and SIGHUP, unless the program handles or ignores that one, as under `nohup`."""
    hangs_up = signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    return [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hangs_up else [])]
