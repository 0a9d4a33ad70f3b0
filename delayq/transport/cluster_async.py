"""Calls on a cluster, like `cluster`: each goes to the master of its key, and follows the key if it moves.

redis.asyncio provides the slots and the connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any

from redis import exceptions
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.client import NEVER_DECODE

from delayq.protocol.command import Command
from delayq.transport.clients import HURRIES
from delayq.transport.cluster import _ANSWERS, LOOK_SECONDS, MOST_ROUNDS, PAUSES, SentCommands
from delayq.transport.redis_py import give_back

_LOST = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)


class Cluster:
    """Runs calls on the nodes of a cluster; an unavailable node does not affect calls to others.

    Args:
        client: provides slots and connections.
    """

    def __init__(self, client: RedisCluster) -> None:
        self._client: Any = client
        self._look_at = 0.0
        self._outage: Exception | None = None

    async def run(self, calls: Sequence[Command[Any]], whole: bool, repeat: bool) -> list[Any]:
        """Run calls; return the value read from each reply, or the RedisError in its place.

        Args:
            repeat: for a second or two, retry calls that were refused, or that were lost and may run twice.

        Raises:
            redis.exceptions.ConnectionError: no node answers.
        """
        todo = sent = [SentCommands(call, whole) for call in calls]
        pauses = iter(PAUSES if repeat else ())
        for _ in range(MOST_ROUNDS):
            await self._exchange(todo)
            failed = [each for each in sent if isinstance(each.reply, Exception)]
            if any(each.is_stranded for each in failed):
                await self._look()
            again = {each for each in failed if self._is_sent_on(each)}
            if not again:
                again = {each for each in failed if each.is_refused or (each.is_lost and each.call.repeats)}
                pause = next(pauses, None) if again and not HURRIES.get()() else None
                if pause is None:
                    break
                await asyncio.sleep(pause)
            slots = {each.slot for each in again}
            todo = [each for each in sent if each in again or (each.call.goes_along and each.slot in slots)]
        if self._outage is not None and all(each.is_stranded for each in sent):
            raise self._outage
        return [each.reply if isinstance(each.reply, Exception) else each.call.read(each.reply) for each in sent]

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

    async def _look(self) -> None:
        """Read the slots from any node."""
        if time.monotonic() < self._look_at:
            return
        try:
            await self._client.nodes_manager.initialize()
            self._outage = None
        except (exceptions.RedisError, exceptions.RedisClusterException, IndexError) as error:  # no node, or no master
            self._outage = exceptions.ConnectionError(str(error))
        self._look_at = time.monotonic() + LOOK_SECONDS

    async def _exchange(self, todo: Sequence[SentCommands]) -> None:
        """Send calls to their nodes, all nodes at the same time."""
        groups: dict[str, list[SentCommands]] = {}
        for each in todo:
            each.is_unsent = True
            each.node = each.asked or self._master(each.slot)
            if each.node is None:
                each.reply = exceptions.ClusterDownError(f"no node has slot {each.slot}")
            else:
                groups.setdefault(each.node.name, []).append(each)
        async with asyncio.TaskGroup() as tasks:
            for group in groups.values():
                tasks.create_task(_talk(group))


async def _talk(group: list[SentCommands]) -> None:
    """Send calls to their node on one connection, and read the replies."""
    node = group[0].node
    connection, unread, is_whole = None, list(group), False
    try:
        connection = node.acquire_connection()
        await connection.connect()
        commands: list[Any] = []
        for each in group:
            commands += [("ASKING",), each.words] if each.asked else [each.words]
            each.is_unsent = False
        await connection.send_packed_command(connection.pack_commands(commands))
        for each in group:
            refusal = await _answer_to_asking(connection) if each.asked else None
            try:
                reply = await node.parse_response(connection, each.words[0], **{NEVER_DECODE: True})
            except exceptions.ResponseError as error:
                reply = error
            each.reply = refusal or reply
            unread.remove(each)
        is_whole = True
    except (exceptions.RedisError, OSError) as error:
        for each in unread:
            # A call that was never sent may go to another node, or be retried.
            is_away = each.is_unsent and isinstance(error, _LOST) and not isinstance(error, _ANSWERS)
            each.reply = exceptions.ClusterDownError(f"{node.name}: {error}") if is_away else error
    finally:
        if connection is not None:
            if not is_whole:
                await connection.disconnect(nowait=True)
            give_back(node, connection)


async def _answer_to_asking(connection: Any) -> exceptions.ResponseError | None:
    """Return why ASKING was refused; the reply to the call itself follows in any case."""
    try:
        await connection.read_response()
    except exceptions.ResponseError as error:
        return error
    return None
