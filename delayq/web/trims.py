"""Trimming a topic, as a task."""

from __future__ import annotations

from starlette.requests import Request

from delayq.aio import Topic
from delayq.model.record import TrimPlan
from delayq.model.show import plural
from delayq.model.units import from_ms
from delayq.operations.topics.trim import TrimSweep
from delayq.web import audit
from delayq.web.background_tasks import BackgroundTask, Work
from delayq.web.request_context import who
from delayq.web.request_tasks import begin

MOST_IDS = 100


def start_trim(request: Request, topic: Topic, plan: TrimPlan, once: str) -> BackgroundTask:
    """Start a task that deletes the oldest records, with audit lines at its start and end."""
    server, title = request.path_params["server"], f"Trim to {kept(plan)}"
    task = BackgroundTask(server, "", title, who(request), alone=True, topic=topic.name)
    line = {"who": task.who, "action": "trim", "server": server} | task.about() | {"to": kept(plan), "task": task.id}
    begin(request, task, _trimmed(topic, plan), once, line)
    audit.note(request, line | {"outcome": "began"})
    return task


def _trimmed(topic: Topic, plan: TrimPlan) -> Work:
    async def work(task: BackgroundTask) -> None:
        sweep = TrimSweep(plan)
        while not sweep.done and task.goes_on:
            done = await topic.execute(sweep.step)
            task.tell(done, None, f"Deleted {plural(done, 'record')}.", done=done)
            await task.rest(0)

    return work


def kept(plan: TrimPlan) -> str:
    """Say what a trim keeps."""
    if plan.length is not None:
        return f"the newest {plan.length:,} (per shard)"
    return f"records published since {from_ms(plan.since_ms or 0):%Y-%m-%d %H:%M:%S} UTC"
