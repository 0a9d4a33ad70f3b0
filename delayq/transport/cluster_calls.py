"""Calls on a cluster, for both APIs: to which nodes they go, what their replies mean, and what happens next."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from redis import exceptions
from redis.crc import key_slot

from delayq.errors import ServerUnreachable
from delayq.protocol.command import Command
from delayq.protocol.late_reply import Silent, Unanswered
from delayq.transport import cluster_slots, node_troubles
from delayq.transport.clients import HURRIES, IMPATIENT, seconds_on_cluster
from delayq.transport.node_troubles import LASTING_SECONDS, NEW_PATIENCE, NodeTroubles, Trouble
from delayq.transport.server_check import translate

PAUSES = (0.1, 0.2, 0.4, 0.6)  # seconds: enough for short trouble, and short enough to report an outage soon
MOST_ROUNDS = 16  # the most redirections of a call between nodes
LOOK_SECONDS = 0.2  # between two reads of the slots, if calls fail in a row
MOST_LOOK_SECONDS = 2.0  # the same if the reads themselves take long
NO_NODE = ""  # the trouble of slots that have no master

UNREAD = object()
LOST = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
ANSWERS = (  # ConnectionErrors in redis-py, but raised by a responding server or by the pool
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.BusyLoadingError,
    exceptions.MaxConnectionsError,
)
_REFUSALS = (exceptions.ClusterDownError, exceptions.TryAgainError, exceptions.BusyLoadingError)


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
        self.asked: Any = None
        self.reply: Any = UNREAD
        self.is_unsent = True

    @property
    def is_refused(self) -> bool:
        return isinstance(self.reply, _REFUSALS)

    @property
    def is_lost(self) -> bool:
        return isinstance(self.reply, LOST) and not isinstance(self.reply, ANSWERS)

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
            return ServerUnreachable("the reply is lost") if self.reply is UNREAD else self.result()
        except Exception as error:  # noqa: BLE001  # a reply that cannot be read
            return ServerUnreachable(f"the reply cannot be read: {error}")


class LateCalls(NamedTuple):
    """Calls whose trip has ended without their replies, and where the callers look for these."""

    calls: list[SentCommands]
    unanswered: list[Unanswered]

    @staticmethod
    def of(group: Sequence[SentCommands]) -> LateCalls:
        """Answer all calls with `Unanswered`, and return copies, which get the replies."""
        late = LateCalls([copy.copy(each) for each in group], [Unanswered(each.node.name) for each in group])
        for each, unanswered in zip(group, late.unanswered, strict=True):
            each.reply = unanswered
        return late

    def answer(self) -> None:
        """Keep the replies where the callers look for them."""
        for each, unanswered in zip(self.calls, self.unanswered, strict=True):
            unanswered.answer(each.late_result())


class NodeCalls:
    """Calls to one node, on one connection.

    Attributes:
        is_silent: whether the node accepted the connection and did not answer in time.
        is_whole: whether every reply has been read.
    """

    def __init__(self, node: Any, group: list[SentCommands]) -> None:
        self.node = node
        self.is_silent = self.is_whole = False
        self._group = group
        self._connection: Any = None

    @property
    def is_quick(self) -> bool:
        """Whether a late reply means that the node is frozen. A WAIT takes as long as its replicas."""
        return all(each.words[0] != "WAIT" for each in self._group)

    def _packed(self) -> Any:
        """Return the calls as they are sent, which is done next."""
        commands: list[Any] = []
        for each in self._group:
            commands += [("ASKING",), each.words] if each.asked else [each.words]
            each.is_unsent = False
        return self._connection.pack_commands(commands)


class ClusterCalls:
    """What is known about a cluster, and the steps of a trip.

    Args:
        client: provides slots and connections.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._look_at = 0.0
        self._slots: Any = None  # the last reply to CLUSTER SLOTS
        self._seconds = seconds_on_cluster(client)
        self._outage: Exception | None = None  # why no node answered the last read of the slots
        self._troubles = NodeTroubles()

    _exchange: Callable[..., Any]  # send calls to their nodes, and set their replies
    _look_until: Callable[..., Any]  # read the slots, but wait for them only until then
    _pause: Callable[..., Any]  # wait for some seconds
    _try_beside: Callable[..., None]  # let a thread or task try a node until it answers

    def is_away(self, key: str) -> bool:
        """Whether the node of a key is known to be unavailable."""
        master = self._master(key_slot(key.encode()))
        return master is None or self._troubles.of(master.name) is not None

    def lose(self, key: str, error: Exception) -> None:
        """Let the node of a key, which has not answered in time, be tried until it answers."""
        master = self._master(key_slot(key.encode()))
        if master is not None:
            self._watch(master, error, is_silent=True)

    def _trip(
        self, calls: Sequence[Command[Any]], whole: bool, repeat: bool, may_run_twice: bool
    ) -> Generator[partial[Any], Any, list[SentCommands]]:
        """Yield the steps of a trip; return the calls with their replies.

        Args:
            repeat: for a second or two, but not after `retry_timeout`, retry calls that were never sent.
            may_run_twice: also retry calls that were refused or lost, although later ones may have run.

        Raises:
            redis.exceptions.ConnectionError: no node answers.
        """
        todo = sent = [SentCommands(call, whole) for call in calls]
        impatient, end = IMPATIENT.get(), time.monotonic() + self._seconds
        pauses: Iterator[float] | None = None if repeat and not impatient else iter(())
        for _ in range(MOST_ROUNDS):
            yield partial(self._exchange, todo, impatient)
            failed = [each for each in sent if isinstance(each.reply, Exception)]
            if not failed:
                return sent
            if any(each.is_stranded for each in failed):
                if impatient:
                    self._look_beside()
                else:
                    yield partial(self._look_until, end)
            again = {each for each in failed if self._is_sent_on(each)}
            if not again:
                again = {each for each in failed if each.is_refused and (each.is_unsent or may_run_twice)}
                if may_run_twice:
                    again |= {each for each in failed if each.is_lost}
                pauses = self._pauses(again) if pauses is None else pauses
                is_over = HURRIES.get()() or time.monotonic() >= end
                pause = next(pauses, None) if again and not is_over else None
                if pause is None:
                    break
                yield partial(self._pause, pause)
            slots = {each.slot for each in again}
            todo = [each for each in sent if each in again or (each.call.goes_along and each.slot in slots)]
        if self._outage is not None and all(each.is_stranded for each in sent):
            raise self._outage
        return sent

    def _grouped(self, todo: Iterable[SentCommands], impatient: bool) -> list[list[SentCommands]]:
        """Return the calls to each node, except for nodes in trouble: their calls fail at once."""
        groups: dict[str, list[SentCommands]] = {}
        for each in todo:
            each.reply, each.is_unsent = UNREAD, True
            each.node = each.asked or self._master(each.slot)
            if each.node is None:
                each.reply = exceptions.ClusterDownError(f"no node has slot {each.slot}")
            else:
                groups.setdefault(each.node.name, []).append(each)
        return [group for node, group in groups.items() if not self._fails(node, group, impatient)]

    def _fails(self, node: str, group: Iterable[SentCommands], impatient: bool) -> bool:
        trouble = self._troubles.of(node)
        if trouble is None:
            return False
        for each in group:
            is_silent = trouble.is_silent and impatient
            each.reply = Silent(node) if is_silent else exceptions.ClusterDownError(f"{node}: {trouble.error}")
        return True

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
        node = self._new_node(host, port)
        return self._client.nodes_manager.nodes_cache.setdefault(node.name, node)

    def _new_node(self, host: str, port: int) -> Any:
        raise NotImplementedError

    def _master(self, slot: int) -> Any:
        with contextlib.suppress(exceptions.SlotNotCoveredError, KeyError):
            return self._client.nodes_manager.get_node_from_slot(slot)
        return None

    # -- the slots -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _looking(self) -> Iterator[None]:
        """Note whether a read of the slots succeeds, and when to read them again."""
        began = time.monotonic()
        try:
            yield
            self._outage = None
        except (exceptions.RedisError, exceptions.RedisClusterException, IndexError) as error:  # none, or no master
            self._outage = exceptions.ConnectionError(str(error))
        now = time.monotonic()
        self._look_at = now + min(max(LOOK_SECONDS, now - began), MOST_LOOK_SECONDS)

    def _note_slots(self, node: Any, reply: Any) -> bool:
        """Use a node's reply to CLUSTER SLOTS; return whether it has any."""
        if reply and reply != self._slots:
            cluster_slots.apply(self._client.nodes_manager, self._known, node, reply)
            self._slots = reply
        return bool(reply)

    # -- nodes in trouble ------------------------------------------------------------------------------------------

    def _watch(self, node: Any, error: Exception, is_silent: bool = False) -> None:
        """Let a node be tried until it answers; `is_silent` if a call has waited for it in vain."""
        trouble = self._troubles.begin(node.name, error, LASTING_SECONDS if is_silent else 0.0)
        if trouble is not None:
            self._try_beside(trouble, node)

    def _look_beside(self) -> None:
        """Let new masters be looked for, for as long as calls fail."""
        if self._troubles.of(NO_NODE) is None:
            trouble = self._troubles.begin(NO_NODE, exceptions.ClusterDownError("a slot has no master"))
            if trouble is not None:
                self._try_beside(trouble, None)

    def _silent(self, node: Any) -> Trouble | None:
        """Note that nobody listens to a node now; return the trouble if it is new."""
        trouble = self._troubles.begin(node.name, exceptions.TimeoutError(node_troubles.SILENCE))
        if trouble is not None:
            trouble.is_silent = True
        return trouble

    def _heard_late(self, talk: NodeCalls, trouble: Trouble | None, began: float) -> Trouble | None:
        """Note how a late talk has ended; return the trouble if the node must be tried now."""
        if talk.is_whole:
            self._troubles.answered(talk.node.name, min(time.monotonic() - began, NEW_PATIENCE))
            if trouble is not None:
                self._troubles.end(trouble)
            return None
        if trouble is not None:
            trouble.is_silent = False
        return trouble
