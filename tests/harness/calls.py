"""Operations that run commands as they are, for `Queue.execute` and `Topic.execute`."""

from __future__ import annotations

from typing import Any, TypeVar

from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute

T = TypeVar("T")


def round_trip(_: object, commands: list[Command[Any]]) -> Operation[list[Any]]:
    """Run commands in one round trip; return their results, or the errors in place of them."""
    return (yield commands)


def run_one(_: object, command: Command[T]) -> Operation[T]:
    """Run one command; return its result or raise its error."""
    return (yield from execute(command))
