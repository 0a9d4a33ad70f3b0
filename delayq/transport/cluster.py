"""Calls on a cluster: each goes to the master of its key, and follows the key if it moves.

redis-py provides the slots and the connections, but does not route the calls. Its pipeline asks a server for the keys
of each script, fails as a whole if one node is unavailable, and repeats calls that must not run twice.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from redis import exceptions
from redis.client import NEVER_DECODE
from redis.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot

from delayq.protocol.command import Command
from delayq.transport.clients import HURRIES

PAUSES = (0.1, 0.2, 0.4, 0.6)  # seconds: enough for short trouble, and short enough to report an outage soon
MOST_ROUNDS = 16  # the most redirections of a call between nodes
LOOK_SECONDS = 0.2  # between two reads of the slots, if calls fail in a row
MOST_LOOK_SECONDS = 2.0  # the same if the reads themselves take long
AWAY_SECONDS = 0.5
FROZEN_SECONDS = 1.0  # only the last of the PAUSES ends later, so a silent node is waited for twice

_UNREAD = object()
_LOST = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
_ANSWERS = (  # ConnectionErrors in redis-py, but raised by a responding server or by the pool
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.BusyLoadingError,
    exceptions.MaxConnectionsError,
)
_REFUSALS = (exceptions.ClusterDownError, exceptions.TryAgainError, exceptions.BusyLoadingError)


class Cluster:
    """Runs calls on the nodes of a cluster; an unavailable node does not affect calls to others.

    Args:
        client: provides slots and connections.
    """

    def __init__(self, client: RedisCluster) -> None:
        self._client: Any = client
        self._looking = threading.Lock()  # redis-py would let all threads read the slots, one after the other
        self._look_at = 0.0
        self._outage: Exception | None = None  # why no node answered the last read of the slots
        self._away: dict[str, float] = {}  # until when a node that refused a connection is not tried again

    def run(self, calls: Sequence[Command[Any]], whole: bool, repeat: bool) -> list[Any]:
        """Run calls; return the reply to each, or the RedisError in its place.

        Args:
            repeat: for a second or two, retry calls that were refused, or that were lost and may run twice.

        Raises:
            redis.exceptions.ConnectionError: no node answers.
        """
        sent = [SentCommands(call, whole) for call in calls]
        todo = sent
        pauses = iter(PAUSES if repeat else ())
        for _ in range(MOST_ROUNDS):
            self._exchange(todo)
            failed = [each for each in sent if isinstance(each.reply, Exception)]
            if any(each.is_stranded for each in failed):
                self._look()
            again = {each for each in failed if self._is_sent_on(each)}
            if not again:
                again = {each for each in failed if each.is_refused or (each.is_lost and each.call.repeats)}
                pause = next(pauses, None) if again and not HURRIES.get()() else None
                if pause is None:
                    break
                time.sleep(pause)
            slots = {each.slot for each in again}
            todo = [each for each in sent if each in again or (each.call.goes_along and each.slot in slots)]
        if self._outage is not None and all(each.is_stranded for each in sent):
            raise self._outage
        return [each.reply for each in sent]

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

    def _known(self, host: str, port: int) -> ClusterNode:
        """Return a node by its address, even if it has no slots yet."""
        nodes: dict[str, ClusterNode] = self._client.nodes_manager.nodes_cache
        node = ClusterNode(host, port)
        return nodes.setdefault(node.name, node)

    def _master(self, slot: int) -> ClusterNode | None:
        with contextlib.suppress(exceptions.SlotNotCoveredError):
            node: ClusterNode = self._client.nodes_manager.get_node_from_slot(slot)
            return node
        return None

    def _look(self) -> None:
        """Read the slots from any node, once for all threads that wait for this."""
        with self._looking:
            began = time.monotonic()
            if began < self._look_at:
                return
            try:
                self._client.nodes_manager.initialize()
                self._outage = None
            except (exceptions.RedisError, exceptions.RedisClusterException, IndexError) as error:  # none, or no master
                self._outage = exceptions.ConnectionError(str(error))
            now = time.monotonic()
            self._look_at = now + min(max(LOOK_SECONDS, now - began), MOST_LOOK_SECONDS)

    def _exchange(self, todo: Iterable[SentCommands]) -> None:
        """Send calls to their nodes, all of them before waiting for the first reply."""
        groups: dict[str, list[SentCommands]] = {}
        for each in todo:
            each.reply, each.is_unsent = _UNREAD, True
            each.node = each.asked or self._master(each.slot)
            if each.node is None:
                each.reply = exceptions.ClusterDownError(f"no node has slot {each.slot}")
            else:
                groups.setdefault(each.node.name, []).append(each)
        talks: list[_NodeCalls] = []
        try:
            for group in groups.values():
                talk = self._begun(group)
                if talk is not None:
                    talks.append(talk)
                    talk.speak()
            for talk in talks:
                talk.listen()
                if talk.is_silent:
                    self._away[talk.node_name] = time.monotonic() + FROZEN_SECONDS
        finally:
            for talk in talks:
                talk.close()

    def _begun(self, group: list[SentCommands]) -> _NodeCalls | None:
        """Return a connection to the calls' node; None if it refuses."""
        node = group[0].node
        began = time.monotonic()
        error: Exception = exceptions.ConnectionError("it was unavailable a moment ago")
        if began >= self._away.get(node.name, 0.0):
            try:
                talk = _NodeCalls(self._client.get_redis_connection(node), node.name, group)
            except _LOST as failure:
                error = failure
                if not isinstance(error, _ANSWERS):
                    now = time.monotonic()
                    self._away[node.name] = now + max(AWAY_SECONDS, now - began)
            else:
                self._away.pop(node.name, None)
                return talk
        for each in group:
            each.reply = error if isinstance(error, _ANSWERS) else exceptions.ClusterDownError(f"{node.name}: {error}")
        return None


class SentCommands:
    """A call in progress.

    Attributes:
        node: the node that it was sent to.
        asked: the node that it goes to by an ASK redirection, while its slot moves there.
        is_unsent: whether it is certain that it has not run.
    """

    def __init__(self, call: Command[Any], whole: bool) -> None:
        self.call = call
        self.words = call.words(whole)
        self.slot = key_slot(call.key.encode())
        self.node: Any = None
        self.asked: ClusterNode | None = None
        self.reply: Any = _UNREAD
        self.is_unsent = True

    @property
    def is_refused(self) -> bool:
        return isinstance(self.reply, _REFUSALS)

    @property
    def is_lost(self) -> bool:
        return isinstance(self.reply, _LOST) and not isinstance(self.reply, _ANSWERS)

    @property
    def is_stranded(self) -> bool:
        """Whether its slot may now have another master."""
        return self.is_lost or isinstance(self.reply, exceptions.ClusterDownError)


class _NodeCalls:
    """Calls to one node, on one connection.

    Attributes:
        is_silent: whether the node accepted the connection and did not answer in time.

    Raises:
        redis.exceptions.ConnectionError, redis.exceptions.TimeoutError: no connection is available.
    """

    def __init__(self, server: Any, node_name: str, group: list[SentCommands]) -> None:
        self.node_name = node_name
        self.is_silent = False
        self._server = server
        self._group = group
        self._connection = server.connection_pool.get_connection()
        self._is_whole = False  # every reply has been read

    def speak(self) -> None:
        commands: list[Any] = []
        for each in self._group:
            commands += [("ASKING",), each.words] if each.asked else [each.words]
            each.is_unsent = False
        try:
            self._connection.send_packed_command(self._connection.pack_commands(commands))
        except _LOST as error:
            self._lose(error)

    def listen(self) -> None:
        for each in self._group:
            if each.reply is not _UNREAD:  # could not be sent
                return
        for each in self._group:
            try:
                refusal = self._answer_to_asking() if each.asked else None
                each.reply = self._server.parse_response(self._connection, each.words[0], **{NEVER_DECODE: True})
            except _ANSWERS as error:
                each.reply = error
            except _LOST as error:
                self._lose(error)
                return
            except exceptions.RedisError as error:
                each.reply = error
            each.reply = refusal or each.reply
        self._is_whole = True

    def _answer_to_asking(self) -> exceptions.RedisError | None:
        """Return why ASKING was refused; the reply to the call itself follows in any case."""
        try:
            self._connection.read_response()
        except (*_ANSWERS, *_LOST):
            raise
        except exceptions.RedisError as error:
            return error
        return None

    def close(self) -> None:
        """Give the connection back; one that may still hold a reply is not used again."""
        if not self._is_whole:
            self._connection.disconnect()
        self._server.connection_pool.release(self._connection)

    def _lose(self, error: Exception) -> None:
        # A WAIT may take longer than the time limit, which does not mean that the node is frozen.
        self.is_silent = isinstance(error, exceptions.TimeoutError) and not any(
            each.words[0] == "WAIT" for each in self._group
        )
        for each in self._group:
            if each.reply is _UNREAD:
                each.reply = error
