"""Deletes the rows of an outbox whose messages are safe in Redis, and lets their reservations end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from delayq.errors import DelayqError, ServerUnreachable, StoreError
from delayq.log import log
from delayq.model.interval import Interval
from delayq.outbox.database import Database, clock
from delayq.outbox.rows import operations
from delayq.outbox.statements import ROWS
from delayq.queue import Queue

LOG_SECONDS = 60.0


class Sweep:
    """Deletes sent rows that Redis cannot lose; those that it may have lost are sent again.

    Args:
        queue: returns the queue with a prefix and a name.
        settle_ms: how long after the send a row is deleted if the server does not say what it has on its disk.
    """

    def __init__(self, database: Database, queue: Callable[[str, str], Queue], settle_ms: int) -> None:
        self._database = database
        self._queue = queue
        self._settle_ms = settle_ms
        self._log = Interval(LOG_SECONDS)

    def run(self) -> None:
        """Look at the sent rows of all queues.

        Raises:
            ServerUnreachable, StoreError: Redis is away, and it is not a cluster.
        """
        statements = self._database.statements
        queues = self._database.execute(statements.queues_of_sent)
        if not queues:
            return
        now = clock(self._database)
        written: dict[str, bool | None] = {}  # for each server, whether all is on its disk: queues may share it
        for prefix, name in queues:
            try:
                servers = self._queue(prefix, name).execute(operations.synced, written)
            except DelayqError as error:
                if self._is_away(error, prefix, name):
                    raise  # each of the other queues would wait for the server, too
                if self._log.due():
                    log.warning("outbox rows not deleted yet", queue=name, error=str(error))
                continue
            known = [each.identity for each in servers]
            safe = [each.identity for each in servers if each.is_safe]
            silent = [each.identity for each in servers if not each.is_late]
            of = {"prefix": prefix, "queue": name}
            self._change(of, _is_one(known, False), now, is_lost=True)
            self._change(of, _is_one(safe, True), now)
            self._change(of, _is_one(silent, True), now - self._settle_ms)

    def release(self, rows: Iterable[tuple[str, str, str, str]]) -> None:
        """Let the reservations of deleted rows end: prefix and name of the queue, ids of the row and the message.

        Those that are left, because Redis is away, end by themselves in a month.
        """
        by_queue: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for prefix, name, row_id, message_id in rows:
            by_queue.setdefault((prefix, name), []).append((message_id, row_id))
        for (prefix, name), ids in by_queue.items():
            try:
                for start in range(0, len(ids), ROWS):
                    self._queue(prefix, name).execute(operations.release, ids[start : start + ROWS])
            except DelayqError as error:
                if self._is_away(error, prefix, name):
                    return  # each of the other queues would wait for the server, too

    def _is_away(self, error: DelayqError, prefix: str, name: str) -> bool:
        """Whether the server of all queues is away, rather than one node of a cluster."""
        is_away = isinstance(error, ServerUnreachable | StoreError)
        return is_away and not self._queue(prefix, name).execute(operations.is_on_cluster)

    def _change(
        self, of: dict[str, str], condition: tuple[str, dict[str, str]], until: int, *, is_lost: bool = False
    ) -> None:
        """Delete the sent rows of a queue that meet a condition and were sent by a time, ms; send lost ones again."""
        is_on, parameters = condition
        statements = self._database.statements
        change = statements.send_again if is_lost else statements.delete
        found: Sequence[tuple[int, str, str]] = ()
        while found == () or len(found) == ROWS:
            with self._database.locking():
                found = self._database.execute(statements.sent(is_on), until=until, most=ROWS, **of, **parameters)
                if found:
                    with self._database.writing():
                        self._database.execute(change([seq for seq, _, _ in found]))
            if not is_lost:
                pairs = [(id, operations.RowOptions.read(options).id or id) for _, id, options in found]
                self.release((of["prefix"], of["queue"], row_id, message_id) for row_id, message_id in pairs)
            elif found:
                log.warning("outbox rows sent again", queue=of["queue"], rows=len(found))


def _is_one(servers: Sequence[str], wanted: bool) -> tuple[str, dict[str, str]]:
    """Return the condition that a row was sent to one of some servers, or to none of them, and its parameters."""
    parameters = {f"value{number}": server for number, server in enumerate(servers)}
    if not servers:
        return ("0 = 1" if wanted else "1 = 1"), {}
    names = ", ".join(f":{name}" for name in parameters)
    return f"server {'' if wanted else 'NOT '}IN ({names})", parameters
