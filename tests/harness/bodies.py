"""JSON bodies that no client of delayq sends, and how to put one into a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from delayq.model.envelope import FORMAT, JSON, Envelope, encode
from delayq.operations.encode import EncodedMessage
from delayq.operations.send import send_encoded

DEEP = 500  # levels that every reader decodes

READABLE: dict[str, bytes] = {
    "a-hundred-levels": b"[" * 100 + b"]" * 100,
    "as-many-levels-as-allowed": b'{"a":' * (DEEP - 1) + b"[]" + b"}" * (DEEP - 1),
    "four-thousand-digits": b"9" * 4000,
    "no-deeper-in-a-string": b'["' + b"[" * 2000 + b'\\\\\\"", "\\\\", [1]]',
}
UNREADABLE: dict[str, bytes] = {
    "cut": b"[1,",
    "not-a-number": b"NaN",
    "beyond-a-float": b"1e999",
    "half-a-surrogate": b'"\\ud800"',
    "empty": b"",
    "not-text": b'"\xff"',
    "five-thousand-digits": b"9" * 5000,
    "five-thousand-digits-within": b'{"a": -' + b"9" * 5000 + b"}",
    "one-level-more-than-allowed": b"[" * (DEEP + 1) + b"]" * (DEEP + 1),
    "a-level-more-behind-a-string": b'["]\\\\", ' + b"[" * DEEP + b"]" * DEEP + b"]",
    "a-level-more-behind-a-quote": b'["\\"]", ' + b"[" * DEEP + b"]" * DEEP + b"]",
    "a-thousand-levels": b"[" * 1000 + b"]" * 1000,
    "a-thousand-objects": b'{"a":' * 1000 + b"1" + b"}" * 1000,
    "five-thousand-levels": b"[" * 5000 + b"]" * 5000,
    "a-hundred-thousand-levels": b"[" * 100_000 + b"]" * 100_000,
    "a-hundred-thousand-levels-begun": b"[" * 100_000,
}
BODIES = READABLE | UNREADABLE


def write(queue: Any, bodies: Mapping[str, bytes], max_retries: int = 0) -> None:
    """Store a message for each body, whose name is its id, in a queue of either API, as another client could."""
    queue.execute(
        send_encoded,
        [
            EncodedMessage(name, "+0", encode(Envelope(FORMAT, JSON, body, max_retries)), "replace", True)
            for name, body in bodies.items()
        ],
    )
