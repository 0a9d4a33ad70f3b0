# /// script
# requires-python = ">=3.11"
# dependencies = ["taskiq==0.13.0", "taskiq-redis==1.2.4", "redis==8.1.0", "hiredis==3.5.0", "uvloop==0.23.0"]
# ///
"""Taskiq with taskiq-redis: a worker and a scheduler."""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import os
import subprocess
import sys
import threading
from typing import Any

import uvloop
from messages import Message
from peer import AsyncPeer, Run, Verb
from protocol import main
from taskiq import TaskiqScheduler
from taskiq.api import run_receiver_task, run_scheduler_task
from taskiq_redis import ListRedisScheduleSource, RedisStreamBroker

UPDATE = dt.timedelta(
    seconds=0.5
)  # less than the loop's second, which may be a little short, so that no round is skipped


class TaskiqPeer(AsyncPeer):
    name = "Taskiq"
    version = f"{importlib.metadata.version('taskiq')}, taskiq-redis {importlib.metadata.version('taskiq-redis')}"
    throughput = (
        "RedisStreamBroker, which acks (ListQueueBroker does not), max_async_tasks=100, the default, parameters "
        "not parsed; on uvloop, which was faster"
    )
    latency = (
        "the same, with schedules read again every second instead of every minute; the scheduler sends once a second, "
        "on the second, as often as it can"
    )
    note = (
        "There are two processes: a worker, and a scheduler with ListRedisScheduleSource, as its docs recommend. Each "
        "removal of a schedule searches the list of its minute, and acked entries stay in the stream."
    )
    no_bulk = "schedules are added one by one"
    loop_factory = uvloop.new_event_loop

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.broker = RedisStreamBroker(run.url, queue_name="bench")
        self.source = ListRedisScheduleSource(run.url)

        @self.broker.task(task_name="handle")
        async def handle(payload: str) -> None:
            self.tally.note(payload)

        self.task = handle

    async def send(self, message: Message) -> None:
        await self.task.schedule_by_time(self.source, message.at, message.payload)

    def consume(self) -> None:
        self.run(self._consume())

    async def _consume(self) -> None:
        await self.broker.startup()  # creates the stream's group, which gets only what is sent later
        command = [sys.executable, __file__, "schedule", "--url", self.url]
        scheduler = subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: ASYNC220  # nothing else runs yet

        def stop() -> None:
            scheduler.terminate()
            scheduler.wait()

        self.tally.ready(stop)
        await run_receiver_task(self.broker, validate_params=False, max_async_tasks=100)

    def verbs(self) -> dict[str, Verb]:
        return {"schedule": self._schedule}

    def _schedule(self, _options: argparse.Namespace) -> dict[str, Any]:
        threading.Thread(target=_end_with_parent, daemon=True).start()
        scheduler = TaskiqScheduler(self.broker, [self.source])
        second = dt.timedelta(seconds=1)
        self.run(run_scheduler_task(scheduler, run_startup=True, interval=UPDATE, loop_interval=second))
        raise SystemExit("the scheduler has ended")


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(TaskiqPeer)
