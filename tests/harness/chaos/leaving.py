"""How a program ends on a signal before its consumer handles signals."""

from __future__ import annotations

import os
import signal


def leave_at_sigterm() -> None:
    """Let SIGTERM end this process at once with exit code 0; there is nothing to finish yet.

    `sys.exit` is not enough: Python ignores exceptions in a destructor, or where an import releases its lock. Then a
    consumer that had just started ran forever.
    """
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
