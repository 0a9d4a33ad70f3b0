"""Calls on a cluster: each goes to the master of its key, and follows the key if it moves.

redis-py provides the slots and the connections, but does not route the calls. Its pipeline asks a server for the keys
of each script, fails as a whole if one node is unavailable, and repeats calls that must not run twice.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from redis import exceptions
from redis.client import NEVER_DECODE
from redis.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot

from delayq.errors import ServerUnreachable
from delayq.protocol.command import Command
from delayq.protocol.late_reply import Silent, Unanswered
from delayq.transport import clients, cluster_slots, node_troubles, redis_py
from delayq.transport.clients import HURRIES, IMPATIENT
from delayq.transport.node_troubles import LASTING_SECONDS, NEW_PATIENCE, NodeTroubles, Trouble
from delayq.transport.server_check import translate

PAUSES = (0.1, 0.2, 0.4, 0.6)  # seconds: enough for short trouble, and short enough to report an outage soon
MOST_ROUNDS = 16  # the most redirections of a call between nodes
LOOK_SECONDS = 0.2  # between two reads of the slots, if calls fail in a row
MOST_LOOK_SECONDS = 2.0  # the same if the reads themselves take long
CLOSE_SECONDS = 1.0
NO_NODE = ""  # the trouble of slots that have no master

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

    A trip that is `IMPATIENT`, as it may serve several shards, neither repeats calls nor waits for a silent node: the
    calls to that node get `Unanswered` in place of a reply, and a thread listens for it.

    Args:
        client: provides slots and connections.
    """

    def __init__(self, client: RedisCluster) -> None:
        self._client: Any = client
        self._looking = threading.Lock()  # redis-py would let all threads read the slots, one after the other
        self._look_at = 0.0
        self._slots: Any = None  # the last reply to CLUSTER SLOTS
        self._looker: threading.Thread | None = None  # reads the slots for patient calls
        self._seconds = clients.seconds_on_cluster(client)
        self._outage: Exception | None = None  # why no node answered the last read of the slots
        self._troubles = NodeTroubles()
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

    def is_away(self, key: str) -> bool:
        """Whether the node of a key is known to be unavailable."""
        master = self._master(key_slot(key.encode()))
        return master is None or self._troubles.of(master.name) is not None

    def run(self, calls: Sequence[Command[Any]], whole: bool, repeat: bool) -> list[Any]:
        """Run calls; return the reply to each, or the RedisError or `Unanswered` in its place.

        Args:
            repeat: for a second or two, but not after `retry_timeout`, retry calls that were refused, or that were
                lost and may run twice.

        Raises:
            redis.exceptions.ConnectionError: no node answers.
        """
        sent = [SentCommands(call, whole) for call in calls]
        todo, impatient, end = sent, IMPATIENT.get(), time.monotonic() + self._seconds
        pauses: Iterator[float] | None = None if repeat and not impatient else iter(())
        for _ in range(MOST_ROUNDS):
            self._exchange(todo, impatient)
            failed = [each for each in sent if isinstance(each.reply, Exception)]
            if any(each.is_stranded for each in failed):
                self._look_beside() if impatient else self._look_until(end)
            again = {each for each in failed if self._is_sent_on(each)}
            if not again:
                again = {each for each in failed if each.is_refused or (each.is_lost and each.call.repeats)}
                pauses = self._pauses(again) if pauses is None else pauses
                is_over = HURRIES.get()() or time.monotonic() >= end
                pause = next(pauses, None) if again and not is_over else None
                if pause is None:
                    break
                time.sleep(pause)
            slots = {each.slot for each in again}
            todo = [each for each in sent if each in again or (each.call.goes_along and each.slot in slots)]
        if self._outage is not None and all(each.is_stranded for each in sent):
            raise self._outage
        return [each.reply for each in sent]

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

    def _look_until(self, end: float) -> None:
        """Read the slots, but wait for them only until `end`: each node that is asked may be silent."""
        if time.monotonic() >= self._look_at:
            looker = self._looker
            if looker is None or not looker.is_alive():
                looker = self._looker = self._start(self._look)
            looker.join(max(0.0, end - time.monotonic()))

    def _look(self) -> None:
        """Read the slots from any node, once for all threads that wait for this."""
        with self._looking:
            began = time.monotonic()
            if began < self._look_at:
                return
            try:
                self._read_slots()
                self._outage = None
            except (exceptions.RedisError, exceptions.RedisClusterException, IndexError) as error:  # none, or no master
                self._outage = exceptions.ConnectionError(str(error))
            now = time.monotonic()
            self._look_at = now + min(max(LOOK_SECONDS, now - began), MOST_LOOK_SECONDS)

    def _read_slots(self) -> None:
        manager = self._client.nodes_manager
        for node in cluster_slots.to_ask(manager, self._troubles):
            if self._is_closed:  # a connection opened now would stay open
                return
            with contextlib.suppress(exceptions.RedisError, OSError):
                reply = self._client.get_redis_connection(node).execute_command("CLUSTER SLOTS")
                if reply and reply != self._slots:
                    cluster_slots.apply(manager, self._known, node, reply)
                    self._slots = reply
                if reply:
                    return
        if not self._is_closed:
            manager.initialize()

    def _exchange(self, todo: Iterable[SentCommands], impatient: bool = False) -> None:
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
                talk = self._begun(group, impatient)
                if talk is not None:
                    talks.append(talk)
                    talk.speak()
            if impatient:
                self._hear(talks)
            for talk in talks:
                if talk.is_to_be_heard:
                    talk.listen()
                if talk.is_silent:
                    self._watch(talk.node, exceptions.TimeoutError(node_troubles.SILENCE), LASTING_SECONDS)
        finally:
            for talk in talks:
                talk.close()

    def _begun(self, group: list[SentCommands], impatient: bool) -> _NodeCalls | None:
        """Return a connection to the calls' node; None if it refuses."""
        node = group[0].node
        trouble = self._troubles.of(node.name)
        if trouble is not None and trouble.is_silent and impatient:
            for each in group:
                each.reply = Silent(node.name)
            return None
        error = None if trouble is None else trouble.error
        if error is None:
            try:
                return _NodeCalls(self._client.get_redis_connection(node), node, group)
            except _LOST as failure:
                error = failure
                if not isinstance(error, _ANSWERS):
                    self._watch(node, error)
        for each in group:
            each.reply = error if isinstance(error, _ANSWERS) else exceptions.ClusterDownError(f"{node.name}: {error}")
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
        trouble = self._troubles.begin(talk.node.name, exceptions.TimeoutError(node_troubles.SILENCE))
        if trouble is not None:
            trouble.is_silent = True
        self._start(self._hear_late, left, trouble, time.monotonic() - waited)

    def _hear_late(self, talk: _NodeCalls, trouble: Trouble | None, began: float) -> None:
        try:
            talk.listen()
        finally:
            talk.answer_late()
            talk.close()
        if talk.is_whole:
            self._troubles.answered(talk.node.name, min(time.monotonic() - began, NEW_PATIENCE))
            if trouble is not None:
                self._troubles.end(trouble)
        elif trouble is not None:
            trouble.is_silent = False
            self._try_on(trouble, talk.node)

    def _watch(self, node: ClusterNode, error: Exception, waited: float = 0.0) -> None:
        """Let a thread try a node until it answers."""
        trouble = self._troubles.begin(node.name, error, waited)
        if trouble is not None:
            self._start(self._try_on, trouble, node)

    def _look_beside(self) -> None:
        """Let a thread look for new masters, for as long as calls fail."""
        if self._troubles.of(NO_NODE) is None:
            trouble = self._troubles.begin(NO_NODE, exceptions.ClusterDownError("a slot has no master"))
            if trouble is not None:
                self._start(self._try_on, trouble, None)

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
        except (*_ANSWERS, exceptions.ResponseError):
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
        thread.start()
        return thread


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

    def result(self) -> Any:
        """Return what the operation gets for its reply."""
        return translate(self.reply) if isinstance(self.reply, Exception) else self.call.read(self.reply)

    def late_result(self) -> Any:
        """Return the same, after the connection has ended; never raises, since the caller waits for it."""
        try:
            return ServerUnreachable("the reply is lost") if self.reply is _UNREAD else self.result()
        except Exception as error:  # noqa: BLE001  # a reply that cannot be read
            return ServerUnreachable(f"the reply cannot be read: {error}")


class _NodeCalls:
    """Calls to one node, on one connection.

    Attributes:
        is_silent: whether the node accepted the connection and did not answer in time.
        is_whole: whether every reply has been read.

    Raises:
        redis.exceptions.ConnectionError, redis.exceptions.TimeoutError: no connection is available.
    """

    def __init__(self, server: Any, node: Any, group: list[SentCommands]) -> None:
        self.node = node
        self.is_silent = self.is_whole = False
        self._server = server
        self._group = group
        self._late: list[Unanswered] = []
        self._connection = server.connection_pool.get_connection()

    @property
    def is_to_be_heard(self) -> bool:
        """Whether replies are still to be read here."""
        return self._connection is not None and all(each.reply is _UNREAD for each in self._group)

    @property
    def may_be_left(self) -> bool:
        """Whether a trip need not wait for the replies. A WAIT takes as long as its replicas."""
        return self.is_to_be_heard and self.fileno() >= 0 and all(each.words[0] != "WAIT" for each in self._group)

    def fileno(self) -> int:
        """Return the descriptor of the socket, or -1."""
        return redis_py.fileno(self._connection)

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
        self.is_whole = True

    def left(self) -> _NodeCalls:
        """Answer all calls with `Unanswered`, and return what reads their replies later."""
        late = copy.copy(self)
        late._group = [copy.copy(each) for each in self._group]  # noqa: SLF001
        late._late = [Unanswered(self.node.name) for _ in self._group]  # noqa: SLF001
        for each, unanswered in zip(self._group, late._late, strict=True):  # noqa: SLF001
            each.reply = unanswered
        self._connection = None
        return late

    def answer_late(self) -> None:
        """Keep the replies where the callers look for them."""
        for each, unanswered in zip(self._group, self._late, strict=True):
            unanswered.answer(each.late_result())

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
        if self._connection is None:
            return
        if not self.is_whole:
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
