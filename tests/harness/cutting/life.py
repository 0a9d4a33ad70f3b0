"""A complete run of a consumer that sends every command that a consumer can send."""

from __future__ import annotations

import threading
from collections import Counter

from delayq import Consumer, Message, Outgoing, Queue, Reject, backoff
from delayq.errors import ServerError
from tests.harness.cutting.stage import Stage
from tests.harness.proxy import Decide
from tests.harness.waiting import eventually

LEASE = 1.0
MEND_SECONDS = 0.15
QUICK = [f"quick-{number}" for number in range(6)]
LATER = [f"later-{number}" for number in range(16)]  # after these, a consumer prefetches again
LAST = ["blocks", "unstarted-0", "unstarted-1"]
HANDLED = {*QUICK, *LATER, "fails", "slow", "lost"}
SENT = {*HANDLED, *LAST, "rejected", "old", "gone"}


class Life:
    """One run, from the first connection to the end.

    Args:
        decide: where the connection is cut; a permanent cut is repaired after MEND_SECONDS.

    Attributes:
        begun: how often the handler got each message.
        finished: messages that were handled to the end.
    """

    def __init__(self, stage: Stage, decide: Decide) -> None:
        self.begun: Counter[str] = Counter()
        self.finished: set[str] = set()
        self._stage = stage
        self._decide = decide

    def run(self) -> None:
        """Run; raises AssertionError if it does not finish."""
        proxy = self._stage.proxy
        proxy.decide = lambda _: None
        self._stage.begin_anew()
        self._prepare(self._stage.direct)
        mending = threading.Event()
        mender = threading.Thread(target=self._mend, args=(mending,))
        mender.start()
        with Queue("jobs", url=proxy.url, lease=LEASE, backoff=backoff.fixed(0.01), dead_retention=0.001) as queue:
            consumer = Consumer(queue, self._handle, concurrency=1, shutdown_timeout=5)
            proxy.passed.clear()
            proxy.cuts, proxy.decide = 0, self._decide
            try:
                assert eventually(lambda: started(consumer)), "it did not start"
                assert eventually(self._is_drained), f"not drained: {self._stage.seen().places}"
                assert eventually(lambda: "poll_idle" in proxy.passed), "it did not come to rest"
                self._stage.direct.send_many([Outgoing(id, id=id) for id in LAST])
                assert eventually(lambda: self.begun["blocks"] > 0), "the last ones were not handled"
            finally:
                consumer.stop()
                proxy.decide = lambda _: None
                mending.set()
                mender.join()
                proxy.mend()

    def _prepare(self, queue: Queue) -> None:
        queue.send("old", id="old")
        queue.receive(lease=60)[0].reject()
        queue.send("lost", id="lost")
        queue.receive(lease=0.001)  # received by a consumer that dies
        first = [*QUICK, "fails", "rejected", "slow"]
        queue.send_many([Outgoing(id, id=id) for id in first])
        queue.send_many([Outgoing(id, id=id, delay=0.4) for id in LATER])
        queue.send("gone", id="gone")
        queue.cancel("gone")

    def _handle(self, message: Message) -> None:
        self.begun[message.id] += 1
        passed = self._stage.proxy.passed
        if message.id == "rejected":
            raise Reject
        if message.id == "fails" and self.begun["fails"] == 1:
            raise ValueError
        if message.id == "slow":
            eventually(lambda: "extend" in passed, 2 * LEASE)
        if message.id == "blocks":
            eventually(lambda: "release" in passed, 2 * LEASE)
        self.finished.add(message.id)

    def _is_drained(self) -> bool:
        stats = self._stage.direct.stats()
        return stats.inside == stats.dead and stats.garbage == 0 and self.finished >= HANDLED

    def _mend(self, end: threading.Event) -> None:
        while not end.wait(MEND_SECONDS):
            self._stage.proxy.mend()


def started(consumer: Consumer) -> bool:
    try:
        consumer.start()
    except ServerError:
        return False
    return True
