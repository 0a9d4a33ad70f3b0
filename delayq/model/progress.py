"""How much of a call that takes several round trips is stored, for the text of an error in its middle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from delayq import errors
from delayq.errors import DelayqError, QueueFull, ServerError, ServerNotReady, ServerUnreachable


class Progress:
    """Counts what is stored.

    Args:
        what: the text after the number, such as "of 300 messages are stored".

    Attributes:
        stored: how many the server has confirmed, including those whose ids existed.
        in_doubt: whether an answer is missing, so that more may be stored.
    """

    def __init__(self, what: str) -> None:
        self.stored = 0
        self.in_doubt = False
        self._what = what

    def __str__(self) -> str:
        least = "at least " if self.in_doubt else ""
        return f"{least}{self.stored:,} {self._what}"

    def note(self, parts: Sequence[Sequence[Any]], replies: Sequence[Any]) -> None:
        """Count the answers to a round trip in which each call stores a part."""
        answered = zip(parts, replies, strict=True)
        self.stored += sum(len(part) for part, reply in answered if not isinstance(reply, DelayqError))
        # A call that is not served may have been stored by an earlier try, whose reply was lost.
        self.in_doubt = any(isinstance(reply, ServerNotReady | ServerUnreachable) for reply in replies)

    @contextmanager
    def explained(self, more: str = "") -> Iterator[None]:
        """Add the count and `more` to the text of a server's error, or of one about a full queue."""
        try:
            yield
        except (ServerError, QueueFull) as error:
            kind = next(each for each in type(error).__mro__ if each.__module__ == errors.__name__)
            raise kind(f"{error}; {self}{more}") from error
