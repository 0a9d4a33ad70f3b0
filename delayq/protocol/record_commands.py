"""The calls on the record of a queue or a topic: how many shards it has, since when, and its configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from delayq.model.envelope import QUEUE_FORMAT
from delayq.model.settings import FIELDS
from delayq.protocol.command import Command, Raw, texts
from delayq.protocol.queue_keys import QueueKeys
from delayq.protocol.replies import OpenedQueue, _read_opened
from delayq.protocol.script import Script, script
from delayq.protocol.topic_keys import TopicKeys

T = TypeVar("T")
K = TypeVar("K", bound=QueueKeys | TopicKeys)


class RecordCommands(Generic[K]):
    """The calls on the record in one shard.

    Args:
        keys: of the shard.
        clock: returns the time, ms, that the scripts use, or '' for the server's own.
    """

    folder = ""
    """Of the scripts."""

    def __init__(self, keys: K, clock: Callable[[], float | str]) -> None:
        self.keys = keys
        self._clock = clock
        self._fixed: dict[str, tuple[Script, list[str]]] = {}  # by name: scripts whose keys depend on no arguments

    def open_queue(self, shards: int | None, create: bool) -> Command[OpenedQueue]:
        meta = self.keys.meta
        words = (1, meta, QUEUE_FORMAT, shards or "", 1 if create else "", self._clock(), *FIELDS)
        return Command(meta, texts(words), _read_opened, script("open_queue"))

    def keep_record(self, shards: int, since: bytes) -> Command[int]:
        """Store a copy of the record in another shard than the first."""
        meta = self.keys.meta
        return Command(meta, texts(("HSET", meta, "shards", shards, "since", since)), int)

    def _call(
        self,
        name: str,
        args: Sequence[Raw],
        read: Callable[[Any], T],
        more: Sequence[Any] = (),
        whole: bool = False,
        repeats: bool = True,
        are_texts: bool = False,
        **given: Any,
    ) -> Command[T]:
        """Call a script with the keys that its header names; `given` are those that `keys` has not.

        Those in `more` follow; if the header names a payload last, it is the first of them.
        """
        fixed = None if given else self._fixed.get(name)
        if fixed is None:
            called, known = script(f"{self.folder}{name}"), vars(self.keys) | given
            fixed = called, [known[each] for each in called.keys if given or each != "payload"]
            if not given:
                self._fixed[name] = fixed
        called, keys = fixed
        words = args if are_texts else texts(args)  # a long list of texts need not be looked through
        return Command(keys[0], (str(len(keys) + len(more)), *keys, *more, *words), read, called, whole, repeats)
