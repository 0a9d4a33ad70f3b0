"""Requests that are sent twice: one with a key that was used already gets the answer of the first time."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeAlias

from starlette.exceptions import HTTPException

MOST_KEPT = 10_000
MOST_BYTES = 16 << 20  # of all answers that are kept

Key: TypeAlias = tuple[str, str, str]
"""Who asks, the path, and the header Idempotency-Key."""


class _Kept(NamedTuple):
    digest: bytes
    answer: asyncio.Task[bytes]


class KeptAnswers:
    """The answers of the last requests that had a key; they are gone when the dashboard is started again."""

    def __init__(self) -> None:
        self._kept: dict[Key, _Kept] = {}
        self._bytes = 0

    async def once(self, key: Key, request: bytes, act: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        """Act, or return the answer of the request that had the key before; one that failed may be sent again.

        Args:
            request: what the request says, by which it is known again.

        Raises:
            HTTPException: 409, the key belongs to another request.
        """
        digest, kept = hashlib.sha256(request).digest(), self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept(digest, asyncio.create_task(act()))
            kept.answer.add_done_callback(lambda answer: self._ended(key, answer))
        elif kept.digest != digest:
            raise HTTPException(409, "The Idempotency-Key belongs to another request: choose a new one.")
        return await asyncio.shield(kept.answer)

    def _ended(self, key: Key, answer: asyncio.Task[bytes]) -> None:
        if not _is_good(answer):
            del self._kept[key]
            return
        self._bytes += len(answer.result())
        # One that failed at the same moment leaves by its own call of this.
        ended = [each for each, kept in self._kept.items() if _is_good(kept.answer)] if self._is_full else []
        for each in ended:
            if not self._is_full:
                break
            self._bytes -= len(self._kept.pop(each).answer.result())

    @property
    def _is_full(self) -> bool:
        return len(self._kept) > MOST_KEPT or self._bytes > MOST_BYTES


def _is_good(answer: asyncio.Task[bytes]) -> bool:
    return answer.done() and not answer.cancelled() and answer.exception() is None
