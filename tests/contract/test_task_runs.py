"""How often tasks ran, and how it ended: `QueueStats.tasks`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from delayq import Ack, Outgoing, Reject, RetryAfter
from delayq.model.outcome import DONE
from delayq.model.task_runs import RunCounter
from delayq.types import TaskRuns
from tests.contract.conftest import Drain
from tests.contract.test_tasks import task


def ends(how: str) -> Any:
    match how:
        case "reject":
            raise Reject("no")
        case "retry":
            raise RetryAfter(60)
        case "chain":
            return Ack(then=[Outgoing({"how": "none"}, task="ends")])
        case "fail":
            raise ValueError(how)
        case _:
            return None if how == "none" else False


def test_runs_of_a_task_are_counted_by_how_they_end(queue: Any, drain: Drain):
    sender = task(queue, ends, max_retries=0)
    for how in ("none", "false", "chain", "reject", "fail"):
        sender.send(how)
    queue.send({"how": "retry"}, task="ends", max_retries=1)
    drain(queue, None)
    assert queue.stats().tasks == {"ends": TaskRuns(acked=4, failed=1, dead=2)}


def test_names_that_no_code_here_has_are_counted_as_other_once_they_are_dead(queue: Any, drain: Drain, now: Any):
    task(queue, ends)
    queue.send({}, task='"un\\known"', id="a", max_retries=0)
    drain(queue, None)
    assert queue.stats().tasks == {}  # it may wait for a consumer that has the task
    for _ in range(20):
        now.advance(60)
        drain(queue, None)
    assert queue.get("a").state == "dead"
    assert queue.stats().tasks == {"other": TaskRuns(dead=1)}


def test_queue_without_tasks_counts_none(queue: Any, drain: Drain):
    queue.send({"n": 1})
    queue.send({"n": 1}, headers={"x": "y"})
    drain(queue, lambda _: None)
    assert (queue.stats().tasks, queue.stats().acked) == ({}, 2)


def test_run_that_its_handler_has_released_is_not_counted():
    counter, message = RunCounter(None), SimpleNamespace(task="ends", released=True, failed=False, death=None)
    counter.note(message, DONE)  # type: ignore[arg-type]
    assert counter.counts == {}
    message.released = False
    counter.note(message, DONE)  # type: ignore[arg-type]
    assert counter.counts == {"task:acked:ends": 1}
