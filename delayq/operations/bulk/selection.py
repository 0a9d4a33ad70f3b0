"""Select messages by what Redis holds of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delayq.model.choice import Choice
from delayq.model.text import decode_text, encode_id
from delayq.operations.doctor import scan
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute
from delayq.protocol.queue_commands import QueueCommands


def meant(scripts: QueueCommands, choice: Choice, ids: Sequence[str]) -> Operation[list[str]]:
    """Return those of `ids`, all in one shard, that are selected."""
    if not ids or choice.is_of_all:
        return list(ids)
    errors: list[Any] = [None] * len(ids)
    reasons: list[Any] = [None] * len(ids)
    stored: dict[str, bytes] = {}
    words, keys = list(map(encode_id, ids)), scripts.keys
    if choice.error is not None or choice.bare:
        errors = yield from execute(Command(keys.errors, ("HMGET", keys.errors, *words), list))
    if choice.reason is not None:
        reasons = yield from execute(Command(keys.reasons, ("HMGET", keys.reasons, *words), list))
    if choice.is_of_envelopes:
        left = dict.fromkeys(ids)
        while left:
            stored |= yield from scan.envelopes(scripts, left)
    return [
        message_id
        for message_id, error, reason in zip(ids, errors, reasons, strict=True)
        if choice.means(decode_text(error), decode_text(reason), stored.get(message_id))
    ]
