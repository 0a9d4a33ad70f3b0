"""How far the sending of a file has come, noted by the queue itself.

A note is written in the transaction of the messages that it tells of. So it is right at every instant: whoever is
killed in the middle, and however soon the messages were handled, a rerun that begins behind the note doubles nothing.
Ids made from line numbers could not promise that: an id is free again once its message is acked.

    <prefix>:{<queue>}:file:<digest>    hash: run, line, digest, done; of each shard one; gone after KEPT_SECONDS
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from redis import Redis
from redis.client import NEVER_DECODE, Pipeline
from redis.cluster import RedisCluster
from redis.exceptions import RedisError, WatchError

from delayq.errors import DelayqError, ServerUnreachable
from delayq.model.delivery import Outgoing, SentMessage
from delayq.operations import send
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, computed
from delayq.queue import Queue
from delayq.transport.executor import Executor
from delayq.transport.server_check import translate

KEPT_SECONDS = 30 * 86400
SENDING = ("send", "send_unique", "replace")


class Note(NamedTuple):
    """How far one shard is.

    Attributes:
        run: marks the ids of one sending of the file.
        line: the lines up to this one are in.
        digest: of the file up to there.
        done: whether the file ended there.
    """

    run: str
    line: int = 0
    digest: str = ""
    done: bool = False

    def fields(self) -> dict[Any, Any]:
        """Return the note as Redis holds it."""
        return {"run": self.run, "line": str(self.line), "digest": self.digest, "done": "1" if self.done else ""}


class _Transaction(Pipeline):
    """As redis-py's, but that one which breaks off gives its connection up, instead of sending UNWATCH on it.

    A sender needs no right to UNWATCH: its refusal would hide the error, and redis-py would keep the connection, which
    the garbage collector would open anew. Besides, a MULTI whose EXEC was refused is open on it still.
    """

    def __init__(self, client: Redis) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, transaction=True, shard_hint=None)

    def reset(self) -> None:  # type: ignore[override]  # of the command RESET, which no pipeline has
        """Give the connection back."""
        if self.watching and self.connection is not None:
            self.connection.disconnect()
        self.watching = False
        super().reset()


class CheckpointExecutor(Executor):
    """Runs a queue's calls as its own connection does, and writes a note with each send.

    Args:
        queue: where the messages go.
        digest: names the file.

    Attributes:
        notes: what is noted, a shard each.
        known_run: that of the notes, or None when there are none.
        upcoming: the note to be written with the next sends, one of each shard.
    """

    def __init__(self, queue: Queue, digest: str) -> None:
        super().__init__(lambda: queue._executor.client)  # noqa: SLF001  # a note and its messages are one transaction
        self._queue = queue
        shards = queue.execute(QueueContext.opened)
        self._keys = [_base(scripts.keys.pending) + f"file:{digest}" for scripts in shards]
        self.notes: list[Note | None] = [self._read(key) for key in self._keys]
        self.known_run = self.notes[0].run if self.notes[0] else None
        self.upcoming = Note("")

    @property
    def current(self) -> list[Note]:
        """The notes of the present run, a shard each."""
        run = self.known_run or ""
        return [each if each is not None and each.run == run else Note(run) for each in self.notes]

    def send_many(self, messages: Sequence[Outgoing]) -> list[SentMessage]:
        """Send messages as the queue does, with a note of them."""
        operation: Operation[list[SentMessage]] = self._queue.execute(computed(send.send_many), messages)
        return self.execute(operation)

    def begin(self, run: str) -> None:
        """Begin a new run. The note of the first shard says which one it is; without any, nothing has been sent."""
        self.known_run = run
        if len(self._keys) > 1 or self.notes[0] is not None:
            for shard in range(len(self._keys)):
                self._write(shard, Note(run))

    def finish(self) -> None:
        """Note that the file is at its end."""
        for shard, note in enumerate(self.notes):
            if note is not None:
                self._write(shard, note._replace(done=True))

    def run(self, calls: Any, repeat: bool = True) -> list[Any]:
        """Run calls, each send in a transaction of its own with the note."""
        results = []
        for call in calls:
            results += [self.commit(call)] if _sends(call) else super().run([call], repeat)
        return results

    def commit(self, call: Command[Any]) -> Any:
        """Run a send, and note in the same transaction how far its shard is then."""
        shard = self._keys.index(next(key for key in self._keys if _base(key) == _base(call.key)))
        key, before = self._keys[shard], self.notes[shard]
        assert before != self.upcoming, "a second send under one note: the first one would tell of both"
        try:
            with _Transaction(self._node(key)) as pipe:
                pipe.watch(key)  # also keeps redis-py from doing the transaction twice when the connection breaks
                if _parsed(pipe.hgetall(key)) != before:
                    raise DelayqError("another process sends a file of this name to this queue: wait for its end")
                pipe.multi()
                pipe.execute_command(*call.words(whole=True), **{NEVER_DECODE: True})
                pipe.hset(key, mapping=self.upcoming.fields())
                pipe.expire(key, KEPT_SECONDS)
                reply, *_ = pipe.execute(raise_on_error=False)
        except WatchError as error:
            raise ServerUnreachable("the connection broke, or another process sends the same file") from error
        except RedisError as error:
            raise translate(error) from error
        if isinstance(reply, RedisError):  # the script stored nothing, but a transaction goes on
            self._write(shard, before)
            return translate(reply)
        self.notes[shard] = self.upcoming
        return call.read(reply)

    def _node(self, key: str) -> Any:
        client = self.client
        if isinstance(client, RedisCluster):
            return client.get_redis_connection(client.get_node_from_key(key))
        return client

    def _read(self, key: str) -> Note | None:
        try:
            return _parsed(self.client.hgetall(key))
        except RedisError as error:
            raise translate(error) from error

    def _write(self, shard: int, note: Note | None) -> None:
        key = self._keys[shard]
        try:
            if note is None:
                self.client.delete(key)
            else:
                self.client.hset(key, mapping=note.fields())
                self.client.expire(key, KEPT_SECONDS)
        except RedisError as error:
            raise translate(error) from error
        self.notes[shard] = note


def _sends(call: Command[Any]) -> bool:
    return call.script is not None and call.script.name in SENDING


def _base(key: str) -> str:
    """Return what the keys of a shard begin with: up to and with the colon behind the tag."""
    return key[: key.index("}:") + 2]


def _parsed(stored: Any) -> Note | None:
    if not stored:
        return None
    fields = {name.decode(): value.decode() for name, value in stored.items()}
    return Note(fields["run"], int(fields["line"]), fields["digest"], bool(fields["done"]))
