"""Tasks: long work that runs in the server. Any browser can watch and stop it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Literal, TypeAlias

from starlette.exceptions import HTTPException

from delayq.errors import DelayqError, InvalidInput
from delayq.log import log

MOST_KEPT = 200
"""The number of ended tasks that are remembered."""

MOST_WORDS = 10_000
"""The number of sent forms that are remembered."""

MOST_WORD = 64  # characters

MOST_RUNNING = 20
"""The maximum number of running tasks, of all queues together."""

Status = Literal["running", "done", "stopped", "failed"]
Work: TypeAlias = "Callable[[BackgroundTask], Awaitable[None]]"


class BackgroundTask:
    """A task and its progress.

    Attributes:
        id: the id in the path of its page.
        server: the name of the server.
        queue: the name of the queue; empty if it is about a topic.
        topic, group: the names of the topic and, if it is about one, of its group; empty if it is about a queue.
        title: what it does, such as "Cancel 12 messages".
        who: the user who started it.
        alone: whether only one such task may run on a queue or a group at a time.
        looked_at, total: its progress; a total of None is unknown.
        done: how many messages or records it has changed; None if it changes none.
        results: its results so far, as sentences.
        error: why it failed, or empty.
        again: for a dry run, the form fields that start the real action.
    """

    def __init__(
        self, server: str, queue: str, title: str, who: str, alone: bool, topic: str = "", group: str = ""
    ) -> None:
        self.id = secrets.token_urlsafe(9)
        self.server = server
        self.queue = queue
        self.topic = topic
        self.group = group
        self.title = title
        self.who = who
        self.alone = alone
        self.status: Status = "running"
        self.looked_at = 0
        self.done: int | None = None
        self.total: int | None = None
        self.results: list[str] = []
        self.error = ""
        self.again: dict[str, str] = {}
        self.started_at = dt.datetime.now(dt.UTC)
        self.ended_at: dt.datetime | None = None
        self._stopping = asyncio.Event()
        self._news = asyncio.Event()
        self._over = asyncio.Event()

    @property
    def subject(self) -> str:
        """Its target, such as "queue emails" or "group billing of topic orders"."""
        group = f"group {self.group} of " if self.group else ""
        return f"{group}topic {self.topic}" if self.topic else f"queue {self.queue}"

    def about(self) -> dict[str, str]:
        """Return its target as fields of an audit line."""
        known = {"queue": self.queue, "topic": self.topic, "group": self.group}
        return {name: value for name, value in known.items() if value}

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.status == "running"

    @property
    def goes_on(self) -> bool:
        """Whether to take the next step: nobody has stopped it."""
        return not self._stopping.is_set()

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return ((self.ended_at or dt.datetime.now(dt.UTC)) - self.started_at).total_seconds()

    def tell(self, looked_at: int, total: int | None, *results: str, done: int | None = None) -> None:
        """Update its progress and results."""
        self.looked_at, self.total, self.done = looked_at, total, done
        self.results = [each for each in results if each]
        self._announce()

    def stop(self) -> None:
        """Make it end before its next step."""
        self._stopping.set()

    async def rest(self, seconds: float) -> None:
        """Wait for this time or until it is stopped; even with 0 seconds, let other tasks run."""
        await asyncio.sleep(0)
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), seconds)

    async def news(self, seconds: float) -> None:
        """Wait for an update, at most this long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)

    async def over(self, seconds: float) -> None:
        """Wait for its end, at most this long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)

    def end(self, status: Status, error: str = "") -> None:
        """Mark it as ended."""
        self.status, self.error, self.ended_at = status, error, dt.datetime.now(dt.UTC)
        self._over.set()
        self._announce()

    def _announce(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class BackgroundTasks:
    """The tasks of a dashboard: running ones, and the last ones that ended."""

    def __init__(self) -> None:
        self._tasks: dict[str, BackgroundTask] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._asked: dict[str, str | None] = {}

    def get(self, task_id: str) -> BackgroundTask | None:
        """Return a task; None if it is not known (any more)."""
        return self._tasks.get(task_id)

    def all(self, server: str) -> list[BackgroundTask]:
        """Return the tasks of a server, the latest first."""
        return [task for task in reversed(self._tasks.values()) if task.server == server]

    @contextlib.contextmanager
    def once(self, word: str) -> Iterator[bool]:
        """Yield whether a form is sent for the first time; a form whose block fails may be sent again.

        Args:
            word: the form's unique word.
        """
        is_new = word not in self._asked
        if is_new:
            self._remember(word, None)
        try:
            yield is_new
        except BaseException:
            if is_new:
                self._asked.pop(word, None)
            raise

    def asked(self, once: str) -> BackgroundTask | None:
        """Return the task that a form has already started, or None."""
        return self._tasks.get(self._asked.get(once) or "")

    def start(self, task: BackgroundTask, work: Work, once: str, ended: Callable[[BackgroundTask], None]) -> None:
        """Start a task.

        Args:
            once: the unique word of its form.
            ended: called when the task ends.

        Raises:
            HTTPException: 409 if another task is running.
        """
        others = [each for each in self._tasks.values() if each.runs]
        for each in others:
            if task.alone and each.alone and (each.server, each.about()) == (task.server, task.about()):
                busy = task.subject[0].upper() + task.subject[1:]
                raise HTTPException(409, f"{busy} is busy: {each.title}. Stop that task, or wait until it ends.")
        if len(others) >= MOST_RUNNING:
            raise HTTPException(409, f"{MOST_RUNNING} tasks are running: stop one, or wait until one ends.")
        self._tasks[task.id] = task
        self._remember(once, task.id)
        running = self._running[task.id] = asyncio.create_task(_run(task, work))
        running.add_done_callback(lambda _: self._running.pop(task.id, None))
        running.add_done_callback(lambda _: ended(task))
        self._forget()

    async def close(self) -> None:
        """Stop all tasks, and wait for them to end."""
        for task in self._tasks.values():
            task.stop()
        if self._running:
            await asyncio.wait(list(self._running.values()))

    def _remember(self, word: str, task_id: str | None) -> None:
        self._asked[word] = task_id
        while len(self._asked) > MOST_WORDS:
            del self._asked[next(iter(self._asked))]

    def _forget(self) -> None:
        over = [task for task in self._tasks.values() if not task.runs]
        for task in over[: max(0, len(over) - MOST_KEPT)]:
            del self._tasks[task.id]


def word_of(form: Mapping[str, str]) -> str:
    """Return the word that makes a form unique; raises InvalidInput."""
    word = form.get("once", "")
    if not word or len(word) > MOST_WORD:
        raise InvalidInput(f"the form's field once is invalid ({word[:MOST_WORD]!r}): reload its page")
    return word


async def _run(task: BackgroundTask, work: Work) -> None:
    try:
        await work(task)
    except DelayqError as error:
        task.end("failed", str(error))
    except Exception as error:  # noqa: BLE001  # its page must show the failure
        log.error("task of the dashboard failed", task=task.title, exc_info=error)
        task.end("failed", "Internal error: see the dashboard’s log.")
    else:
        task.end("done" if task.goes_on else "stopped")
