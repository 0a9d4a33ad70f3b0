"""Ids for rows without one, which stay the same if a task runs again."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
from collections import Counter

_BYTES = 15  # 20 characters: two of a trillion ids are the same once in 10^12 runs


class Ids:
    """Makes the ids of one task.

    A repeated task may get its rows in another order, so an id is made from the row's content and the number of
    identical rows before it in the task.

    Args:
        run: the name of the run; other runs make other ids.
        partition: of the task.
    """

    def __init__(self, run: str, partition: int) -> None:
        self._key = hashlib.blake2b(f"{run} {partition}".encode(), digest_size=32).digest()
        self._seen: Counter[bytes] = Counter()

    def make(self, due: str | int, envelope: bytes, expires_at: dt.datetime | None) -> str:
        """Return the id for a row.

        Args:
            due: as scripts take it.
            envelope: without the expiry, which is stored as a time from now and so differs in each try.
        """
        hasher = hashlib.blake2b(f"{due!r} {expires_at} ".encode(), key=self._key, digest_size=_BYTES)
        hasher.update(envelope)
        content = hasher.digest()
        count = self._seen[content] = self._seen[content] + 1
        if count > 1:
            content = hashlib.blake2b(content + str(count).encode(), key=self._key, digest_size=_BYTES).digest()
        return base64.urlsafe_b64encode(content).decode()
