"""consume MODULE:QUEUE with a batch handler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from delayq import Outgoing, Queue
from tests.cli.conftest import Invoke
from tests.harness.servers import RedisServer

TASKS = """
import structlog
from delayq import Queue, aio

sync = Queue("rows")
awaited = aio.Queue("rows")

def store(messages):
    structlog.get_logger("tasks").info("storing")
    return {message.id: message.payload < 8 for message in messages}

@awaited.batch_handler(max_messages=10, max_wait=60)
async def store_async(messages):
    return store(messages)

sync.batch_handler(max_messages=10, max_wait=60)(store)
"""


@pytest.mark.parametrize("target", ["sync", "awaited"])
def test_batches_are_handled_and_their_log_lines_have_the_size(
    invoke: Invoke, server: RedisServer, tmp_path: Path, target: str
):
    (tmp_path / "tasks.py").write_text(TASKS)
    with Queue("rows", url=server.url) as queue:
        queue.send_many(Outgoing(n) for n in range(9))
        done = invoke("consume", f"tasks:{target}", "--burst", "--log-format", "json")
        assert done.exit_code == 0, done.stderr
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        assert [(line["queue"], line["messages"]) for line in lines if line["event"] == "storing"] == [("rows", 9)]
        assert (queue.stats().acked, queue.stats().retry) == (8, 1)
