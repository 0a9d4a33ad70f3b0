"""How often a command of the async face is repeated when its connection failed: as `clients` says."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from redis.asyncio.retry import Retry
from redis.backoff import EqualJitterBackoff
from redis.exceptions import AuthenticationError, AuthorizationError

from delayq.transport.clients import FAILURES, HURRIES, REPEATS, RETRIES

T = TypeVar("T")


def retry(base: float = 0.1) -> Retry:
    """Return the rule by which a call is repeated when its connection failed: `base` seconds first, then doubling."""
    failures: Any = FAILURES
    return _Retry(EqualJitterBackoff(base=base, cap=1), RETRIES, failures)


class _Retry(Retry):
    """As that of `clients`: it neither repeats what must not run twice, nor multiplies the tries to connect."""

    async def call_with_retry(
        self,
        do: Callable[[], Awaitable[T]],
        fail: Callable[..., Any],
        is_retryable: Callable[[Exception], bool] | None = None,
        with_failure_count: bool = False,
    ) -> T:
        retries = self._retries if REPEATS.get() else 0
        token = REPEATS.set(False)  # whatever connects within this call makes no tries of its own
        try:
            for failures in itertools.count(1):
                try:
                    return await do()
                except (AuthenticationError, AuthorizationError):
                    raise  # refused it stays, and some servers lock out a user who insists
                except self._supported_errors as error:
                    await (fail(error, failures) if with_failure_count else fail(error))
                    if failures > retries or HURRIES.get()() or (is_retryable is not None and not is_retryable(error)):
                        raise
                    await asyncio.sleep(self._backoff.compute(failures))
        finally:
            REPEATS.reset(token)
        raise AssertionError  # the count has no end
