"""Calls on a cluster: each goes to the master of its key, and follows the key if it moves.

redis-py provides the slots and the connections, but does not route the calls. Its pipeline asks a server for the keys
of each script, fails as a whole if one node is unavailable, and repeats calls that must not run twice.
"""

from __future__ import annotations

import contextlib
import copy
import operator
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from redis import exceptions
from redis.client import NEVER_DECODE
from redis.cluster import ClusterNode, RedisCluster

from delayq.protocol.command import Command
from delayq.transport import clients, cluster_slots, node_troubles, redis_py, trampoline
from delayq.transport.cluster_calls import ANSWERS, LOST, UNREAD, ClusterCalls, LateCalls, NodeCalls, SentCommands
from delayq.transport.node_troubles import Trouble

CLOSE_SECONDS = 1.0


class Cluster(ClusterCalls):
    """Runs calls on the nodes of a cluster; an unavailable node does not affect calls to others.

    A trip that is `IMPATIENT`, as it may serve several shards, neither repeats calls nor waits for a silent node: the
    calls to that node get `Unanswered` in place of a reply, and a thread listens for it.

    Args:
        client: provides slots and connections.
    """

    def __init__(self, client: RedisCluster) -> None:
        super().__init__(client)
        self._lock = threading.Lock()  # redis-py would let all threads read the slots, one after the other
        self._looker: threading.Thread | None = None  # reads the slots for patient calls
        self._threads: set[threading.Thread] = set()
        self._is_closed = False

    def close(self) -> None:
        """End what watches nodes in trouble, and what reads the slots."""
        self._is_closed = True
        self._troubles.clear()

    def wait_closed(self) -> None:
        """Wait a moment for the threads, whose connections the client has closed, to end."""
        until = time.monotonic() + CLOSE_SECONDS
        for thread in tuple(self._threads):
            thread.join(max(0.0, until - time.monotonic()))
        clients.close_idle(self._client)

    def run(self, calls: Sequence[Command[Any]], whole: bool, repeat: bool, may_run_twice: bool) -> list[Any]:
        """Run calls; return the reply to each, or the RedisError or `Unanswered` in its place. See `_trip`."""
        return [each.reply for each in trampoline.run(self._trip(calls, whole, repeat, may_run_twice), operator.call)]

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def _new_node(self, host: str, port: int) -> ClusterNode:
        return ClusterNode(host, port)

    def _look_until(self, end: float) -> None:
        """Read the slots, but wait for them only until `end`: each node that is asked may be silent."""
        if time.monotonic() >= self._look_at:
            looker = self._looker
            if looker is None or not looker.is_alive():
                looker = self._looker = self._start(self._look)
            if looker.is_alive():
                looker.join(max(0.0, end - time.monotonic()))

    def _look(self) -> None:
        """Read the slots from any node, once for all threads that wait for this."""
        with self._lock:
            if time.monotonic() >= self._look_at:
                with self._looking():
                    self._read_slots()

    def _read_slots(self) -> None:
        manager = self._client.nodes_manager
        for node in cluster_slots.to_ask(manager, self._troubles):
            if self._is_closed:  # a connection opened now would stay open
                return
            with contextlib.suppress(exceptions.RedisError, OSError):
                reply = self._client.get_redis_connection(node).execute_command("CLUSTER SLOTS")
                if self._note_slots(node, reply):
                    return
        if not self._is_closed:
            manager.initialize()

    def _exchange(self, todo: Iterable[SentCommands], impatient: bool = False) -> None:
        """Send calls to their nodes, all of them before waiting for the first reply."""
        talks: list[_NodeCalls] = []
        try:
            for group in self._grouped(todo, impatient):
                talk = self._begun(group)
                if talk is not None:
                    talks.append(talk)
                    talk.speak()
            if impatient:
                self._hear(talks)
            for talk in talks:
                if talk.is_to_be_heard:
                    talk.listen()
                if talk.is_silent:
                    self._watch(talk.node, exceptions.TimeoutError(node_troubles.SILENCE), is_silent=True)
        finally:
            for talk in talks:
                talk.close()

    def _begun(self, group: list[SentCommands]) -> _NodeCalls | None:
        """Return a connection to the calls' node; None if it refuses."""
        node = group[0].node
        try:
            return _NodeCalls(self._client.get_redis_connection(node), node, group)
        except LOST as error:
            is_answer = isinstance(error, ANSWERS)
            if not is_answer:
                self._watch(node, error)
            for each in group:
                each.reply = error if is_answer else exceptions.ClusterDownError(f"{node.name}: {error}")
        return None

    # -- nodes in trouble ------------------------------------------------------------------------------------------

    def _hear(self, talks: Sequence[_NodeCalls]) -> None:
        """Listen to nodes in the order of their replies; leave those that stay silent for longer than usual."""
        began, troubles = time.monotonic(), self._troubles
        waiting = {talk.fileno(): talk for talk in talks if talk.may_be_left}
        until = {fd: began + troubles.patience(talk.node.name) for fd, talk in waiting.items()}
        while waiting:
            for fd in redis_py.readable(waiting, min(until[fd] for fd in waiting) - time.monotonic()):
                talk = waiting.pop(fd)
                troubles.answered(talk.node.name, time.monotonic() - began)
                talk.listen()
            now = time.monotonic()
            ready = redis_py.readable(waiting, 0.0) if waiting else ()
            for fd in [fd for fd in waiting if until[fd] <= now and fd not in ready]:
                self._leave(waiting.pop(fd), now - began)

    def _leave(self, talk: _NodeCalls, waited: float) -> None:
        """Let a thread listen to a silent node."""
        left = talk.left()
        self._start(self._hear_late, left, self._silent(talk.node), time.monotonic() - waited)

    def _hear_late(self, talk: _NodeCalls, trouble: Trouble | None, began: float) -> None:
        try:
            talk.listen()
        finally:
            talk.answer_late()
            talk.close()
        trouble = self._heard_late(talk, trouble, began)
        if trouble is not None:
            self._try_on(trouble, talk.node)

    def _try_beside(self, trouble: Trouble, node: ClusterNode | None) -> None:
        self._start(self._try_on, trouble, node)

    def _try_on(self, trouble: Trouble, node: ClusterNode | None) -> None:
        nudged = threading.Event()
        trouble.nudge = nudged.set
        try:
            for pause in node_troubles.pauses():
                self._look()
                if (self._answers(node) if node else False) or not self._troubles.is_wanted(trouble):
                    return
                nudged.wait(pause)
                nudged.clear()
        finally:
            self._troubles.end(trouble)

    def _answers(self, node: ClusterNode) -> bool:
        """Whether a node answers on a new connection."""
        connection, pool = None, None
        try:
            pool = self._client.get_redis_connection(node).connection_pool
            pool.disconnect(inuse_connections=False)  # they may have broken unnoticed
            connection = pool.get_connection()
            connection.send_packed_command(connection.pack_command("PING"), check_health=False)
            connection.read_response()
        except (*ANSWERS, exceptions.ResponseError):
            return True
        except (exceptions.RedisError, OSError):
            if connection is not None:
                connection.disconnect()
            return False
        finally:
            if connection is not None and pool is not None:
                pool.release(connection)
        return True

    def _start(self, function: Callable[..., object], *args: Any) -> threading.Thread:
        def run() -> None:
            try:
                function(*args)
            finally:
                self._threads.discard(thread)

        thread = threading.Thread(target=run, name="delayq-cluster-node", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:  # Python 3.12.0 and 3.12.1 start no thread in exit handlers
            run()
        return thread


class _NodeCalls(NodeCalls):
    """Calls to one node, on one connection.

    Raises:
        redis.exceptions.ConnectionError, redis.exceptions.TimeoutError: no connection is available.
    """

    _late = LateCalls([], [])

    def __init__(self, server: Any, node: Any, group: list[SentCommands]) -> None:
        super().__init__(node, group)
        self._server = server
        self._connection = server.connection_pool.get_connection()

    @property
    def is_to_be_heard(self) -> bool:
        """Whether replies are still to be read here."""
        return self._connection is not None and all(each.reply is UNREAD for each in self._group)

    @property
    def may_be_left(self) -> bool:
        """Whether a trip need not wait for the replies."""
        return self.is_to_be_heard and self.fileno() >= 0 and self.is_quick

    def fileno(self) -> int:
        """Return the descriptor of the socket, or -1."""
        return redis_py.fileno(self._connection)

    def speak(self) -> None:
        try:
            self._connection.send_packed_command(self._packed())
        except LOST as error:
            self._lose(error)

    def listen(self) -> None:
        for each in self._group:
            if each.reply is not UNREAD:  # could not be sent
                return
        for each in self._group:
            refusal = None
            try:
                refusal = self._answer_to_asking() if each.asked else None
                each.reply = self._server.parse_response(self._connection, each.words[0], **{NEVER_DECODE: True})
            except ANSWERS as error:
                each.reply = error
            except LOST as error:
                self._lose(error)
                return
            except exceptions.RedisError as error:
                each.reply = error
            each.reply = refusal or each.reply
        self.is_whole = True

    def left(self) -> _NodeCalls:
        """Answer all calls with `Unanswered`, and return what reads their replies later."""
        late = copy.copy(self)
        late._late = LateCalls.of(self._group)  # noqa: SLF001
        late._group = late._late.calls  # noqa: SLF001
        self._connection = None
        return late

    def answer_late(self) -> None:
        """Keep the replies where the callers look for them."""
        self._late.answer()

    def _answer_to_asking(self) -> exceptions.RedisError | None:
        """Return why ASKING was refused; the reply to the call itself follows in any case."""
        try:
            self._connection.read_response()
        except (*ANSWERS, *LOST):
            raise
        except exceptions.RedisError as error:
            return error
        return None

    def close(self) -> None:
        """Give the connection back; one that may still hold a reply is not used again."""
        if self._connection is None:
            return
        if not self.is_whole:
            self._connection.disconnect()
        self._server.connection_pool.release(self._connection)

    def _lose(self, error: Exception) -> None:
        self.is_silent = isinstance(error, exceptions.TimeoutError) and self.is_quick
        for each in self._group:
            if each.reply is UNREAD:
                each.reply = error
