"""Jobs: long work that runs in the server. Any browser can watch and stop it."""

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
"""The number of ended jobs that are remembered."""

MOST_WORDS = 10_000
"""The number of sent forms that are remembered."""

MOST_WORD = 64  # characters

MOST_RUNNING = 20
"""The maximum number of running jobs, of all queues together."""

Status = Literal["running", "done", "stopped", "failed"]
Work: TypeAlias = "Callable[[BackgroundJob], Awaitable[None]]"


class BackgroundJob:
    """A job and its progress.

    Attributes:
        id: the id in the path of its page.
        server: the name of the server.
        queue: the name of the queue; empty if it is about a topic.
        topic, group: the names of the topic and, if it is about one, of its group; empty if it is about a queue.
        title: what it does, such as "Cancel 12 messages".
        who: the user who started it.
        alone: whether only one such job may run on a queue or a group at a time.
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


class BackgroundJobs:
    """The jobs of a dashboard: running ones, and the last ones that ended."""

    def __init__(self) -> None:
        self._jobs: dict[str, BackgroundJob] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._asked: dict[str, str | None] = {}

    def get(self, job_id: str) -> BackgroundJob | None:
        """Return a job; None if it is unknown, or was forgotten."""
        return self._jobs.get(job_id)

    def all(self, server: str) -> list[BackgroundJob]:
        """Return the jobs of a server, the latest first."""
        return [job for job in reversed(self._jobs.values()) if job.server == server]

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

    def asked(self, once: str) -> BackgroundJob | None:
        """Return the job that a form has already started, or None."""
        return self._jobs.get(self._asked.get(once) or "")

    def start(self, job: BackgroundJob, work: Work, once: str, ended: Callable[[BackgroundJob], None]) -> None:
        """Start a job.

        Args:
            once: the unique word of its form.
            ended: called when the job ends.

        Raises:
            HTTPException: 409 if another job is running.
        """
        others = [each for each in self._jobs.values() if each.runs]
        for each in others:
            if job.alone and each.alone and (each.server, each.about()) == (job.server, job.about()):
                busy = job.subject[0].upper() + job.subject[1:]
                raise HTTPException(409, f"{busy} is busy: {each.title}. Stop that job, or wait until it ends.")
        if len(others) >= MOST_RUNNING:
            raise HTTPException(409, f"{MOST_RUNNING} jobs are running: stop one, or wait until one ends.")
        self._jobs[job.id] = job
        self._remember(once, job.id)
        running = self._running[job.id] = asyncio.create_task(_run(job, work))
        running.add_done_callback(lambda _: self._running.pop(job.id, None))
        running.add_done_callback(lambda _: ended(job))
        self._forget()

    async def close(self) -> None:
        """Stop all jobs, and wait for them to end."""
        for job in self._jobs.values():
            job.stop()
        if self._running:
            await asyncio.wait(list(self._running.values()))

    def _remember(self, word: str, job_id: str | None) -> None:
        self._asked[word] = job_id
        while len(self._asked) > MOST_WORDS:
            del self._asked[next(iter(self._asked))]

    def _forget(self) -> None:
        over = [job for job in self._jobs.values() if not job.runs]
        for job in over[: max(0, len(over) - MOST_KEPT)]:
            del self._jobs[job.id]


def word_of(form: Mapping[str, str]) -> str:
    """Return the word that makes a form unique; raises InvalidInput."""
    word = form.get("once", "")
    if not word or len(word) > MOST_WORD:
        raise InvalidInput(f"the form's field once is invalid ({word[:MOST_WORD]!r}): reload its page")
    return word


async def _run(job: BackgroundJob, work: Work) -> None:
    try:
        await work(job)
    except DelayqError as error:
        job.end("failed", str(error))
    except Exception as error:  # noqa: BLE001  # its page must show the failure
        log.error("job of the dashboard failed", job=job.title, exc_info=error)
        job.end("failed", "Internal error: see the dashboard’s log.")
    else:
        job.end("done" if job.goes_on else "stopped")
