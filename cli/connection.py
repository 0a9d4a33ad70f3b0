"""The server that a command uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import delayq
from delayq.errors import LoginRefused, StoreError
from delayq.model.server_url import embedded_folder, has_unread_url
from delayq.model.show import nearest
from delayq.model.validation import Kind, check_queue_name
from delayq.queue import Queue
from delayq.queue_names import Server
from delayq.transport.embedded.binaries import read_version

from .output import note


class ServerOptions(Server):
    """A server, connected when first needed, and its queues.

    Args:
        url: of the server; None for the embedded store.
        prefix: the prefix of the queues' keys.
        makes_store: create the embedded store if it does not exist; otherwise a missing store is a StoreError.

    Raises:
        InvalidURL: `url` is invalid.
    """

    def __init__(self, url: str | None, prefix: str, makes_store: bool = True) -> None:
        super().__init__(url, None, prefix, "the command line")
        self._makes_store = makes_store

    def _connect(self) -> Any:
        folder = None if self._makes_store else embedded_folder(self.url)
        if folder is not None and read_version(folder) is None:
            other = " (REDIS_URL is set, but not read)" if has_unread_url() else ""
            unset = "" if self.url else f", and DELAYQ_URL is not set{other}"
            raise StoreError(
                f"no store in {folder.absolute()}{unset}: run this in your program's folder, set DELAYQ_HOME, or "
                "give --url (delayq send creates a store here)"
            )
        return super()._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def queue(self, name: str, **settings: Any) -> Queue:
        """Return a queue with its recorded number of shards; refuse a bad name first."""
        return Queue(check_queue_name(name), redis=self.client(), prefix=self.prefix, shards=None, **settings)

    def topic(self, name: str, ledger: bool = False, **settings: Any) -> delayq.Topic:
        """Return a topic with its recorded number of shards; refuse a bad name first.

        Args:
            ledger: `name` is a queue, and the topic is its ledger.
            settings: those of `Topic`; for a ledger, also those of `Queue`.
        """
        if ledger:
            return self.queue(name, **settings).events
        return delayq.Topic(
            check_queue_name(name, "topic name"), redis=self.client(), prefix=self.prefix, shards=None, **settings
        )

    def queue_names(self) -> list[str]:
        """Return the names of all recorded queues, sorted: those ever sent to, consumed or paused."""
        return self.names()["queue"]

    def names(self) -> dict[Kind, list[str]]:
        """Return the names of all recorded queues and topics, sorted, from one scan of all keys."""
        self.search.find_all()
        return {kind: sorted(names) for kind, names in self.search.names.items()}

    def each_name(self, kind: Kind) -> Iterator[str]:
        """Yield the names as they are found, those in the registry at once: a scan of many keys takes a while."""
        found: set[str] = set()
        for _ in self.search.steps():
            yield from sorted(self.search.names[kind] - found)
            found |= self.search.names[kind]

    def likely_meant(self, name: str) -> str | None:
        """Return the queue whose name is most like `name`; None if `name` exists, or no name is like it."""
        if self.has("queue", name):
            return None
        try:
            return nearest(name, self.queue_names())
        except LoginRefused:  # a user who may not list keys
            return None

    def note_slip(self, name: str, create: bool) -> None:
        """Warn if the name of a new queue is much like that of another, unless --create was given."""
        meant = None if create else self.likely_meant(name)
        if meant is not None:
            undo = f"to undo this, empty it and run delayq queue remove {name}; --create turns off this warning"
            note(f"queue {name} is new: did you mean {meant}? ({undo})")

    def has(self, kind: Kind, name: str) -> bool:
        """Whether a queue or topic of this name is recorded, as far as this user may see it."""
        self.client()
        try:
            return super().has(kind, name)
        except LoginRefused:
            return False
