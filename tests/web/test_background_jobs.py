"""Background jobs: their limits, failures and end."""

from __future__ import annotations

import asyncio

import pytest
from starlette.exceptions import HTTPException

from delayq.errors import ServerUnreachable
from delayq.web.background_jobs import MOST_KEPT, MOST_RUNNING, BackgroundJob, BackgroundJobs

HOUR = 3600.0


def job(queue: str = "emails", alone: bool = True) -> BackgroundJob:
    return BackgroundJob("main", queue, "Cancel all", "local", alone)


async def waits(job: BackgroundJob) -> None:
    while job.goes_on:
        await job.rest(HOUR)


def ended(_: BackgroundJob) -> None:
    """Ignore the end of a job."""


def test_jobs_end_when_the_dashboard_does():
    async def run() -> BackgroundJob:
        jobs, waiting = BackgroundJobs(), job()
        jobs.start(waiting, waits, "once", ended)
        await jobs.close()
        return waiting

    assert asyncio.run(run()).status == "stopped"


def test_queue_has_one_exclusive_job_at_a_time():
    async def run() -> None:
        jobs = BackgroundJobs()
        jobs.start(job(), waits, "a", ended)
        jobs.start(job("orders"), waits, "b", ended)
        jobs.start(job(alone=False), waits, "c", ended)
        with pytest.raises(HTTPException, match="Stop that job, or wait"):
            jobs.start(job(), waits, "d", ended)
        await jobs.close()
        jobs.start(job(), waits, "e", ended)
        await jobs.close()

    asyncio.run(run())


def test_number_of_running_jobs_is_limited():
    async def run() -> None:
        jobs = BackgroundJobs()
        for number in range(MOST_RUNNING):
            jobs.start(job(f"q{number}"), waits, f"{number}", ended)
        with pytest.raises(HTTPException, match="20 jobs are running"):
            jobs.start(job("one more"), waits, "x", ended)
        await jobs.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ServerUnreachable("it is away"), "it is away"),
        (ValueError("secret"), "Internal error: see the"),
    ],
)
def test_failed_job_says_why_but_hides_details_of_a_bug(error: Exception, expected: str):
    async def fails(_: BackgroundJob) -> None:
        raise error

    async def run() -> BackgroundJob:
        jobs, failing = BackgroundJobs(), job()
        jobs.start(failing, fails, "once", ended)
        await failing.over(HOUR)
        return failing

    failed = asyncio.run(run())
    assert (failed.status, expected in failed.error, "secret" in failed.error) == ("failed", True, False)


def test_old_jobs_are_forgotten():
    async def nothing(_: BackgroundJob) -> None:
        pass

    async def run() -> list[BackgroundJob]:
        jobs, all_of_them = BackgroundJobs(), [job() for _ in range(MOST_KEPT + 5)]
        for number, each in enumerate(all_of_them):
            jobs.start(each, nothing, f"{number}", ended)
            await each.over(HOUR)
        return [each for each in all_of_them if jobs.get(each.id) is None]

    assert 0 < len(asyncio.run(run())) <= 5


def sent(jobs: BackgroundJobs, word: str) -> bool:
    with jobs.once(word) as is_new:
        return is_new


def test_form_counts_as_new_once():
    jobs = BackgroundJobs()
    assert [sent(jobs, "a"), sent(jobs, "a"), sent(jobs, "b")] == [True, False, True]


def test_failed_form_can_be_sent_again():
    jobs = BackgroundJobs()
    with pytest.raises(ServerUnreachable):
        fail(jobs, "a")
    assert sent(jobs, "a")


def fail(jobs: BackgroundJobs, word: str) -> None:
    with jobs.once(word):
        raise ServerUnreachable("it is away")
