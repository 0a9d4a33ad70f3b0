"""Matching: which of some messages are meant; only what the choice asks for is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delayq.calls import Call, Steps, one, text, word
from delayq.operations import scanning
from delayq.operations.choosing import Choice
from delayq.scripts import Scripts


def meant(
    scripts: Scripts, choice: Choice, ids: Sequence[str], sized: dict[str, int] | None = None
) -> Steps[list[str]]:
    """Return those of `ids`, of one shard, that are meant.

    Args:
        sized: the sizes of their envelopes, in bytes, where they are known already.
    """
    if not ids or choice.is_of_all:
        return list(ids)
    errors: list[Any] = [None] * len(ids)
    reasons: list[Any] = [None] * len(ids)
    stored: dict[str, bytes] = {}
    words, keys = list(map(word, ids)), scripts.keys
    if choice.error is not None or choice.bare:
        errors = yield from one(Call(keys.errors, ("HMGET", keys.errors, *words), list))
    if choice.reason is not None:
        reasons = yield from one(Call(keys.reasons, ("HMGET", keys.reasons, *words), list))
    if choice.is_of_envelopes:
        left = dict(sized) if sized is not None else (yield from scanning.sizes(scripts, ids))
        while left:
            stored |= yield from scanning.envelopes(scripts, left)
    return [
        message_id
        for message_id, error, reason in zip(ids, errors, reasons, strict=True)
        if choice.means(text(error), text(reason), stored.get(message_id))
    ]
