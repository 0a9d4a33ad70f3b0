"""Tasks: what takes longer than a request runs in the server, is watched from any browser, and can be stopped."""

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
"""Tasks that are remembered after their end."""

MOST_WORDS = 10_000
"""Forms that are known to have been sent."""

MOST_WORD = 64  # characters

MOST_RUNNING = 20
"""Of all queues together."""

Status = Literal["running", "done", "stopped", "failed"]
Work: TypeAlias = "Callable[[BackgroundTask], Awaitable[None]]"


class BackgroundTask:
    """Something that was asked for, and how far it is.

    Attributes:
        id: what its page is asked for with.
        server: the name of the server.
        queue: the name of the queue; empty where it is about a topic.
        topic, group: the names of the topic, and of its group if it is about one; empty where it is about a queue.
        title: what it does, as in "cancel 12 messages".
        who: who has asked for it.
        alone: whether only one of these runs on a queue, or a group, at a time.
        looked_at, total: how far it is; a total of None is not known.
        done: how many messages, or records, it has changed; None where it changes none.
        told: what has come of it so far, a sentence each.
        error: what it has failed of, or empty.
        again: of a dry run, the fields by which the same is asked for in earnest.
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
        self.told: list[str] = []
        self.error = ""
        self.again: dict[str, str] = {}
        self.started_at = dt.datetime.now(dt.UTC)
        self.ended_at: dt.datetime | None = None
        self._stopping = asyncio.Event()
        self._news = asyncio.Event()
        self._over = asyncio.Event()

    @property
    def subject(self) -> str:
        """What it is about, as in "queue emails" and "group billing of topic orders"."""
        group = f"group {self.group} of " if self.group else ""
        return f"{group}topic {self.topic}" if self.topic else f"queue {self.queue}"

    def about(self) -> dict[str, str]:
        """Return the same as an audit line has it."""
        known = {"queue": self.queue, "topic": self.topic, "group": self.group}
        return {name: value for name, value in known.items() if value}

    @property
    def runs(self) -> bool:
        """Whether it goes on."""
        return self.status == "running"

    @property
    def goes_on(self) -> bool:
        """Whether its work is to take the next step: nobody has stopped it."""
        return not self._stopping.is_set()

    @property
    def seconds(self) -> float:
        """How long it has run."""
        return ((self.ended_at or dt.datetime.now(dt.UTC)) - self.started_at).total_seconds()

    def tell(self, looked_at: int, total: int | None, *told: str, done: int | None = None) -> None:
        """Tell how far it is, and what has come of it."""
        self.looked_at, self.total, self.done = looked_at, total, done
        self.told = [each for each in told if each]
        self._announce()

    def stop(self) -> None:
        """Let it end before its next step."""
        self._stopping.set()

    async def rest(self, seconds: float) -> None:
        """Wait, or until it is stopped; others get their turn all the same."""
        await asyncio.sleep(0)
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), seconds)

    async def news(self, seconds: float) -> None:
        """Wait until it has something to tell, or so long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)

    async def over(self, seconds: float) -> None:
        """Wait until it is over, or so long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)

    def end(self, status: Status, error: str = "") -> None:
        """Let it be over."""
        self.status, self.error, self.ended_at = status, error, dt.datetime.now(dt.UTC)
        self._over.set()
        self._announce()

    def _announce(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class BackgroundTasks:
    """The tasks of a dashboard: those that run, and the last that have ended."""

    def __init__(self) -> None:
        self._tasks: dict[str, BackgroundTask] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._asked: dict[str, str | None] = {}

    def get(self, task_id: str) -> BackgroundTask | None:
        """Return a task; None for one that is not known (any more)."""
        return self._tasks.get(task_id)

    def all(self, server: str) -> list[BackgroundTask]:
        """Return those of a server, the last one first."""
        return [task for task in reversed(self._tasks.values()) if task.server == server]

    @contextlib.contextmanager
    def once(self, word: str) -> Iterator[bool]:
        """Do what follows for a form that was not sent before, as it is told; one that fails may be sent again.

        Args:
            word: the form's own.
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
        """Return the task that a form has started already."""
        return self._tasks.get(self._asked.get(once) or "")

    def start(self, task: BackgroundTask, work: Work, once: str, ended: Callable[[BackgroundTask], None]) -> None:
        """Let a task run.

        Args:
            once: the word of the form that asks for it.
            ended: is called when it is over.

        Raises:
            HTTPException: another one runs.
        """
        others = [each for each in self._tasks.values() if each.runs]
        for each in others:
            if task.alone and each.alone and (each.server, each.about()) == (task.server, task.about()):
                busy = task.subject[0].upper() + task.subject[1:]
                raise HTTPException(409, f"{busy} is busy: {each.title}. Stop it, or wait until it has ended.")
        if len(others) >= MOST_RUNNING:
            raise HTTPException(409, f"{MOST_RUNNING} tasks run: stop one, or wait until one has ended.")
        self._tasks[task.id] = task
        self._remember(once, task.id)
        running = self._running[task.id] = asyncio.create_task(_run(task, work))
        running.add_done_callback(lambda _: self._running.pop(task.id, None))
        running.add_done_callback(lambda _: ended(task))
        self._forget()

    async def close(self) -> None:
        """Stop all tasks, and wait until they have ended."""
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
    """Return the word by which a form is told from all others; raises InvalidInput."""
    word = form.get("once", "")
    if not word or len(word) > MOST_WORD:
        raise InvalidInput(f"the form has no word of its own ({word[:MOST_WORD]!r}): open its page anew")
    return word


async def _run(task: BackgroundTask, work: Work) -> None:
    try:
        await work(task)
    except DelayqError as error:
        task.end("failed", str(error))
    except Exception as error:  # noqa: BLE001  # whoever looks at its page is to know
        log.error("task of the dashboard failed", task=task.title, exc_info=error)
        task.end("failed", "The dashboard has failed here: its log tells more.")
    else:
        task.end("done" if task.goes_on else "stopped")
