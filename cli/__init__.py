"""The command line: ``delayq``, or ``python -m delayq``."""

from .app import main

__all__ = ["main"]
