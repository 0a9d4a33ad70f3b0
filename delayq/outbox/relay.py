"""The relay: brings committed rows of an outbox into Redis, and deletes a row once its message is safe there."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from delayq.errors import (
    DelayqError,
    FormatTooNew,
    InvalidInput,
    InvalidURL,
    ServerError,
    ServerNotReady,
    ServerOutOfMemory,
    ServerUnreachable,
    ShardsMismatch,
    StoreError,
    UnreadableEnvelope,
)
from delayq.log import log
from delayq.model.outage import Outage
from delayq.outbox.clock_difference import ClockDifference
from delayq.outbox.database import POLL_SECONDS, Database, clock
from delayq.outbox.lag import lag
from delayq.outbox.rows import operations
from delayq.outbox.statements import ROWS
from delayq.outbox.sweep import Sweep
from delayq.queue import Queue

TRANSACTIONS = 500
"""How many transactions of the application a transaction of the relay takes, at most."""

BYTES = 8 * 1024 * 1024
"""How much of their messages is read at a time."""

LOCKED_SECONDS = 20.0
"""For how long a relay trusts its locks without asking the database. If its session is lost, another relay may send the
rows; their messages then stay reserved for a while, as `RELEASED_MS` says."""

SETTLE_SECONDS = 5.0
"""How long after a send a server that keeps an append-only file has written it to its disk: two seconds at most."""

SWEEP_SECONDS = 2.0
LOG_SECONDS = 60.0
LONGEST_WAIT_MS = 60_000
MOST_ATTEMPTS = 3
"""How often a row fails alone, on a server that answers, before it is refused."""

LARGE = 1_000_000
"""Bytes that a server may close the connection on: the least limit that Redis lets one set is 1 MiB."""

AWAY = (ServerError, StoreError)
Kind = Literal["safe", "sent", "refused", "failed", "held", "away"]
WAITING = ("failed", "held", "away")
MOST_QUEUES = 100
"""How many queues a relay keeps open, each with its own connections."""

BEHIND = "earlier rows of this queue wait"
"""The error of held rows that were not tried."""

PAGES = 20
"""How many times ROWS a turn takes, so that it ends; the rest of a transaction is sent in the next ones, in order."""

HELD_PAGES = 2
"""The same for the held rows of a queue. A queue that still refuses them has cost others one page."""

HELD_QUEUES = 100
"""How many queues with held rows a turn looks at; the next one continues with those after them."""

FIRST_WAIT_MS = 1000
LONGEST_AWAY_MS = 4000
"""How long rows wait if a node of a cluster is away: as for a server, a relay sends soon after its return."""

_QueueName: TypeAlias = tuple[str, str]
"""A queue: its prefix and its name."""

_Key: TypeAlias = tuple[str, str, int | None, int | None]
"""A queue: its prefix, its name, the number of its shards and its retries; None for what is recorded."""


ALL_QUEUES: _QueueName = ("", "")


class _Taken(NamedTuple):
    """A row that this relay has locked."""

    seq: int
    prefix: str
    queue: str
    attempts: int
    created_ms: int
    row: operations.DueRow


class _Outcome(NamedTuple):
    """What became of a row.

    Attributes:
        kind: "failed" is a row that failed alone. "held" is one whose queue refuses every message for a while, and
            "away" one whose node of a cluster is unavailable.
        text: the server's identity if it is sent, the error if it is not.
    """

    taken: _Taken
    kind: Kind
    text: str = ""


class Relay:
    """Brings committed rows of an outbox into Redis.

    Several may run on PostgreSQL, one on SQLite.

    Args:
        database: from `open_database`.
        url: of the Redis server; None for DELAYQ_URL, or else the embedded store.
        wait_replicas: 0 to 1,000. A row is deleted once this number of replicas has its message; with 0, once the
            server has it on its disk, as far as the server can say so.
        settle_seconds: otherwise, how long after the send it is deleted, if the server has lost nothing meanwhile.

    Attributes:
        moved: rows whose messages were sent.
        refused: rows that Redis has refused permanently.
        trouble: why the last turn failed: the database or Redis is away; "" if it did not.

    Raises:
        InvalidInput: `wait_replicas` is out of range.
    """

    def __init__(
        self,
        database: Database,
        url: str | None = None,
        *,
        wait_replicas: int = 0,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        operations.check_replicas(wait_replicas)
        self._database = database
        self._statements = database.statements
        self._url = url
        self._replicas = wait_replicas
        self._sweep = Sweep(database, self._queue, round(settle_seconds * 1000))
        self._queues: dict[_Key, Queue] = {}
        self._failed: set[_QueueName] = set()  # their other rows wait, too, so that the order of a transaction is kept
        self._waits: Counter[_QueueName] = Counter()  # turns in which rows of a queue had to wait, in a row
        self._looked_at: _QueueName = ("", "")  # the last queue with held rows
        self._is_on_cluster = False  # a queue that has not connected yet does not know
        self._witnesses: set[Queue] = set()  # their connections know which nodes of a cluster are away
        self._now = 0  # ms, by the database, when rows were read
        self._clocks: dict[_QueueName, ClockDifference] = {}
        self._locked_at = 0.0
        self._sweep_at = 0.0
        self._log_at = 0.0
        self._has_warned = False
        self._turned_at = time.monotonic()
        self.moved = self.refused = 0
        self.trouble = ""

    @property
    def stalled(self) -> float:
        """The seconds since the loop of `run` last began a turn."""
        return time.monotonic() - self._turned_at

    def run(self, stop: threading.Event, burst: bool = False) -> None:
        """Relay until `stop` is set; with `burst`, until no row is left but those that wait or were refused.

        It waits for a database or a server that is away.

        Raises:
            InvalidInput: another relay runs on a SQLite database; InvalidURL: no server can have such a URL.
        """
        redis_outage, database_outage = Outage(), _DatabaseOutage()
        while not stop.is_set():
            self._turned_at = time.monotonic()
            try:
                taken = self.turn()
                self.trouble = ""
                if taken:
                    redis_outage.served()
                self._log_lag()
                database_outage.served()
                if burst and not taken and self._is_empty():
                    return
                self._database.wait(0 if taken else POLL_SECONDS)  # notifications would pile up
            except (ServerError, StoreError) as error:
                self.trouble = f"Redis: {error}"
                self._clocks.clear()
                stop.wait(redis_outage.lost(error))
            except self._database.errors as error:
                self.trouble = f"the database: {' '.join(str(error).split())}"
                self._clocks.clear()
                with suppress(*self._database.errors):
                    self._database.close()
                stop.wait(database_outage.lost(error))

    def close(self) -> None:
        """Close the connections that the relay has opened."""
        self._database.close()
        for each in self._queues.values():
            each.close()

    def turn(self) -> int:
        """Send the rows of the oldest transactions, and delete those that are safe; return how many rows were taken.

        Raises:
            ServerError: Redis is away; rows that were sent are reserved.
        """
        gone: list[_Taken] = []
        taken = 0
        away: Exception | None = None
        self._failed.clear()
        with self._database.locking():
            outcomes: list[_Outcome] = []
            waiting: list[int] = []
            for page, behind in self._pages():
                taken += len(page) + len(behind)
                outcomes += self._send(page)
                waiting += behind
            try:
                for queue in self._held_queues():
                    for page, _ in self._pages(queue):
                        taken += len(page)
                        outcomes += self._send(page)
            except AWAY as error:  # each of the other queues would wait for the server, too
                away = error
            if outcomes or waiting:
                with self._database.writing():
                    gone = self._note(outcomes)
                    self._hold(waiting, BEHIND, 0)  # until those before them are tried
        kinds = Counter(each.kind for each in outcomes)
        self.moved += kinds["safe"] + kinds["sent"]
        self.refused += kinds["refused"]
        if away is not None:
            raise away
        self._sweep.release((each.prefix, each.queue, each.row.id, _id(each.row)) for each in gone)
        if time.monotonic() >= self._sweep_at:
            self._sweep.run()
            self._sweep_at = time.monotonic() + SWEEP_SECONDS
        return taken

    def _pages(self, held: _QueueName | None = None) -> Iterator[tuple[list[_Taken], list[int]]]:
        """Lock the oldest transactions, and yield their rows in order, as many at a time as memory may hold.

        With each part come the numbers of rows that wait, because earlier ones of their queue do.

        Args:
            held: yield rows of this queue that are held; None for all others.
        """
        execute, statements, last = self._database.execute, self._statements, 0
        of = {} if held is None else {"prefix": held[0], "queue": held[1]}
        are_held: dict[_QueueName, bool] = {}
        heads = None
        if statements.locking:
            first = statements.heads if held is None else statements.held_heads
            heads = [seq for (seq,) in execute(first, most=TRANSACTIONS, **of)]
            if not heads:
                return
        due = statements.due(heads) if held is None else statements.held_due(heads)
        for _ in range(PAGES if held is None else HELD_PAGES):
            self._locked_at = time.monotonic()
            found = execute(due, seq=last, most=ROWS, **of)
            if held is None:  # after the heads are locked: other relays hold and send by turns
                for queue in {(prefix, name) for _, _, prefix, name in found} - are_held.keys():
                    are_held[queue] = self._is_held(queue)
            waiting = [seq for seq, _, *queue in found if are_held.get(tuple(queue)) or tuple(queue) in self._failed]
            known = set(waiting)
            sizes = [(seq, size) for seq, size, *_ in found if seq not in known]
            for numbers in operations.trips(sizes, ROWS, BYTES):
                rows = execute(statements.read(numbers))
                self._now = clock(self._database)
                yield [_taken(row) for row in rows], []
            if waiting and held is None:
                yield [], waiting
            if len(found) < ROWS or held in self._failed:
                return
            last = found[-1][0]

    def _is_held(self, queue: _QueueName) -> bool:
        """Return whether rows of a queue are held."""
        found = self._database.execute(self._statements.held_from, prefix=queue[0], queue=queue[1])
        return bool(found) and (found[0][0], found[0][1]) == queue

    def _held_queues(self) -> Iterator[_QueueName]:
        """Yield queues with held rows that are to be tried, each once; those behind HELD_QUEUES in the next turns."""
        seen: set[_QueueName] = set()
        while len(seen) < HELD_QUEUES:
            prefix, queue = self._looked_at
            found = self._database.execute(self._statements.next_held, prefix=prefix, queue=queue)
            if not found and not prefix:
                return
            self._looked_at = (found[0][0], found[0][1]) if found else ("", "")
            if not found:
                continue  # with the first
            if self._looked_at in seen:
                return
            seen.add(self._looked_at)
            if found[0][2] <= clock(self._database) and self._looked_at not in self._failed:
                yield self._looked_at

    def _send(self, rows: Sequence[_Taken]) -> list[_Outcome]:
        """Send rows, queue by queue.

        Raises:
            ServerError: none of them could be sent, because the server is away.
        """
        outcomes: list[_Outcome] = []
        away: DelayqError | None = None
        for key, group in _groups(rows):
            if key[:2] in self._failed:
                outcomes += _behind(group)
                continue
            known = next((at for at, each in enumerate(group) if operations.is_newer(each.row)), len(group))
            try:
                if isinstance(away, ServerUnreachable):  # each queue would wait for the server
                    raise away
                found = self._send_group(self._queue(*key), group[:known]) if known else []
            except AWAY as error:
                found = _all("away", group[:known], error)
                if not self._note_node(self._queue(*key), group):
                    away = error
            except InvalidURL:
                raise
            except InvalidInput as error:  # no such queue can be
                found = _all("refused", group[:known], error)
            found += _all("held", group[known:], FormatTooNew("the message is of a newer delayq: update the relay"))
            if found[-1].kind in WAITING or _is_any_held(found):
                self._failed.add(key[:2])
            outcomes += found
        if away is not None and all(each.kind in WAITING for each in outcomes):
            raise away
        return [each._replace(taken=_without_message(each.taken)) for each in outcomes]

    def _note_node(self, queue: Queue, rows: Iterable[_Taken]) -> bool:
        """Return whether the server that is away is a node of a cluster, while others may serve other queues."""
        self._is_on_cluster = self._is_on_cluster or queue.execute(operations.is_on_cluster)
        if not self._is_on_cluster:
            return False
        if queue.execute(operations.are_away, queue.execute(operations.keys_of, map(_message_id, rows))):
            self._witnesses.add(queue)
        return True

    def _check_nodes(self, queue: Queue, rows: Iterable[_Taken]) -> None:
        """Raise ServerNotReady if a node that rows are for is known to be away: each queue would wait for it again."""
        if not self._witnesses - {queue}:
            return
        keys = queue.execute(operations.keys_of, map(_message_id, rows))
        if any(each.execute(operations.are_away, keys) for each in self._witnesses if each is not queue):
            raise ServerNotReady("a node of the cluster is unavailable; try again later")

    def _queue(self, prefix: str, name: str, shards: int | None = None, retries: int | None = None) -> Queue:
        key = prefix, name, shards, retries
        queue = self._queues.pop(key, None)
        if queue is None:
            queue = Queue(name, url=self._url, prefix=prefix, shards=shards, max_retries=retries)
        self._queues[key] = queue  # the last one, as it is used last
        if len(self._queues) > MOST_QUEUES:
            oldest = self._queues.pop(next(iter(self._queues)))
            oldest.close()
            self._witnesses.discard(oldest)
        return queue

    def _send_group(self, queue: Queue, rows: list[_Taken]) -> list[_Outcome]:
        """Send rows of a queue. If the server refuses one of them, it is found by halves.

        Raises:
            ServerError: the server is away.
        """
        self._hold_locks()
        self._check_nodes(queue, rows)
        try:
            results = queue.execute(operations.send_rows, [self._dated(queue, each) for each in rows], self._replicas)
        except (InvalidURL, ServerNotReady, ServerOutOfMemory):
            raise
        except (UnreadableEnvelope, InvalidInput) as error:
            return self._by_halves(queue, rows) if len(rows) > 1 else _all("refused", rows, error)
        except ShardsMismatch as error:  # other rows of the queue may give its own number
            return _all("refused", rows, error)
        except DelayqError as error:
            if type(error) not in (ServerError, ServerUnreachable):
                return _all("held", rows, error)
            queue.execute(operations.ping, map(_message_id, rows))  # if it is away, no row is at fault
            if isinstance(error, ServerUnreachable) and sum(len(each.row.message) for each in rows) < LARGE:
                return _all("held", rows, error)  # it closes a connection on which an argument is too large for it
            if len(rows) > 1:
                return self._by_halves(queue, rows)
            return _all("refused" if rows[0].attempts + 1 >= MOST_ATTEMPTS else "failed", rows, error)
        return [self._judged(queue, each, *result) for each, result in zip(rows, results, strict=True)]

    def _dated(self, queue: Queue, taken: _Taken) -> operations.DueRow:
        """Return a row with its age, and the time at which its message is due."""
        delay, due = taken.row.options.due, None
        if isinstance(delay, str) and int(delay) > 0:
            due = taken.created_ms + int(delay) + self._ahead_of(queue, (taken.prefix, taken.queue))
        return taken.row._replace(age_ms=max(0, self._now - taken.created_ms), due=due)

    def _ahead_of(self, queue: Queue, key: _QueueName) -> int:
        """Return how far a server's clock is ahead of the database's, ms; of a cluster, for each queue."""
        known = self._clocks.get(key) or self._clocks.get(ALL_QUEUES) or ClockDifference(partial(clock, self._database))
        found = known.ms(lambda: queue.execute(operations.server_ms))
        self._is_on_cluster = self._is_on_cluster or queue.execute(
            operations.is_on_cluster
        )  # now that it has connected
        self._clocks.setdefault(key if self._is_on_cluster else ALL_QUEUES, known)
        return found

    def _judged(self, queue: Queue, taken: _Taken, result: Any, server: operations.Server) -> _Outcome:
        if isinstance(result, int):
            return _Outcome(taken, "refused", f"QueueFull: queue {queue.name} was full, with max_length {result:,}")
        if server.replicas and not self._replicas and not self._has_warned:
            self._has_warned = True
            log.warning("outbox waits for no replica", replicas=server.replicas, remedy="give --wait-replicas 1")
        if self._replicas or server.is_safe:
            return _Outcome(taken, "safe")
        return _Outcome(taken, "sent", server.identity)

    def _by_halves(self, queue: Queue, rows: list[_Taken]) -> list[_Outcome]:
        middle = len(rows) // 2
        first = self._send_group(queue, rows[:middle])
        return [*first, *(_behind(rows[middle:]) if _is_any_held(first) else self._send_group(queue, rows[middle:]))]

    def _hold_locks(self) -> None:
        """Make sure that the session that holds the locks lives; raises the database's error if it does not."""
        if time.monotonic() - self._locked_at > LOCKED_SECONDS:
            self._database.execute("SELECT 1")
            self._locked_at = time.monotonic()

    def _note(self, outcomes: Sequence[_Outcome]) -> list[_Taken]:
        """Write what became of rows; return those that are deleted."""
        by_kind: dict[tuple[Kind, str, _QueueName | None], list[_Taken]] = {}
        queues, waiting = set(), set()
        for each in outcomes:
            queue = each.taken.prefix, each.taken.queue
            queues.add(queue)
            if each.kind in WAITING:
                waiting.add(queue)
            of = None if each.kind in ("safe", "sent") else queue
            by_kind.setdefault((each.kind, each.text, of), []).append(each.taken)
        for queue in queues - waiting:
            self._waits.pop(queue, None)
        now = clock(self._database)
        for (kind, text, _), rows in by_kind.items():
            for start in range(0, len(rows), ROWS):
                self._note_some(kind, text, rows[start : start + ROWS], now)
        self._waits.update(waiting)
        return [each.taken for each in outcomes if each.kind == "safe"]

    def _note_some(self, kind: Kind, text: str, rows: Sequence[_Taken], now: int) -> None:
        execute, statements, numbers = self._database.execute, self._statements, [each.seq for each in rows]
        if kind == "safe":
            execute(statements.delete(numbers))
        elif kind == "sent":
            execute(statements.mark_sent(numbers), server=text)
        elif kind == "refused":
            execute(statements.refuse(numbers), error=text)
            first = rows[0]
            log.error("outbox rows refused", queue=first.queue, rows=len(rows), id=_id(first.row), error=text)
        else:
            longest = LONGEST_AWAY_MS if kind == "away" else LONGEST_WAIT_MS
            wait_ms = min(longest, FIRST_WAIT_MS * 2 ** min(16, self._waits[rows[0].prefix, rows[0].queue]))
            if kind == "failed":
                execute(statements.postpone(numbers), error=text, due_ms=now + wait_ms)
            else:
                self._hold(numbers, text, now + wait_ms)
            log.warning("outbox rows postponed", queue=rows[0].queue, rows=len(rows), error=text)

    def _hold(self, numbers: Sequence[int], text: str, due_ms: int) -> None:
        for start in range(0, len(numbers), ROWS):
            self._database.execute(self._statements.hold(numbers[start : start + ROWS]), error=text, due_ms=due_ms)

    def _is_empty(self) -> bool:
        """Whether nothing is left to do now."""
        found = self._database.execute(self._statements.due(None), seq=0, most=1)
        return not found and not self._database.execute(self._statements.queues_of_sent)

    def _log_lag(self) -> None:
        """Log once a minute what waits, if that is something."""
        if time.monotonic() < self._log_at:
            return
        self._log_at = time.monotonic() + LOG_SECONDS
        found = lag(self._database)
        if found.unsent or found.refused or found.sent_seconds > LOG_SECONDS:
            log.info("outbox", **found._asdict())


class _DatabaseOutage:
    """Decides how long to wait for the database, and logs its outage once."""

    def __init__(self) -> None:
        self._pause = self._first = 0.1
        self._is_logged = False

    def lost(self, error: Exception) -> float:
        """Note that a statement failed; return the seconds until the next try."""
        if not self._is_logged:
            log.warning("database unavailable, retrying", error=" ".join(str(error).split()))
        self._is_logged, pause = True, self._pause
        self._pause = min(1.0, 2 * pause)
        return pause

    def served(self) -> None:
        """Note that the database has answered."""
        if self._is_logged:
            log.info("database available again")
        self._is_logged, self._pause = False, self._first


def _taken(row: Sequence[Any]) -> _Taken:
    seq, id, prefix, queue, message, options, created_ms, attempts = row
    try:
        read = operations.RowOptions.read(options)
    except msgspec.MsgspecError:
        read, message = operations.RowOptions(), b""  # the send refuses it as unreadable
    return _Taken(seq, prefix, queue, attempts, created_ms, operations.DueRow(str(id), bytes(message), read))


def _without_message(taken: _Taken) -> _Taken:
    """Free the memory of a message, which a transaction may have many of."""
    return taken._replace(row=taken.row._replace(message=b""))


def _all(kind: Kind, rows: Iterable[_Taken], error: Exception) -> list[_Outcome]:
    return [_Outcome(each, kind, f"{type(error).__name__}: {error}") for each in rows]


def _behind(rows: Iterable[_Taken]) -> list[_Outcome]:
    return [_Outcome(each, "held", BEHIND) for each in rows]


def _is_any_held(outcomes: Iterable[_Outcome]) -> bool:
    return any(each.kind in ("held", "away") for each in outcomes)


def _groups(rows: Iterable[_Taken]) -> list[tuple[_Key, list[_Taken]]]:
    """Return the rows of each queue that are sent together: in their order, also where its producers differ."""
    groups: list[tuple[_Key, list[_Taken]]] = []
    last: dict[_QueueName, tuple[_Key, list[_Taken]]] = {}
    for each in rows:
        key = (each.prefix, each.queue, each.row.options.shards, each.row.options.retries)
        group = last.get(key[:2])
        if group is None or group[0] != key:
            group = last[key[:2]] = (key, [])
            groups.append(group)
        group[1].append(each)
    return groups


def _message_id(taken: _Taken) -> str:
    return _id(taken.row)


def _id(row: operations.DueRow) -> str:
    return row.options.id or row.id
