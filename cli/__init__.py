"""The command line: ``delayq``, or ``python -m delayq.cli``."""

from .app import main

__all__ = ["main"]
