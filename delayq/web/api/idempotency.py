"""Repeated requests: a request with a known key gets the answer of the first request."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeAlias

from starlette.exceptions import HTTPException

from delayq.errors import SendError

MOST_KEPT = 10_000
MOST_BYTES = 16 << 20  # of all answers that are kept

Key: TypeAlias = tuple[str, str, str]
"""The user, the path, and the header Idempotency-Key."""


class _Kept(NamedTuple):
    digest: bytes
    answer: asyncio.Task[bytes | SendError]


class KeptAnswers:
    """The answers to the latest requests that had a key. They are lost when the dashboard restarts."""

    def __init__(self) -> None:
        self._kept: dict[Key, _Kept] = {}
        self._bytes = 0

    async def once(self, key: Key, request: bytes, act: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
        """Act, or return the answer to the earlier request with this key.

        A failed request may be sent again, unless it has sent some of its messages: its error is kept.

        Args:
            request: the content of the request, which tells whether it is the same request.

        Raises:
            HTTPException: 409 if the key belongs to another request.
            SendError: some messages of the request were sent.
        """
        digest, kept = hashlib.sha256(request).digest(), self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept(digest, asyncio.create_task(_answer(act)))
            kept.answer.add_done_callback(lambda answer: self._ended(key, answer))
        elif kept.digest != digest:
            raise HTTPException(409, "The Idempotency-Key belongs to another request: choose a new one.")
        answer = await asyncio.shield(kept.answer)
        if isinstance(answer, SendError):
            raise _bare(answer)
        return answer

    def _ended(self, key: Key, answer: asyncio.Task[bytes | SendError]) -> None:
        if not _is_good(answer):
            del self._kept[key]
            return
        self._bytes += _size(answer)
        # An answer that failed at the same time is removed by its own call of this method.
        ended = [each for each, kept in self._kept.items() if _is_good(kept.answer)] if self._is_full else []
        for each in ended:
            if not self._is_full:
                break
            self._bytes -= _size(self._kept.pop(each).answer)

    @property
    def _is_full(self) -> bool:
        return len(self._kept) > MOST_KEPT or self._bytes > MOST_BYTES


async def _answer(act: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes | SendError:
    try:
        return await act()
    except SendError as error:
        if not any(each.created for each in error.sent):
            raise
        return _bare(error)


def _bare(error: SendError) -> SendError:
    """Return an error with the same text, which keeps neither messages nor a traceback alive."""
    return type(error)(f"{error}")


def _size(answer: asyncio.Task[bytes | SendError]) -> int:
    result = answer.result()
    return len(result if isinstance(result, bytes) else f"{result}")


def _is_good(answer: asyncio.Task[bytes | SendError]) -> bool:
    return answer.done() and not answer.cancelled() and answer.exception() is None
