"""What an idle consumer, receiver or reader listens on with a blocked connection, for both APIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from redis.exceptions import TimeoutError as RedisTimeoutError

# A connection that a firewall has silently dropped would never ring, so block again from time to time.
BLOCK_SECONDS = 30
POLL_SECONDS = 0.01  # between two looks at a server within this process, which cannot be waited on
CROSSED_SECONDS = 1.0  # a command that has not arrived after this time will not arrive


class BellSource(NamedTuple):
    """A queue's bell."""

    key: str

    @property
    def words(self) -> tuple[Any, ...]:
        """The command that blocks until a token comes."""
        return "BLPOP", self.key, str(BLOCK_SECONDS)


class StreamSource(NamedTuple):
    """A shard of a topic, and the key that announces delayed records.

    Attributes:
        key: of the shard's stream.
        waking: the other key.
        seen: the ids after which the two are read.
    """

    key: str
    waking: str
    seen: tuple[str, str]

    @property
    def words(self) -> tuple[Any, ...]:
        """The command that blocks until something comes."""
        keys = ("STREAMS", self.key, self.waking)
        return "XREAD", "BLOCK", str(BLOCK_SECONDS * 1000), "COUNT", "1", *keys, *self.seen


class ResultSource(NamedTuple):
    """The stream of a shard's messages that have ended with a result.

    Attributes:
        seen: the stream id after which it is read.
    """

    key: str
    seen: str

    @property
    def words(self) -> tuple[Any, ...]:
        """The command that blocks until one has ended."""
        return "XREAD", "BLOCK", str(BLOCK_SECONDS * 1000), "COUNT", "1", "STREAMS", self.key, self.seen


Source: TypeAlias = BellSource | StreamSource | ResultSource


class Listener:
    """What the listeners of both APIs know: one blocked connection on one source.

    Args:
        client: its pool lends the connection.
        is_away: whether the node of a key is known to be unavailable; then it is not asked.
        lose: is told of the key whose node did not answer in time, so that no other listener waits for it too.

    Attributes:
        source: what it listens on; it may change while nobody listens.
    """

    def __init__(
        self,
        client: Any,
        source: Source,
        is_away: Callable[[str], bool] = lambda _: False,
        lose: Callable[[str, Exception], object] = lambda *_: None,
    ) -> None:
        self.client = client
        self.source = source
        self._is_away = is_away
        self._lose = lose
        self._node: Any = None
        self._connection: Any = None
        self._client_id = 0
        self._asked_at = 0.0
        self._silent_until = 0.0

    def _note_silence(self, error: Exception) -> None:
        if isinstance(error, RedisTimeoutError):
            self._lose(self.source.key, error)
