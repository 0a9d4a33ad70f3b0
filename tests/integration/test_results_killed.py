"""Results while consumers are killed, replies are lost, scripts are forgotten, and the server is killed.

Each caller gets the result of its own message, although others have had the same id.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from delayq import NoResult, Queue, Task, TaskFailed
from delayq.errors import ServerError
from tests.harness.proxy import WAYS, Cut, Proxy
from tests.harness.servers import RedisServer

PROGRAM = """
import itertools, os, signal, sys
from delayq import Consumer, Queue, Reject, backoff

queue = Queue("sums", url=sys.argv[1], lease=1, max_retries=1000, backoff=backoff.fixed(0.01))
runs = itertools.count(1)

@queue.task(results=600)
def double(number):
    if next(runs) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    if number % 7 == 0:
        raise Reject(f"no {number}")
    return 2 * number

Consumer(queue, concurrency=4).run()
"""

CALLERS = 6
SENDS = int(os.environ.get("SENDS_OF_A_CALLER", "40"))  # by hand: 2000
RUNS_TO_A_KILL = 12  # of a consumer process
SETTLED_TO_A_CUT = 9  # calls that settle tasks with results
ENDS_TO_A_FLUSH = 25  # of the scripts
RESTARTS = 2
SECONDS = 3000
WAIT = 300.0


def double(number: int) -> int:
    return 2 * number


class Troubles:
    """Makes trouble after a number of ends of tasks or of settled calls, never after a time.

    Attributes:
        made: how many of each kind.
    """

    def __init__(self, server: RedisServer) -> None:
        self.made: Counter[str] = Counter()
        self._server = server
        self._lock = threading.Lock()
        self._settled = itertools.count(1)
        self._ends = 0

    def decide(self, name: str) -> Cut | None:
        """Lose the replies of some of the calls that settle tasks, each in another way."""
        if name not in {"ack_result", "reject"} or next(self._settled) % SETTLED_TO_A_CUT:
            return None
        self.made["cut"] += 1
        return Cut(WAYS[self.made["cut"] % len(WAYS)])

    def ended(self) -> None:
        """Note that a task has ended."""
        with self._lock:
            self._ends += 1
            if self._ends % ENDS_TO_A_FLUSH == 0:
                with self._server.client() as client:
                    client.script_flush()
                self.made["flush"] += 1
            if self._ends % (CALLERS * SENDS // (RESTARTS + 1)) == 0 and self.made["restart"] < RESTARTS:
                self._server.kill()
                self._server.start()
                self.made["restart"] += 1


def again(call: Callable[[], Any]) -> Any:
    """Call until the server answers."""
    while True:
        try:
            return call()
        except ServerError:
            time.sleep(0.05)


def calls(queue: Queue, task: Task[Any, int, Any], caller: int, troubles: Troubles) -> list[str]:
    """Send messages with the same id, one after the other, and return those that had another's result, or none."""
    wrong = []
    name = f"caller-{caller}"
    for turn in range(SENDS):
        number = turn * CALLERS + caller
        is_cancelled = turn % 5 == 4
        sending = task.options(id=name, delay=3600 if is_cancelled else 0)
        sent = again(partial(sending.send, number))
        if is_cancelled:
            again(partial(queue.cancel, name))
        expected = "none" if is_cancelled else f"no {number}" if number % 7 == 0 else str(2 * number)
        try:
            found = str(sent.result(WAIT))
        except TaskFailed as error:
            found = error.reason
        except NoResult:
            found = "none"
        if found == f"no {number}":
            again(partial(queue.cancel, name))  # its id is free again
        if found != expected:
            wrong.append(f"{name}, {number}: {found} instead of {expected}")
        troubles.ended()
    return wrong


@pytest.mark.full
@pytest.mark.timeout(SECONDS)
def test_each_caller_gets_the_result_of_its_own_message(own_server: RedisServer, tmp_path: Path):
    program = tmp_path / "consumer.py"
    program.write_text(PROGRAM)
    troubles, kills, running = Troubles(own_server), 0, list[subprocess.Popen[bytes]]()
    path = Path(own_server.url.removeprefix("unix://").partition("?")[0])
    with (
        Proxy(path, troubles.decide) as proxy,
        Queue("sums", url=own_server.url) as queue,
        ThreadPoolExecutor(CALLERS) as threads,
    ):
        task = queue.task(results=600, max_retries=1000)(double)
        waits = [threads.submit(calls, queue, task, caller, troubles) for caller in range(CALLERS)]
        try:
            while not all(each.done() for each in waits):
                while len(running) < 2:
                    command = [sys.executable, str(program), proxy.url, str(RUNS_TO_A_KILL)]
                    running.append(subprocess.Popen(command))
                time.sleep(0.05)
                killed = [each for each in running if each.poll() is not None]
                assert {each.returncode for each in killed} <= {-signal.SIGKILL}
                kills += len(killed)
                running = [each for each in running if each not in killed]
        finally:
            for each in running:
                each.kill()
                each.wait()
        wrong = [line for each in waits for line in each.result()]
        stats = queue.stats()
    assert wrong == []
    assert (stats.inside, stats.missing) == (0, 0)
    ran = CALLERS * SENDS * 4 // 5
    assert kills >= ran // RUNS_TO_A_KILL - 2  # the last two processes had fewer runs
    assert troubles.made["restart"] == RESTARTS
    assert troubles.made["flush"] == CALLERS * SENDS // ENDS_TO_A_FLUSH
    assert troubles.made["cut"] >= ran // SETTLED_TO_A_CUT // 4  # a call may settle several
    sys.stdout.write(f"{ran} results: {kills} kills, {dict(troubles.made)}, {stats.delivered} deliveries\n")
