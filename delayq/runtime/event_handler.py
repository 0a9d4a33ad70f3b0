"""How the consumer of a ledger handles an entry that holds several events: one after the other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from delayq.errors import Reject
from delayq.model.outcome import Ack, is_coroutine_function
from delayq.model.record import Record
from delayq.operations.topics.event_records import events_of

MOST_KNOWN = 10_000

Key = tuple[int, str, str]


class _Handled:
    """The events that were handled, of entries that will be delivered again, since others of their events failed."""

    def __init__(self) -> None:
        self._done: OrderedDict[Key, set[str]] = OrderedDict()

    def left(self, record: Record) -> list[Record]:
        """Return the events of an entry that are to be handled."""
        done = self._done.pop(_key(record), ())
        return [each for each in events_of(record) if each.id not in done]

    def ended(self, record: Record, results: dict[str, Any]) -> Any:
        """Return or raise what the entry's delivery ends with, by the result or the error of each event.

        A failure that is retried comes before a Reject, so that the entry becomes a dead letter only once the other
        events are handled.
        """
        failures = [each for each in results.values() if _has_failed(each)]
        if not failures:
            return None
        failed = {event for event, result in results.items() if _has_failed(result)}
        self._done[_key(record)] = {each.id for each in events_of(record)} - failed
        while len(self._done) > MOST_KNOWN:  # of the oldest, all events are handled again
            self._done.popitem(last=False)
        first = next((each for each in failures if not isinstance(each, Reject)), failures[0])
        if isinstance(first, Exception):
            raise first
        return first


def one_by_one(handler: Callable[[Record], Any]) -> Callable[[Record], Any]:
    """Return a function that calls a handler with each event of an entry, but not with those handled before."""
    handled = _Handled()

    if is_coroutine_function(handler):

        async def handle_async(record: Record) -> Any:
            results: dict[str, Any] = {}
            for event in handled.left(record):
                try:
                    results[event.id] = await handler(event)
                except Exception as error:  # noqa: BLE001  # raised once the others are handled
                    results[event.id] = error
            return handled.ended(record, results)

        return handle_async

    def handle(record: Record) -> Any:
        results: dict[str, Any] = {}
        for event in handled.left(record):
            try:
                results[event.id] = handler(event)
            except Exception as error:  # noqa: BLE001  # raised once the others are handled
                results[event.id] = error
        return handled.ended(record, results)

    return handle


def _has_failed(result: Any) -> bool:
    return result is False or isinstance(result, Exception) or (isinstance(result, Ack) and bool(result.then))


def _key(record: Record) -> Key:
    return record.shard, record.id, record.group_mark
