"""Checkpoints of `delayq send --file`: how far a file was sent, recorded in the queue itself.

A checkpoint is written by the same script as its messages, so it is always right, even if the queue had no room for all
of them: if the sender is killed, a rerun from the checkpoint sends every line once, however soon the messages were
handled. Ids made from line numbers could not guarantee this, since an id is free again once its message is acked.

<prefix>:{<queue>}:file:<digest>    hash: run, line, digest, done; one per shard; expires after KEPT_SECONDS
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from redis import Redis
from redis.client import NEVER_DECODE, Pipeline
from redis.cluster import RedisCluster
from redis.exceptions import RedisError, WatchError

from delayq.errors import DelayqError, ServerUnreachable
from delayq.model.delivery import Outgoing, SentMessage
from delayq.operations import send
from delayq.operations.byte_budget import UP_BYTES
from delayq.protocol.command import Command
from delayq.queue import Queue
from delayq.transport.executor import Executor
from delayq.transport.server_check import translate

KEPT_SECONDS = 30 * 86400
MAX_SENT, MAX_BYTES = send.MAX_SENT, UP_BYTES  # of lines whose messages have distinct ids: one call a shard
SENDING = ("send", "send_unique", "replace")

# Around a send script, from which it hides the last key and the last two arguments: the checkpoint, its run, and the
# line and digest of each message, as JSON. The checkpoint becomes that of the last line before the first message that
# the queue had no room for. It stays as it is if there is no such line, or the send failed.
_WITH_CHECKPOINT = """\
local key, run, lines = table.remove(KEYS), table.remove(ARGV, #ARGV - 1), cjson.decode(table.remove(ARGV))
local sent, n = (function()
%s
end)(), #lines
if sent.err then return sent end
for i = #sent, 1, -1 do
  if sent[i] < -1 then n = i - 1 end
end
if n > 0 then redis.call('HSET', key, 'run', run, 'line', lines[n][1], 'digest', lines[n][2], 'done', '') end
return sent
"""


class Note(NamedTuple):
    """The checkpoint of one shard.

    Attributes:
        run: prefix of the ids of one run.
        line: all lines up to this one were sent.
        digest: of the file up to there.
        done: whether the file ended there.
    """

    run: str
    line: int = 0
    digest: str = ""
    done: bool = False

    def fields(self) -> dict[Any, Any]:
        """Return the checkpoint as Redis stores it."""
        return {"run": self.run, "line": str(self.line), "digest": self.digest, "done": "1" if self.done else ""}


class _Transaction(Pipeline):
    """A redis-py pipeline that drops its connection when it fails, instead of sending UNWATCH on it.

    A sender may lack the right to UNWATCH: the refusal would hide the error, and redis-py would keep the connection,
    which the garbage collector would reopen. Besides, a MULTI whose EXEC was refused is still open on it.
    """

    def __init__(self, client: Redis) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, transaction=True, shard_hint=None)

    def reset(self) -> None:  # type: ignore[override]  # the base class has the command RESET
        """Return the connection to the pool."""
        if self.watching and self.connection is not None:
            self.connection.disconnect()
        self.watching = False
        super().reset()


class CheckpointExecutor(Executor):
    """Runs a queue's calls like the queue's own executor, and writes a checkpoint with each send.

    Args:
        queue: the queue to send to.
        digest: identifies the file.

    Attributes:
        notes: the stored checkpoints, one per shard.
        known_run: their run, or None if there are none.
        upcoming: the checkpoints to write with the next send to each shard: one per message, each for the case that the
            queue has no room for the next one. A queue with shards always has room, and all get the last one.
    """

    def __init__(self, queue: Queue, digest: str) -> None:
        own, self._context = queue._executor, queue._context  # noqa: SLF001  # one transaction with the messages
        super().__init__(lambda: own.client, False, f"queue {queue.name}")
        shards = own.execute(self._context.opened())
        self._keys = [_base(scripts.keys.pending) + f"file:{digest}" for scripts in shards]
        self.notes: list[Note | None] = [self._read(key) for key in self._keys]
        self.known_run = self.notes[0].run if self.notes[0] else None
        self.upcoming: Sequence[Note] = ()

    @property
    def current(self) -> list[Note]:
        """The checkpoints of the current run, one per shard."""
        run = self.known_run or ""
        return [each if each is not None and each.run == run else Note(run) for each in self.notes]

    def send_many(self, messages: Sequence[Outgoing]) -> list[SentMessage]:
        """Send messages with a checkpoint, those of a shard in one call: it would also cover those of a later one."""
        in_one_call = partial(send.send_encoded, call_bytes=math.inf)
        return self.execute(send.send_many(self._context, messages, send=in_one_call))

    def begin(self, run: str) -> None:
        """Start a new run. The checkpoint of the first shard names the run; without one, nothing was sent."""
        self.known_run = run
        if len(self._keys) > 1 or self.notes[0] is not None:
            for shard in range(len(self._keys)):
                self._write(shard, Note(run))

    def finish(self) -> None:
        """Record that the file was sent to its end."""
        for shard, note in enumerate(self.notes):
            if note is not None:
                self._write(shard, note._replace(done=True))

    def run(self, calls: Any, repeat: bool = True) -> list[Any]:
        """Run calls; each send is in its own transaction with the checkpoint."""
        results = []
        for call in calls:
            results += [self.commit(call)] if _sends(call) else super().run([call], repeat)
        return results

    def commit(self, call: Command[Any]) -> Any:
        """Run a send, which also writes the checkpoint of its shard."""
        shard = self._keys.index(next(key for key in self._keys if _base(key) == _base(call.key)))
        key, before = self._keys[shard], self.notes[shard]
        kept = before or Note(self.upcoming[-1].run)
        assert before != self.upcoming[-1], "a second send with the same checkpoint: the first would already cover it"
        try:
            with _Transaction(self._node(key)) as pipe:
                pipe.watch(key)  # also keeps redis-py from repeating the transaction if the connection breaks
                if _parsed(pipe.hgetall(key)) != before:
                    raise DelayqError("another process is sending this file to this queue: wait until it is done")
                pipe.multi()
                # It changes nothing, but without the right to it nothing is sent: Redis 6.2 has no check for scripts.
                pipe.hset(key, mapping=kept.fields())
                pipe.execute_command(*self._words(call, key), **{NEVER_DECODE: True})
                pipe.expire(key, KEPT_SECONDS)
                _, reply, *_ = pipe.execute(raise_on_error=False)
        except WatchError as error:
            raise ServerUnreachable("the connection broke, or another process is sending the same file") from error
        except RedisError as error:
            raise translate(error) from error
        self.notes[shard] = kept
        if isinstance(reply, RedisError):  # the script stored nothing
            return translate(reply)
        results = call.read(reply)
        refused = next((i for i, result in enumerate(results) if isinstance(result, int)), len(self.upcoming))
        self.notes[shard] = self.upcoming[refused - 1] if refused else kept
        return results

    def _words(self, call: Command[Any], key: str) -> tuple[Any, ...]:
        name, text, count, *words = call.words(whole=True)
        keys, args = words[: int(count)], words[int(count) :]
        lines = msgspec.json.encode([(f"{each.line}", each.digest) for each in self.upcoming])
        return name, _WITH_CHECKPOINT % text, str(len(keys) + 1), *keys, key, *args, self.upcoming[-1].run, lines

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

    def _write(self, shard: int, note: Note) -> None:
        key = self._keys[shard]
        try:
            self.client.hset(key, mapping=note.fields())
            self.client.expire(key, KEPT_SECONDS)
        except RedisError as error:
            raise translate(error) from error
        self.notes[shard] = note


def _sends(call: Command[Any]) -> bool:
    return call.script is not None and call.script.name in SENDING


def _base(key: str) -> str:
    """Return the prefix of a shard's keys, including the colon after the tag."""
    return key[: key.index("}:") + 2]


def _parsed(stored: Any) -> Note | None:
    if not stored:
        return None
    fields = {name.decode(): value.decode() for name, value in stored.items()}
    return Note(fields["run"], int(fields["line"]), fields["digest"], bool(fields["done"]))
