"""Which nodes of a cluster are unavailable, for both APIs: a trip asks here instead of waiting for them.

A node that refuses a connection, loses one or stays silent is in trouble. From then on, calls to it fail at once, while
a watcher beside them tries it until it answers. So only the first call to an unavailable node waits for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator

SILENCE = "it accepts connections, but does not answer"
LASTING_SECONDS = 1.3  # patient calls are repeated for this long; later ones are repeated once
WANTED_SECONDS = 10.0  # a node that no call has asked for is not watched; the next call tries it again
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.5  # seconds between two tries of a node that refuses connections
LEAST_PATIENCE, MOST_PATIENCE = 0.04, 0.3  # seconds that a trip waits for the first byte of a node's reply
NEW_PATIENCE = 1.0  # the same for the first reply of a node
USUAL_TIMES = 4  # the same, in multiples of the node's recent replies
SLOW_TIMES = 1.5  # the same for a node that is slower than that, up to NEW_PATIENCE
FADING = 0.98  # of the slowest recent reply, with each faster one


class Trouble:
    """Why a node is not asked.

    Attributes:
        error: the one that began it.
        since: on the monotonic clock.
        is_silent: whether an earlier call may still be answered.
        process: the process that watches the node; a forked child starts again.
        nudge: wakes the watcher, so that it tries the node at once.
    """

    def __init__(self, node: str, error: Exception, waited: float) -> None:
        self.node = node
        self.error = error
        self.asked_at = time.monotonic()
        self.since = self.asked_at - waited
        self.is_silent = False
        self.process = os.getpid()
        self.nudge: Callable[[], object] = bool

    @property
    def is_lasting(self) -> bool:
        """Whether it lasts for longer than patient calls are repeated."""
        return time.monotonic() > self.since + LASTING_SECONDS


class NodeTroubles:
    """The nodes in trouble, by name, and how long each node usually takes to reply."""

    def __init__(self) -> None:
        self._found: dict[str, Trouble] = {}
        self._slowest: dict[str, float] = {}

    def of(self, node: str) -> Trouble | None:
        """Return the trouble of a node that a call is for."""
        trouble = self._found.get(node)
        if trouble is None:
            return None
        if trouble.process != os.getpid():
            self._found.pop(node, None)
            return None
        trouble.asked_at = time.monotonic()
        return trouble

    def has(self, node: str) -> bool:
        """Whether a node is in trouble."""
        return node in self._found

    def begin(self, node: str, error: Exception, waited: float = 0.0) -> Trouble | None:
        """Note that a node is in trouble; return the trouble if it is new, and so must be watched.

        Args:
            waited: the seconds that a call has waited for it.
        """
        new = Trouble(node, error, waited)
        return new if self._found.setdefault(node, new) is new else None

    def end(self, trouble: Trouble) -> None:
        """Let calls try the node again."""
        if self._found.get(trouble.node) is trouble:
            del self._found[trouble.node]

    def clear(self) -> None:
        """Forget all; the watchers end."""
        found = list(self._found.values())
        self._found.clear()
        for trouble in found:
            trouble.nudge()

    def is_wanted(self, trouble: Trouble) -> bool:
        """Whether the node should still be watched."""
        return self._found.get(trouble.node) is trouble and time.monotonic() < trouble.asked_at + WANTED_SECONDS

    def are_lasting(self, nodes: Iterable[str]) -> bool:
        """Let nodes be tried at once, as calls wait for them; return whether the trouble of all of them lasts."""
        troubles = [self.of(node) for node in nodes]
        for trouble in troubles:
            if trouble is not None:
                trouble.nudge()
        return all(trouble is not None and trouble.is_lasting for trouble in troubles)

    def patience(self, node: str) -> float:
        """Return how many seconds a trip may wait for the node's first byte."""
        slowest = self._slowest.get(node)
        if slowest is None:
            return NEW_PATIENCE
        usual = min(max(LEAST_PATIENCE, slowest * USUAL_TIMES), MOST_PATIENCE)
        return max(usual, min(slowest * SLOW_TIMES, NEW_PATIENCE))  # or a slow node would never be heard in time

    def answered(self, node: str, seconds: float) -> None:
        """Note how long a node took for its first byte."""
        self._slowest[node] = max(seconds, self._slowest.get(node, 0.0) * FADING)


def pauses() -> Iterator[float]:
    """Yield the seconds between the tries of a node."""
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(LONGEST_PAUSE, pause * 2)
