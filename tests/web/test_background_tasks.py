"""Background tasks: their limits, failures and end."""

from __future__ import annotations

import asyncio

import pytest
from starlette.exceptions import HTTPException

from delayq.errors import ServerUnreachable
from delayq.web.background_tasks import MOST_KEPT, MOST_RUNNING, BackgroundTask, BackgroundTasks

HOUR = 3600.0


def task(queue: str = "emails", alone: bool = True) -> BackgroundTask:
    return BackgroundTask("main", queue, "Cancel all", "local", alone)


async def waits(task: BackgroundTask) -> None:
    while task.goes_on:
        await task.rest(HOUR)


def ended(_: BackgroundTask) -> None:
    """Ignore the end of a task."""


def test_tasks_end_when_the_dashboard_does():
    async def run() -> BackgroundTask:
        tasks, waiting = BackgroundTasks(), task()
        tasks.start(waiting, waits, "once", ended)
        await tasks.close()
        return waiting

    assert asyncio.run(run()).status == "stopped"


def test_queue_has_one_exclusive_task_at_a_time():
    async def run() -> None:
        tasks = BackgroundTasks()
        tasks.start(task(), waits, "a", ended)
        tasks.start(task("orders"), waits, "b", ended)
        tasks.start(task(alone=False), waits, "c", ended)
        with pytest.raises(HTTPException, match="Stop that task, or wait"):
            tasks.start(task(), waits, "d", ended)
        await tasks.close()
        tasks.start(task(), waits, "e", ended)
        await tasks.close()

    asyncio.run(run())


def test_number_of_running_tasks_is_limited():
    async def run() -> None:
        tasks = BackgroundTasks()
        for number in range(MOST_RUNNING):
            tasks.start(task(f"q{number}"), waits, f"{number}", ended)
        with pytest.raises(HTTPException, match="20 tasks are running"):
            tasks.start(task("one more"), waits, "x", ended)
        await tasks.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ServerUnreachable("it is away"), "it is away"),
        (ValueError("secret"), "Internal error: see the"),
    ],
)
def test_failed_task_says_why_but_hides_details_of_a_bug(error: Exception, told: str):
    async def fails(_: BackgroundTask) -> None:
        raise error

    async def run() -> BackgroundTask:
        tasks, failing = BackgroundTasks(), task()
        tasks.start(failing, fails, "once", ended)
        await failing.over(HOUR)
        return failing

    failed = asyncio.run(run())
    assert (failed.status, told in failed.error, "secret" in failed.error) == ("failed", True, False)


def test_old_tasks_are_forgotten():
    async def nothing(_: BackgroundTask) -> None:
        pass

    async def run() -> list[BackgroundTask]:
        tasks, all_of_them = BackgroundTasks(), [task() for _ in range(MOST_KEPT + 5)]
        for number, each in enumerate(all_of_them):
            tasks.start(each, nothing, f"{number}", ended)
            await each.over(HOUR)
        return [each for each in all_of_them if tasks.get(each.id) is None]

    assert 0 < len(asyncio.run(run())) <= 5


def sent(tasks: BackgroundTasks, word: str) -> bool:
    with tasks.once(word) as is_new:
        return is_new


def test_form_counts_as_new_once():
    tasks = BackgroundTasks()
    assert [sent(tasks, "a"), sent(tasks, "a"), sent(tasks, "b")] == [True, False, True]


def test_failed_form_can_be_sent_again():
    tasks = BackgroundTasks()
    with pytest.raises(ServerUnreachable):
        fail(tasks, "a")
    assert sent(tasks, "a")


def fail(tasks: BackgroundTasks, word: str) -> None:
    with tasks.once(word):
        raise ServerUnreachable("it is away")
