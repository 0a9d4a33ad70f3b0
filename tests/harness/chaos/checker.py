"""The verdict on a history, after Jepsen's total-queue.

After a full drain, every acknowledged send is handled or accounted for; nothing was handled that was not sent, and
nothing too early. Messages handled twice are counted, and a fault must explain each, as well as each attempt that was
lost before a handler saw it. The number of an attempt only rises.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from tests.harness.chaos.history import Event
from tests.harness.chaos.troubles import UNSETTLED_SECONDS, Troubles

WRONG = ("lost", "unexpected", "resurrected", "early", "unexplained", "unfenced")


@dataclass(frozen=True)
class Verdict:
    """The result of a history.

    Attributes:
        sends: the number of acknowledged sends.
        deliveries: the number of started deliveries.
        duplicates: deliveries of messages that an earlier delivery had started to handle and had not failed.
        buried: messages found among the dead letters.
        worst_recovery: seconds from a fault until the last message it hit was handled; 0 if it hit nothing.
        lost: acknowledged, but neither handled to the end nor accounted for; or handed out while the server had no
            trouble, and not handled to the end.
        unexpected: delivered, although no send was attempted, or all were refused.
        resurrected: delivered after `cancel` had confirmed that they would not be.
        early: delivered before they were due, or before the wait after a failure was over.
        unexplained: messages with duplicates or unseen attempts that no fault explains.
        unfenced: messages delivered under the number of an earlier attempt, or a lower one.
    """

    sends: int
    deliveries: int
    duplicates: int
    buried: int
    worst_recovery: float
    lost: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    resurrected: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    unfenced: list[str] = field(default_factory=list)

    @property
    def is_valid(self) -> bool:
        return not any(getattr(self, name) for name in WRONG)

    def __str__(self) -> str:
        counts = [("sends", self.sends), ("deliveries", self.deliveries), ("duplicates", self.duplicates)]
        counts += [("dead", self.buried)] + [(name, len(getattr(self, name))) for name in WRONG]
        said = "  ".join(f"{name} {count:,}" for name, count in counts)
        return f"{said}  worst recovery {self.worst_recovery:.2f} s"


def check(history: Iterable[Event], lease: float | None = None, unsettled: float = UNSETTLED_SECONDS) -> Verdict:
    """Judge a history that ends with a full drain; its events are ordered by time.

    Args:
        lease: the consumers' lease in seconds. It makes the worst recovery an upper bound also for messages that were
            handed out but had not reached their handler. None if leases differ, or if it does not matter.
        unsettled: as in `Troubles`.
    """
    lives: dict[str, list[Event]] = defaultdict(list)
    faults: list[Event] = []
    for event in history:
        if event.kind in {"fault", "recovered"}:
            faults.append(event)
        else:
            lives[event.id].append(event)
    troubles = Troubles(faults, lease, unsettled)
    sends = deliveries = duplicates = buried = 0
    found: dict[str, list[str]] = {name: [] for name in WRONG}
    worst = 0.0
    for message_id, life in lives.items():
        events = _with_first_dues(life)
        kinds = [event.kind for event in events]
        sends += "sent" in kinds
        deliveries += kinds.count("delivered")
        buried += "buried" in kinds
        duplicates += sum(later.kind == "delivered" for _, _, later in _repeated(events))
        worst = max(worst, troubles.recovery(events))
        for wrong in _wrongs(events, troubles):
            found[wrong].append(message_id)
    return Verdict(sends, deliveries, duplicates, buried, worst, **found)


def _with_first_dues(events: Sequence[Event]) -> Sequence[Event]:
    """Give each delivery the time when its attempt first fell due, not when it was returned behind others."""
    if all(event.kind != "unstarted" for event in events):
        return events
    first: dict[tuple[int, int], float] = {}  # by the attempt, and when it fell due again
    calls = []
    for event in events:
        due_ms = first.get((event.attempt, int(event.due_ms)), event.due_ms)
        if event.kind == "unstarted":
            first[event.attempt, int(event.ms)] = due_ms
        calls.append(replace(event, due_ms=due_ms) if event.kind == "delivered" else event)
    return calls


def _wrongs(events: Sequence[Event], troubles: Troubles) -> Iterator[str]:
    """Name what is wrong with a message's life."""
    kinds = [event.kind for event in events]
    begun = [event for event in events if event.kind == "delivered"]
    if not {"finished", "cancelled", "buried"}.intersection(kinds) and (
        "sent" in kinds or (begun and not troubles.of_server(begun[0].at))
    ):
        yield "lost"
    if begun and kinds.count("attempted") <= kinds.count("refused"):
        yield "unexpected"
    if _is_resurrected(events):
        yield "resurrected"
    if _is_early(events, troubles) or _is_retried_early(events, troubles):
        yield "early"
    explained = (troubles.explain(earlier, end, later) for earlier, end, later in _repeated(events))
    if not (all(explained) and all(map(troubles.explain_unseen, _after_unseen(events)))):
        yield "unexplained"
    if not all(troubles.explain_order(earlier, later) for earlier, later in _disordered(events)):
        yield "unfenced"


def _is_resurrected(events: Sequence[Event]) -> bool:
    gone = False
    for event in events:
        if event.kind in {"cancelled", "attempted"}:  # another send starts another message
            gone = event.kind == "cancelled"
        elif event.kind == "delivered" and gone:
            return True
    return False


def _is_early(events: Sequence[Event], troubles: Troubles) -> bool:
    # A message delivered before the last send call was stored by an earlier one, whose due time is unknown. During
    # server trouble, a call sends more than once, and returns the due time of the last.
    called = max((event.at for event in events if event.kind == "attempted"), default=0.0)
    sent = next((event for event in reversed(events) if event.kind == "sent"), None)
    if sent is None:
        return False
    stored = sent.at if troubles.of_server_between(called, sent.at) else called
    begun = [event for event in events if event.kind == "delivered" and event.at >= stored]
    return any(event.ms < sent.ms or event.wall_ms < int(sent.ms) for event in begun)


def _is_retried_early(events: Sequence[Event], troubles: Troubles) -> bool:
    for failed in (event for event in events if event.kind == "failed"):
        for event in events:
            is_next = event.kind == "delivered" and event.attempt == failed.attempt + 1
            is_hasty = is_next and 0 < (event.at - failed.at) * 1000 < failed.ms
            if is_hasty and not troubles.explain(failed, None, event):  # a lost lease ends the wait
                return True
    return False


def _repeated(events: Sequence[Event]) -> list[tuple[Event, Event | None, Event]]:
    """Each delivery that did not fail, how its handler ended, and what came anyway: another delivery, or a death."""
    repeated = []
    begun: Event | None = None
    end: Event | None = None
    for event in events:
        if event.kind in {"delivered", "buried"}:
            if begun is not None:
                repeated.append((begun, end, event))
            begun, end = (event if event.kind == "delivered" else None), None
        elif begun is not None and (event.attempt, event.pid) == (begun.attempt, begun.pid):
            if event.kind in {"failed", "released"}:
                begun = end = None
            elif event.kind == "finished":
                end = event
    return repeated


def _after_unseen(events: Sequence[Event]) -> list[Event]:
    """Return the deliveries and deaths that follow unseen attempts."""
    found: list[Event] = []
    seen = 0
    for event in events:
        if event.kind == "buried":
            found += [event] if event.attempt > seen else []
        elif event.kind == "delivered":
            found += [event] if event.attempt > seen + 1 else []
            seen = max(seen, event.attempt)
    return found


def _disordered(events: Sequence[Event]) -> list[tuple[Event, Event]]:
    """Return each delivery whose attempt is not above an earlier one, preceded by that earlier one."""
    found: list[tuple[Event, Event]] = []
    highest: Event | None = None
    for event in events:
        if event.kind in {"attempted", "released"}:  # another send starts another message
            highest = None
        elif event.kind == "delivered":
            if highest is not None and event.attempt <= highest.attempt:
                found.append((highest, event))
            else:
                highest = event
    return found
