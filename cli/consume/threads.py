"""Several consumers in one process."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any

from delayq import signals
from delayq.consumer import Consumer
from delayq.errors import DelayqError

from .consumers import AsyncConsumerRunner

ABANDON_SECONDS = 5.0  # for consumers to end at once


class ConsumerThreads:
    """Runs each consumer on its own thread, or a single consumer on this one."""

    def __init__(
        self, consumers: Sequence[Consumer | AsyncConsumerRunner], burst: bool, max_messages: int | None
    ) -> None:
        self._consumers = consumers
        self._limits: dict[str, Any] = {"burst": burst, "max_messages": max_messages}
        self._errors: list[BaseException] = []
        self._signals = 0

    def run(self) -> int:
        """Run all until each has ended or a signal arrives; a second signal ends them at once.

        Returns:
            an exit code: 1 if messages were abandoned.
        """
        if len(self._consumers) == 1:
            self._consumers[0].run(**self._limits)
            return int(self._consumers[0].abandoned > 0)
        threads = [threading.Thread(target=self._run, args=(each,), daemon=True) for each in self._consumers]
        with signals.handled(self._on_signal):
            for thread in threads:
                thread.start()
            self._wait(threads)
        if self._errors:
            raise self._errors[0]
        abandoned = any(consumer.abandoned for consumer in self._consumers)
        return int(abandoned or any(thread.is_alive() for thread in threads))

    def _run(self, consumer: Consumer | AsyncConsumerRunner) -> None:
        try:
            consumer.run(**self._limits)
        except DelayqError as error:
            self._errors.append(error)

    def _wait(self, threads: Iterable[threading.Thread]) -> None:
        end = math.inf
        while any(thread.is_alive() for thread in threads) and time.monotonic() < end:
            if self._signals >= 2:
                end = min(end, time.monotonic() + ABANDON_SECONDS)
            if self._signals or self._errors:  # repeatedly: a consumer that was just starting may have missed the first
                for consumer in self._consumers:
                    if consumer.is_running or consumer.is_retiring or self._signals >= 2:
                        consumer.take_signal()
            for thread in threads:
                thread.join(0.05)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1
