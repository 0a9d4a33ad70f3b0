"""The server that a task connects to."""

from __future__ import annotations

import datetime as dt
import os
import platform
import time
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any
from urllib.parse import quote

from delayq.errors import InvalidInput
from delayq.model.credentials import is_unfit_name
from delayq.model.server_url import chosen_url, default_folder, redact
from delayq.operations.queue_context import server_ms
from delayq.queue import Queue
from delayq.queue_names import Server
from delayq.spark.reading.options import called, seconds_of
from delayq.topic import Topic
from delayq.transport.patience import make_patient

WAIT_FOR = 60.0


class RedisOptions:
    """The server with the queues. It is sent from the driver to the tasks, and its repr shows no secrets.

    Args:
        url: None for DELAYQ_URL of this process, or the embedded store in its folder.
        prefix: the prefix of all keys.
        wait_for: seconds to wait in each round trip for a server that is away, before an error is raised; 0 or more.
    """

    def __init__(self, url: str | None = None, prefix: str = "delayq", wait_for: float = WAIT_FOR) -> None:
        # An executor has neither the driver's environment nor its folder.
        self._url = chosen_url(url) or f"embedded://{quote(str(default_folder().resolve()))}"
        self.prefix = prefix
        self.wait_for = wait_for
        self._machine = platform.node()

    @classmethod
    def of(cls, options: Mapping[str, str]) -> RedisOptions:
        """Return the server that the options `url` or `urlFrom`, `prefix` and `waitFor` describe."""
        seconds = seconds_of(options, "waitFor", WAIT_FOR)
        return cls(_url(options), options.get("prefix", "delayq"), seconds)

    def hurried(self, most: float) -> RedisOptions:
        """Return the same server, for which tasks wait at most some seconds."""
        found = copy(self)
        found.wait_for = min(most, self.wait_for)
        return found

    def with_prefix(self, prefix: str) -> RedisOptions:
        """Return the same server, with another prefix of keys."""
        found = copy(self)
        found.prefix = prefix
        return found

    def __repr__(self) -> str:
        return f"<Server {redact(self._url)}>"

    def options(self, **more: object) -> dict[str, str]:
        """Return the options with which the format "delayq" reads from this server or writes to it.

        Args:
            more: other options; those that are None are left out.
        """
        given = {name: str(value) for name, value in more.items() if value is not None}
        waits = {} if self.wait_for == WAIT_FOR else {"waitFor": f"{self.wait_for:g}"}
        return {"url": self._url, "prefix": self.prefix} | waits | given

    def queue(self, name: str, **settings: Any) -> Queue:
        """Return a queue with the recorded number of shards; close it after use.

        Raises:
            InvalidInput: the embedded store is on another machine.
        """
        self._check_is_here()
        shards = settings.pop("shards", None)
        queue = Queue(name, url=self._url, prefix=self.prefix, shards=shards, **settings)
        make_patient(queue, self.wait_for, f"queue {name}")
        return queue

    def topic(self, name: str) -> Topic:
        """Return a topic with the recorded number of shards; close it after use.

        Raises:
            InvalidInput: the embedded store is on another machine.
        """
        self._check_is_here()
        topic = Topic(name, url=self._url, prefix=self.prefix, shards=None)
        make_patient(topic, self.wait_for, f"topic {name}")
        return topic

    def server(self) -> Server:
        """Return the server itself; close it after use.

        Raises:
            InvalidInput: the embedded store is on another machine.
        """
        self._check_is_here()
        server = Server(self._url, None, self.prefix, "Spark")
        make_patient(server, self.wait_for, "server")
        return server

    def _check_is_here(self) -> None:
        here = platform.node()
        if (
            self._url.lower().startswith("embedded:") and here != self._machine
        ):  # this machine's store is a different one
            raise InvalidInput(
                f"this task runs on {here}, but the embedded store is on {self._machine}: give a server that both "
                'can reach, with .option("url", …) or with DELAYQ_URL for the driver'
            )


class ServerClock:
    """A server's time, read once: it decides what is due or over, rather than an executor's clock."""

    def __init__(self, queue: Queue) -> None:
        self._ahead = queue.execute(server_ms) / 1000 - time.monotonic()

    def now(self) -> dt.datetime:
        """Return the server's time."""
        return dt.datetime.fromtimestamp(time.monotonic() + self._ahead, dt.UTC)


def _url(options: Mapping[str, str]) -> str | None:
    """Return the URL of the option `url`, or the one in the place that the option `urlFrom` names."""
    given = options.get("urlFrom")
    if given is None:
        return options.get("url")
    what = called(options, "urlFrom")
    if "url" in options:
        raise InvalidInput(f'the option "url" and {what} both say which server to use: give one')
    kind, _, source = given.partition(":")
    if kind not in ("env", "file") or not source or is_unfit_name(source):
        raise InvalidInput(f"{what} is not env:NAME or file:PATH: give the place of the URL, not the URL")
    if kind == "env":
        url = os.environ.get(source, "")
        where = f"the variable {source}, which is not set or is empty where Spark's driver runs"
    else:
        try:
            url = Path(source).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise InvalidInput(f"{what} names the file {source}, which the driver cannot read: {why}") from None
        where = f"the file {source}, which is empty"
    if not url:
        raise InvalidInput(f"{what} names {where}: put the URL of the server into it")
    return url
