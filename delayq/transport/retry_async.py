"""Retries of the async API after a failed connection, with the rules of `clients`."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from redis.asyncio.retry import Retry
from redis.backoff import EqualJitterBackoff
from redis.exceptions import AuthenticationError, AuthorizationError

from delayq.transport.clients import FAILURES, HURRIES, REPEATS, RETRIES, RETRY_SECONDS

T = TypeVar("T")


def retry(seconds: float = RETRY_SECONDS, base: float = 0.1) -> Retry:
    """Return the retry rule for failed connections, like that of `clients`."""
    failures: Any = FAILURES
    rule = _Retry(EqualJitterBackoff(base=base, cap=1), RETRIES, failures)
    rule.seconds = seconds
    return rule


class _Retry(Retry):
    """Like that of `clients`: it does not repeat calls that must not run twice, or multiply connection attempts."""

    seconds = RETRY_SECONDS

    async def call_with_retry(
        self,
        do: Callable[[], Awaitable[T]],
        fail: Callable[..., Any],
        is_retryable: Callable[[Exception], bool] | None = None,
        with_failure_count: bool = False,
    ) -> T:
        end = time.monotonic() + self.seconds
        retries = self._retries if REPEATS.get() else 0
        token = REPEATS.set(False)  # connecting within this call is not retried separately
        try:
            for failures in itertools.count(1):
                try:
                    return await do()
                except (AuthenticationError, AuthorizationError):
                    raise  # it would be refused again, and some servers lock out a user who insists
                except self._supported_errors as error:
                    await (fail(error, failures) if with_failure_count else fail(error))
                    is_over = failures > retries or HURRIES.get()() or time.monotonic() >= end
                    if is_over or (is_retryable is not None and not is_retryable(error)):
                        raise
                    await asyncio.sleep(self._backoff.compute(failures))
        finally:
            REPEATS.reset(token)
        raise AssertionError  # the loop never ends by itself
