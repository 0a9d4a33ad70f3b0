"""Calls on a cluster, like `cluster`: each goes to the master of its key, and follows the key if it moves.

redis.asyncio provides the slots and the connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import time
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from redis import exceptions
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.client import NEVER_DECODE
from redis.crc import key_slot

from delayq.protocol.command import Command
from delayq.protocol.late_reply import Silent, Unanswered
from delayq.transport import cluster_slots, node_troubles
from delayq.transport.clients import HURRIES, IMPATIENT, seconds_on_cluster
from delayq.transport.cluster import _ANSWERS, LOOK_SECONDS, MOST_ROUNDS, NO_NODE, PAUSES, SentCommands
from delayq.transport.node_troubles import LASTING_SECONDS, NEW_PATIENCE, NodeTroubles, Trouble
from delayq.transport.redis_py import close_idle, give_back, has_unread

_LOST = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)


class Cluster:
    """Runs calls on the nodes of a cluster, like `cluster.Cluster`; tasks listen to silent nodes and try lost ones.

    Args:
        client: provides slots and connections.
    """

    def __init__(self, client: RedisCluster) -> None:
        self._client: Any = client
        self._look_at = 0.0
        self._slots: Any = None  # the last reply to CLUSTER SLOTS
        self._looker: asyncio.Task[None] | None = None
        self._seconds = seconds_on_cluster(client)
        self._outage: Exception | None = None
        self._troubles = NodeTroubles()
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """End the tasks."""
        self._troubles.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def is_away(self, key: str) -> bool:
        """Whether the node of a key is known to be unavailable."""
        master = self._master(key_slot(key.encode()))
        return master is None or self._troubles.of(master.name) is not None

    async def run(self, calls: Sequence[Command[Any]], whole: bool, repeat: bool) -> list[Any]:
        """Run calls; return the value read from each reply, or the RedisError or `Unanswered` in its place.

        Args:
            repeat: for a second or two, but not after `retry_timeout`, retry calls that were refused, or that were
                lost and may run twice.

        Raises:
            redis.exceptions.ConnectionError: no node answers.
        """
        todo = sent = [SentCommands(call, whole) for call in calls]
        impatient, end = IMPATIENT.get(), time.monotonic() + self._seconds
        pauses: Iterator[float] | None = None if repeat and not impatient else iter(())
        for _ in range(MOST_ROUNDS):
            await self._exchange(todo, impatient)
            failed = [each for each in sent if isinstance(each.reply, Exception)]
            if any(each.is_stranded for each in failed):
                if impatient:
                    self._look_beside()
                else:
                    await self._look_until(end)
            again = {each for each in failed if self._is_sent_on(each)}
            if not again:
                again = {each for each in failed if each.is_refused or (each.is_lost and each.call.repeats)}
                pauses = self._pauses(again) if pauses is None else pauses
                is_over = HURRIES.get()() or time.monotonic() >= end
                pause = next(pauses, None) if again and not is_over else None
                if pause is None:
                    break
                await asyncio.sleep(pause)
            slots = {each.slot for each in again}
            todo = [each for each in sent if each in again or (each.call.goes_along and each.slot in slots)]
        if self._outage is not None and all(each.is_stranded for each in sent):
            raise self._outage
        return [each.reply if isinstance(each.reply, Exception) else each.call.read(each.reply) for each in sent]

    def _pauses(self, failed: Iterable[SentCommands]) -> Iterator[float]:
        """Return the pauses before patient calls are repeated, and let their nodes be tried at once."""
        nodes = {NO_NODE if each.node is None else each.node.name for each in failed}
        return iter(PAUSES[:1] if self._troubles.are_lasting(nodes) else PAUSES)

    def _is_sent_on(self, sent: SentCommands) -> bool:
        """Whether there is another node to ask at once."""
        error, sent.asked = sent.reply, None
        if isinstance(error, exceptions.MovedError):
            self._client.nodes_manager.slots_cache[error.slot_id] = [self._known(error.host, error.port)]
            return True
        if isinstance(error, exceptions.AskError):
            sent.asked = self._known(error.host, error.port)
            return True
        master = self._master(sent.slot)
        return sent.is_unsent and master is not None and master != sent.node

    def _known(self, host: str, port: int) -> Any:
        """Return a node by its address, even if it has no slots yet."""
        manager = self._client.nodes_manager
        node = ClusterNode(host, port, **manager.connection_kwargs)
        return manager.nodes_cache.setdefault(node.name, node)

    def _master(self, slot: int) -> Any:
        with contextlib.suppress(exceptions.SlotNotCoveredError, KeyError):
            return self._client.nodes_manager.get_node_from_slot(slot)
        return None

    async def _look_until(self, end: float) -> None:
        """Read the slots, but wait for them only until `end`: each node that is asked may be silent."""
        if time.monotonic() >= self._look_at:
            looker = self._looker
            if looker is None or looker.done():
                looker = self._looker = self._start(self._look())
            await asyncio.wait((looker,), timeout=max(0.0, end - time.monotonic()))

    async def _look(self) -> None:
        """Read the slots from any node."""
        if time.monotonic() < self._look_at:
            return
        try:
            await self._read_slots()
            self._outage = None
        except (exceptions.RedisError, exceptions.RedisClusterException, IndexError) as error:  # no node, or no master
            self._outage = exceptions.ConnectionError(str(error))
        self._look_at = time.monotonic() + LOOK_SECONDS

    async def _read_slots(self) -> None:
        manager = self._client.nodes_manager
        for node in cluster_slots.to_ask(manager, self._troubles):
            with contextlib.suppress(exceptions.RedisError, OSError):
                reply = await node.execute_command("CLUSTER SLOTS")
                if reply and reply != self._slots:
                    cluster_slots.apply(manager, self._known, node, reply)
                    self._slots = reply
                if reply:
                    return
        await manager.initialize()

    async def _exchange(self, todo: Sequence[SentCommands], impatient: bool = False) -> None:
        """Send calls to their nodes, all nodes at the same time."""
        groups: dict[str, list[SentCommands]] = {}
        for each in todo:
            each.is_unsent = True
            each.node = each.asked or self._master(each.slot)
            if each.node is None:
                each.reply = exceptions.ClusterDownError(f"no node has slot {each.slot}")
            elif trouble := self._troubles.of(each.node.name):
                away = exceptions.ClusterDownError(f"{each.node.name}: {trouble.error}")
                each.reply = Silent(each.node.name) if trouble.is_silent and impatient else away
            else:
                groups.setdefault(each.node.name, []).append(each)
        talks = [_NodeCalls(group) for group in groups.values()]
        if impatient:
            await self._hear([talk for talk in talks if talk.may_be_left])
        async with asyncio.TaskGroup() as tasks:
            for talk in talks:
                if talk.is_to_begin:
                    tasks.create_task(talk.run())
        for talk in talks:
            if talk.trouble is not None:
                self._watch(talk.node, talk.trouble, LASTING_SECONDS if talk.is_silent else 0.0)

    # -- nodes in trouble ------------------------------------------------------------------------------------------

    async def _hear(self, talks: Sequence[_NodeCalls]) -> None:
        """Talk to nodes; leave those that stay silent for longer than usual."""
        began, troubles = time.monotonic(), self._troubles
        waiting = {asyncio.create_task(talk.run()): talk for talk in talks}
        try:
            while waiting:
                until = min(began + troubles.patience(talk.node.name) for talk in waiting.values())
                seconds = max(0.0, until - time.monotonic())
                ended, _ = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                now = time.monotonic()
                for task in ended:
                    talk = waiting.pop(task)
                    task.result()
                    if talk.is_whole:
                        troubles.answered(talk.node.name, now - began)
                if not ended:
                    late = [task for task, talk in waiting.items() if now >= began + troubles.patience(talk.node.name)]
                    begun = [task for task in late if waiting[task].has_begun]
                    if begun:  # its bytes are coming
                        await asyncio.wait(begun)
                    for task in late:
                        if task not in begun:
                            self._leave(task, waiting.pop(task), now - began)
        finally:
            for task in waiting:
                task.cancel()

    def _leave(self, task: asyncio.Task[None], talk: _NodeCalls, waited: float) -> None:
        """Let a task listen to a silent node."""
        late = talk.leave()
        trouble = self._troubles.begin(talk.node.name, exceptions.TimeoutError(node_troubles.SILENCE))
        if trouble is not None:
            trouble.is_silent = True
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._start(self._hear_late(task, talk, late, trouble, time.monotonic() - waited))

    async def _hear_late(
        self, task: asyncio.Task[None], talk: _NodeCalls, late: _Late, trouble: Trouble | None, began: float
    ) -> None:
        try:
            await asyncio.wait([task])
        finally:
            late.answer()
        if talk.is_whole:
            self._troubles.answered(talk.node.name, min(time.monotonic() - began, NEW_PATIENCE))
            if trouble is not None:
                self._troubles.end(trouble)
        elif trouble is not None:
            trouble.is_silent = False
            await self._try_on(trouble, talk.node)

    def _watch(self, node: Any, error: Exception, waited: float) -> None:
        """Let a task try a node until it answers."""
        trouble = self._troubles.begin(node.name, error, waited)
        if trouble is not None:
            self._start(self._try_on(trouble, node))

    def _look_beside(self) -> None:
        """Let a task look for new masters, for as long as calls fail."""
        if self._troubles.of(NO_NODE) is None:
            trouble = self._troubles.begin(NO_NODE, exceptions.ClusterDownError("a slot has no master"))
            if trouble is not None:
                self._start(self._try_on(trouble, None))

    async def _try_on(self, trouble: Trouble, node: Any) -> None:
        nudged = asyncio.Event()
        trouble.nudge = nudged.set
        try:
            for pause in node_troubles.pauses():
                await self._look()
                if (node is not None and await _answers(node)) or not self._troubles.is_wanted(trouble):
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(nudged.wait(), pause)
                nudged.clear()
        finally:
            self._troubles.end(trouble)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _NodeCalls:
    """Calls to one node, on one connection.

    Attributes:
        trouble: why the node is not to be asked for now.
        is_silent: whether it accepted the connection and did not answer in time.
        is_whole: whether every reply has been read.
    """

    def __init__(self, group: list[SentCommands]) -> None:
        self.node = group[0].node
        self.trouble: Exception | None = None
        self.is_whole = self.is_silent = False
        self.is_to_begin = True
        self._group = group
        self._connection: Any = None
        self._is_heard = False  # a reply has come

    @property
    def may_be_left(self) -> bool:
        """Whether a trip need not wait for the replies. A WAIT takes as long as its replicas."""
        return all(each.words[0] != "WAIT" for each in self._group)

    @property
    def has_begun(self) -> bool:
        """Whether the first bytes of a reply have come."""
        return self._is_heard or has_unread(self._connection)

    def leave(self) -> _Late:
        """Answer all calls with `Unanswered`, and return what gives their replies to the callers later."""
        left = [copy.copy(each) for each in self._group]
        for each in self._group:
            each.reply = Unanswered(self.node.name)
        late = _Late(left, [each.reply for each in self._group])
        self._group[:] = left  # which `run` fills
        return late

    async def run(self) -> None:
        """Send the calls, and read the replies."""
        self.is_to_begin = False
        group, unread = self._group, list(range(len(self._group)))
        try:
            self._connection = connection = self.node.acquire_connection()
            await connection.connect()
            commands: list[Any] = []
            for each in group:
                commands += [("ASKING",), each.words] if each.asked else [each.words]
                each.is_unsent = False
            await connection.send_packed_command(connection.pack_commands(commands), check_health=False)
            for place in range(len(group)):
                refusal = await _answer_to_asking(connection) if group[place].asked else None
                try:
                    reply = await self.node.parse_response(connection, group[place].words[0], **{NEVER_DECODE: True})
                except exceptions.ResponseError as error:
                    reply = error
                group[place].reply = refusal or reply
                unread.remove(place)
                self._is_heard = True
            self.is_whole = True
        except (exceptions.RedisError, OSError) as error:
            for place in unread:
                each = group[place]
                # A call that was never sent may go to another node, or be retried.
                is_away = each.is_unsent and isinstance(error, _LOST) and not isinstance(error, _ANSWERS)
                each.reply = exceptions.ClusterDownError(f"{self.node.name}: {error}") if is_away else error
                self.is_silent = not is_away and isinstance(error, exceptions.TimeoutError) and self.may_be_left
                if is_away or self.is_silent:
                    self.trouble = error
        finally:
            if self._connection is not None:
                if not self.is_whole:
                    await self._connection.disconnect(nowait=True)
                give_back(self.node, self._connection)


class _Late(NamedTuple):
    """Calls whose trip has ended without their replies, and where the callers look for these."""

    calls: list[SentCommands]
    unanswered: list[Unanswered]

    def answer(self) -> None:
        for each, unanswered in zip(self.calls, self.unanswered, strict=True):
            unanswered.answer(each.late_result())


async def _answers(node: Any) -> bool:
    """Whether a node answers on a new connection."""
    await close_idle(node)  # they may have broken unnoticed
    connection, is_whole = None, False
    try:
        connection = node.acquire_connection()
        await connection.connect()
        await connection.send_packed_command(connection.pack_command("PING"), check_health=False)
        await connection.read_response()
        is_whole = True
    except (*_ANSWERS, exceptions.ResponseError):
        return True
    except (exceptions.RedisError, OSError):
        return False
    finally:
        if connection is not None:
            if not is_whole:
                await connection.disconnect(nowait=True)
            give_back(node, connection)
    return True


async def _answer_to_asking(connection: Any) -> exceptions.ResponseError | None:
    """Return why ASKING was refused; the reply to the call itself follows in any case."""
    try:
        await connection.read_response()
    except exceptions.ResponseError as error:
        return error
    return None
