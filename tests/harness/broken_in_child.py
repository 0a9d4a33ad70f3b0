"""A module that can be imported, but not in a process of a pool."""

from __future__ import annotations

from multiprocessing import parent_process

from delayq import Message

if parent_process() is not None:
    raise RuntimeError("this module cannot be imported here")


def handle(message: Message) -> None:
    raise AssertionError(message)
