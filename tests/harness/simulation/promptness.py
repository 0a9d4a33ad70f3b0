"""Whether a consumer could have done earlier what was done late."""

from __future__ import annotations

from delayq.model.interval import FALLBACK_MS
from tests.harness.simulation.fibers import Stage
from tests.harness.simulation.lives import Life, Violation

MOST_US = FALLBACK_MS * 1000 + 100_000
"""The longest that work goes unnoticed by a consumer to which nothing has happened."""

USUAL_US = 30_000
"""The same while nothing has happened to anybody: all bells and promises have arrived."""


class Promptness:
    """Knows since when each consumer could have worked."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._schedule = stage.schedule
        self._paused: dict[str, int] = {}

    def check_hand_out(self, life: Life) -> None:
        """Check that no consumer was idle for long while a message was due."""
        self._check(f"{life.id} is handed out", max(life.due, life.available) * 1000, idle=True)

    def check_recovery(self, life: Life, ended_us: int) -> None:
        """Check that no consumer ignored an expired delivery for long; `ended_us`: since when, with a grace, it is."""
        self._check(f"{life.id} is taken back", max(life.lease_end, ended_us), idle=False)

    def pause(self, shard: str) -> None:
        """Note that nothing is handed out."""
        self._paused.setdefault(shard, self._schedule.us)

    def resume(self, shard: str) -> None:
        """Note that messages are handed out again."""
        began = self._paused.pop(shard, self._schedule.us)
        for process in self._stage.processes:
            process.troubles.append((began, self._schedule.us))

    def _check(self, what: str, due_us: int, idle: bool) -> None:
        late = self._schedule.server_us - due_us
        if late <= USUAL_US:
            return
        most = USUAL_US if self._is_quiet(late) else MOST_US
        if late > most:
            now = self._schedule.us
            since = now - late - most
            for process in self._stage.processes:
                serves = process.serves_since is not None and process.serves_since < since
                is_free = not idle or (process.held == 0 and process.idle_since < since)
                if serves and is_free and not process.is_dead and not process.had_trouble(since, now):
                    raise Violation(f"{what} {late / 1_000_000:.3f} s late, and {process.name} could have done it")

    def _is_quiet(self, late: int) -> bool:
        """Whether no fault has hit any process since well before the time."""
        now = self._schedule.us
        since = now - late - 2 * MOST_US
        return since > 0 and not any(process.had_trouble(since, now) for process in self._stage.processes)
