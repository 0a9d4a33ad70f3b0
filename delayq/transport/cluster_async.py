"""Calls on a cluster, like `cluster`: each goes to the master of its key, and follows the key if it moves.

redis.asyncio provides the slots and the connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import operator
import time
from collections.abc import Coroutine, Sequence
from typing import Any

from redis import exceptions
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.client import NEVER_DECODE

from delayq.protocol.command import Command
from delayq.transport import cluster_slots, node_troubles, trampoline
from delayq.transport.cluster_calls import ANSWERS, LOST, UNREAD, ClusterCalls, LateCalls, NodeCalls, SentCommands
from delayq.transport.node_troubles import Trouble
from delayq.transport.redis_py import close_idle, give_back, has_unread


class Cluster(ClusterCalls):
    """Runs calls on the nodes of a cluster, like `cluster.Cluster`; tasks listen to silent nodes and try lost ones.

    Args:
        client: provides slots and connections.
    """

    def __init__(self, client: RedisCluster) -> None:
        super().__init__(client)
        self._looker: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """End the tasks."""
        self._troubles.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def run(self, calls: Sequence[Command[Any]], whole: bool, repeat: bool, may_run_twice: bool) -> list[Any]:
        """Run calls; return the value of each reply, or the RedisError or `Unanswered` in its place. See `_trip`."""
        sent = await trampoline.run_async(self._trip(calls, whole, repeat, may_run_twice), operator.call)
        return [each.reply if isinstance(each.reply, Exception) else each.call.read(each.reply) for each in sent]

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def _new_node(self, host: str, port: int) -> ClusterNode:
        return ClusterNode(host, port, **self._client.nodes_manager.connection_kwargs)

    async def _look_until(self, end: float) -> None:
        """Read the slots, but wait for them only until `end`: each node that is asked may be silent."""
        if time.monotonic() >= self._look_at:
            looker = self._looker
            if looker is None or looker.done():
                looker = self._looker = self._start(self._look())
            await asyncio.wait((looker,), timeout=max(0.0, end - time.monotonic()))

    async def _look(self) -> None:
        """Read the slots from any node."""
        if time.monotonic() >= self._look_at:
            with self._looking():
                await self._read_slots()

    async def _read_slots(self) -> None:
        manager = self._client.nodes_manager
        for node in cluster_slots.to_ask(manager, self._troubles):
            with contextlib.suppress(exceptions.RedisError, OSError):
                reply = await node.execute_command("CLUSTER SLOTS")
                if self._note_slots(node, reply):
                    return
        await manager.initialize()

    async def _exchange(self, todo: Sequence[SentCommands], impatient: bool = False) -> None:
        """Send calls to their nodes, all nodes at the same time."""
        talks = [_NodeCalls(group[0].node, group) for group in self._grouped(todo, impatient)]
        if impatient:
            await self._hear([talk for talk in talks if talk.is_quick])
        async with asyncio.TaskGroup() as tasks:
            for talk in talks:
                if talk.is_to_begin:
                    tasks.create_task(talk.run())
        for talk in talks:
            if talk.trouble is not None:
                self._watch(talk.node, talk.trouble, talk.is_silent)

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
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._start(self._hear_late(task, talk, late, self._silent(talk.node), time.monotonic() - waited))

    async def _hear_late(
        self, task: asyncio.Task[None], talk: _NodeCalls, late: LateCalls, trouble: Trouble | None, began: float
    ) -> None:
        try:
            await asyncio.wait([task])
        finally:
            late.answer()
        trouble = self._heard_late(talk, trouble, began)
        if trouble is not None:
            await self._try_on(trouble, talk.node)

    def _try_beside(self, trouble: Trouble, node: Any) -> None:
        self._start(self._try_on(trouble, node))

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


class _NodeCalls(NodeCalls):
    """Calls to one node, on one connection.

    Attributes:
        trouble: why the node is not to be asked for now.
        is_to_begin: whether nothing has been sent.
    """

    trouble: Exception | None = None
    is_to_begin = True
    _is_heard = False  # a reply has come

    @property
    def has_begun(self) -> bool:
        """Whether the first bytes of a reply have come."""
        return self._is_heard or has_unread(self._connection)

    def leave(self) -> LateCalls:
        """Answer all calls with `Unanswered`, and return what gives their replies to the callers later."""
        late = LateCalls.of(self._group)
        self._group[:] = late.calls  # which `run` fills
        return late

    async def run(self) -> None:
        """Send the calls, and read the replies."""
        self.is_to_begin = False
        group = self._group
        try:
            self._connection = connection = self.node.acquire_connection()
            await connection.connect()
            await connection.send_packed_command(self._packed(), check_health=False)
            for place in range(len(group)):
                refusal = await _answer_to_asking(connection) if group[place].asked else None
                try:
                    reply = await self.node.parse_response(connection, group[place].words[0], **{NEVER_DECODE: True})
                except (exceptions.ResponseError, *ANSWERS) as error:
                    reply = error
                group[place].reply = refusal or reply
                self._is_heard = True
            self.is_whole = True
        except (exceptions.RedisError, OSError) as error:
            for each in [each for each in group if each.reply is UNREAD]:
                # A call that was never sent may go to another node, or be retried.
                is_away = each.is_unsent and isinstance(error, LOST) and not isinstance(error, ANSWERS)
                each.reply = exceptions.ClusterDownError(f"{self.node.name}: {error}") if is_away else error
                self.is_silent = not is_away and isinstance(error, exceptions.TimeoutError) and self.is_quick
                if is_away or self.is_silent:
                    self.trouble = error
        finally:
            if self._connection is not None:
                if not self.is_whole:
                    await self._connection.disconnect(nowait=True)
                give_back(self.node, self._connection)


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
    except (*ANSWERS, exceptions.ResponseError):
        return True
    except (exceptions.RedisError, OSError):
        return False
    finally:
        if connection is not None:
            if not is_whole:
                await connection.disconnect(nowait=True)
            give_back(node, connection)
    return True


async def _answer_to_asking(connection: Any) -> exceptions.RedisError | None:
    """Return why ASKING was refused; the reply to the call itself follows in any case."""
    try:
        await connection.read_response()
    except (exceptions.ResponseError, *ANSWERS) as error:
        return error
    return None
