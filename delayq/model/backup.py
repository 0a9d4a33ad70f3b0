"""Messages and schedules outside of their queue, as a backup keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from delayq.model.occurrence import PAUSED, occurrence_id


class KeptMessage(NamedTuple):
    """A message to restore: its score, ms, and its envelope with the stamp; missing values are empty."""

    message_id: str
    score: str | bytes | float
    stored: bytes
    deliveries: str = ""
    error: str = ""
    reason: str = ""


class ExpectedMessage(NamedTuple):
    """A message to remove while it is as it was seen: its score, ms, and its envelope's stamp, "" if that is gone."""

    message_id: str
    score: str | bytes | float
    stamp: str


class KeptSchedule(NamedTuple):
    """A schedule as it is stored: its record, and the armed slot in ms, or PAUSED or FINISHED."""

    name: str
    record: bytes
    slot_ms: int


def renamed(kept: Sequence[KeptSchedule], shards_then: int, shards: int) -> dict[str, str]:
    """Return the next occurrences whose ids differ in a queue with `shards` shards, with their new ids."""
    names = {
        occurrence_id(each.name, each.slot_ms, shards_then): occurrence_id(each.name, each.slot_ms, shards)
        for each in kept
        if each.slot_ms > PAUSED
    }
    return {before: after for before, after in names.items() if before != after}
