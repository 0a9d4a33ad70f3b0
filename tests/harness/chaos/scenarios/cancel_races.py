"""Cancels race promotion, delivery, failure and ack: two threads cancel each message at about its due time.

Exactly one side wins each race, and the threads, the consumers and the counters agree on it.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from delayq import Queue
from tests.harness.chaos import history
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.clocks import true_time
from tests.harness.chaos.history import Event
from tests.harness.chaos.world import Broken, World

DELAY = 0.05
RATE = 200.0  # races per second
BEFORE = 0.004  # the earliest cancel, seconds before a message is due
AFTER = (0.004, 0.015, 0.1)  # the latest cancel after the due time, each for a third of the races
NEAR_MS = 2.0
CONSUMERS = 2
THREADS = 48  # each sleeps for about DELAY
ALONE = {"cancelled"}, {"in_flight"}, {"unknown"}, {"cancelled", "unknown"}, {"in_flight", "unknown"}


@dataclass(frozen=True)
class Answer:
    """The result of a cancel and its time: monotonic in seconds, and in ms by the clock of the machine and server."""

    said: str
    at: float
    ms: float


def run(world: World) -> Verdict:
    """Each message is either cancelled and never handled, or handled and not retried after a failure."""
    server = world.server()
    queue = world.queue(server.url)
    count = world.pick(1_000, 10_000)
    consumers = [
        world.consumer(server.url, "work", work=0.004, fail_every=3, retries_after=0.05) for _ in range(CONSUMERS)
    ]
    answers = race(world, queue, count)
    world.drain(queue)
    for consumer in consumers:
        world.stop(consumer)
    lives: dict[str, list[Event]] = defaultdict(list)
    for event in history.read(world.folder):
        lives[event.id].append(event)
    wins = {id: winner(lives[id], said) for id, said in answers.items()}
    wrong = {id: win for id, win in wins.items() if win.startswith("wrong")}
    if wrong:
        raise Broken(f"{len(wrong)} races have no winner, or two, such as {list(wrong.items())[:3]}")
    counts = Counter(wins.values())
    near = sum(abs(each.ms - due(lives[id])) < NEAR_MS for id, said in answers.items() for each in said)
    world.figures |= {f"{name}:": f"{count:,}" for name, count in sorted(counts.items())}
    world.figures[f"cancels within {NEAR_MS:.0f} ms of the due time:"] = f"{near:,}"
    for id, win in wins.items():
        if win == "failed in flight":
            world.journal.note("cancelled", id)
    verdict, stats = world.verdict(queue), queue.stats()
    withdrawn = counts["withdrawn"] + counts["withdrawn between attempts"] + counts["failed in flight"]
    if (stats.cancelled, stats.acked) != (withdrawn, count - withdrawn):
        raise Broken(f"{withdrawn} of {count} were withdrawn, and the books say {stats}")
    if verdict.duplicates or min(counts[name] for name in ("withdrawn", "acked in flight", "acked before")) == 0:
        raise Broken(f"these were no races, or no process has failed and yet: {verdict}; {counts}")
    return verdict


def race(world: World, queue: Queue, count: int) -> dict[str, Sequence[Answer]]:
    """Send messages, and let two threads cancel each; return their answers."""

    def cancel(id: str, moment: float) -> Answer:
        time.sleep(max(0.0, moment - time.monotonic()))
        said = queue.cancel(id)
        if said == "cancelled":
            world.journal.note("cancelled", id)
        return Answer(said, time.monotonic(), true_time() * 1000)

    futures: dict[str, list[Future[Answer]]] = {}
    began = time.monotonic()
    with ThreadPoolExecutor(THREADS) as threads:
        for number in range(count):
            time.sleep(max(0.0, began + number / RATE - time.monotonic()))
            world.send(queue, number, f"race-{number}", delay=DELAY)
            moment = time.monotonic() + DELAY + world.dice.uniform(-BEFORE, world.dice.choice(AFTER))
            futures[f"race-{number}"] = [threads.submit(cancel, f"race-{number}", moment) for _ in range(2)]
        return {id: [each.result() for each in both] for id, both in futures.items()}


def winner(events: Sequence[Event], answers: Sequence[Answer]) -> str:
    """Return how a race ended, or what is wrong with it."""
    said = {answer.said for answer in answers}
    begun = [event for event in events if event.kind == "delivered"]
    ends = [event for event in events if event.kind in {"finished", "failed"}]
    verdict = f"wrong: {[answer.said for answer in answers]}, {[event.kind for event in events]}"
    if said not in ALONE or all(answer.said == "cancelled" for answer in answers) or len(begun) != len(ends):
        return verdict
    if "cancelled" in said:
        won = next(answer for answer in answers if answer.said == "cancelled")
        if any(event.kind == "finished" or event.at > won.at for event in ends):
            return verdict
        return "withdrawn between attempts" if ends else "withdrawn"
    if not ends:
        return verdict
    if "in_flight" in said:
        first = min(answer.ms for answer in answers if answer.said == "in_flight")
        if any(event.ms > first for event in begun):  # handed out after the cancel: retried
            return verdict
        return "acked in flight" if ends[-1].kind == "finished" else "failed in flight"
    is_over = ends[-1].kind == "finished" and ends[-1].at < min(answer.at for answer in answers)
    return "acked before" if is_over else verdict


def due(events: Sequence[Event]) -> float:
    return next(event.ms for event in events if event.kind == "sent")
