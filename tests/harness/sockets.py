"""The sockets of this process: a test must close the ones it opens."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from tests.harness.waiting import eventually

Socket: TypeAlias = tuple[int, int]  # its descriptor, which can be reused, and its inode


@contextlib.contextmanager
def all_closed(seconds: float = 10) -> Iterator[None]:
    """Check that a block closes the sockets it opens; wait for threads that are about to end.

    Raises:
        AssertionError: new sockets are still open.
    """
    before = open_sockets()

    def left() -> set[Socket]:
        return {each for each in open_sockets() - before if ports_of_java().isdisjoint(ports(each))}

    yield
    if not eventually(lambda: not left(), seconds):
        raise AssertionError(f"left open: {', '.join(map(described, left()))}")


def ports_of_java() -> set[int]:
    """Return the ports between this process and the Java of its Spark session, if an earlier test started one.

    Connections to them come and go at any time, for example when the garbage collector tells Java what to drop.
    """
    context: Any = getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_active_spark_context", None)
    if context is None:
        return set()
    gateway = context._gateway
    callbacks = gateway.get_callback_server()
    own = {gateway.gateway_parameters.port, context._accumulatorServer.server_address[1]}
    return own if callbacks is None else own | {callbacks.get_listening_port()}


def ports(opened: Socket) -> set[int]:
    """Return both ports of a socket; none if it has none."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(opened[0])) as same:
        return {address[1] for address in (same.getsockname(), same.getpeername()) if isinstance(address, tuple)}
    return set()


def open_sockets() -> set[Socket]:
    """Return the open sockets."""
    found = set()
    for path in Path("/dev/fd").iterdir():
        with contextlib.suppress(OSError):  # the descriptor of this listing itself is closed by now
            status = os.fstat(int(path.name))
            if stat.S_ISSOCK(status.st_mode):
                found.add((int(path.name), status.st_ino))
    return found


def described(opened: Socket) -> str:
    """Return where a socket leads, if it is still open."""
    try:
        with socket.socket(fileno=os.dup(opened[0])) as same:
            return f"fd={opened[0]} {same.family.name} to {same.getpeername()!r}"
    except OSError as error:
        return f"fd={opened[0]}: {error}"
