"""The actions. A row says what one is called, where it applies, and what becomes of its targets.

The HTTP API's operations, the dashboard's buttons and confirmations, audit lines, and the ids that a shell completes
are made from these rows; commands take their words from them. `delayq.operations.bulk.actions.PREPARE` says how each
action on messages does its work; those on schedules are methods of `Schedules`, and the others classes of
`delayq.web.group_changes` and `delayq.web.record_changes`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from delayq.model.placement import PURGEABLE, WAITING, State
from delayq.model.rate_text import per_second
from delayq.model.units import delay_ms, milliseconds, parse_age, parse_duration, timestamp_ms

Outcome: TypeAlias = Literal[
    "cancelled", "stopping", "buried", "rescheduled", "requeued", "in_flight", "dead", "unknown", "left"
]


class Unchanged(msgspec.Struct, frozen=True):
    """Why an action has left a message as it was.

    Attributes:
        sentence: about one message, after its id.
        counted: after a number of messages.
        about: for the HTTP API; empty if the outcome says it.
    """

    sentence: str
    counted: str
    about: str = ""


UNCHANGED: Final[dict[str, Unchanged]] = {
    "in_flight": Unchanged(
        "is being handled now",
        "delivered meanwhile",
        "it is running; if you cancelled it, it finishes but is not retried",
    ),
    "left": Unchanged(
        "not dead or without a payload",
        "not dead, or without a payload",
        "it is not dead, or its payload is gone",
    ),
    "unknown": Unchanged("is not in the queue", "gone meanwhile", "no message has this id"),
    "dead": Unchanged("is already dead", "dead meanwhile"),
}
"""By outcome."""


class Words(msgspec.Struct, frozen=True):
    """What an action is called.

    Attributes:
        verb: the text of its button.
        became: what has become of its targets, after their number.
        warning: what to know before confirming it.
    """

    verb: str
    became: str
    warning: str = ""


class CommandText(msgspec.Struct, frozen=True):
    """The command of an action on messages by id, which is made from its row.

    Attributes:
        short: its description in lists.
        help: its help text.
        example: the commands that its help ends with; they run as printed.
        done: the line about a message that was changed, with {} for its id.
        in_lake: whether it has --lake, and the method also looks in the lake.
    """

    short: str
    help: str
    example: str
    done: str
    in_lake: bool = False


class How(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an action.

    Attributes:
        due: to reschedule: the new due time, or seconds from now.
        shift: to reschedule, instead of `due`: seconds by which each message's own time changes.
        spread: to reschedule: seconds after `due` over which the new times are spread.
        delay: to requeue: seconds until they are due.
        rate: to requeue matches: the maximum rate, messages a second.
    """

    due: float | dt.datetime | None = None
    shift: float | None = None
    spread: float = 0
    delay: float = 0
    rate: float | None = None


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of an action, as its form asks for it.

    Attributes:
        name: of its input; not one that a filter has.
        label, placeholder, size: what the input shows, and its width.
        hint: what stands below it.
        read: returns the fields of `How` for its text; raises InvalidInput. In requests and commands that are made from
            the row, this is the one with the field's name.
        is_required: whether it must not be empty.
        of_matching: whether it is only for all messages that match.
    """

    name: str
    label: str
    placeholder: str
    size: int
    hint: str = ""
    read: Callable[[str], Mapping[str, Any]]
    is_required: bool = False
    of_matching: bool = False


def _read_time(text: str) -> dict[str, Any]:
    if text[:1] in ("+", "-"):
        shift = parse_duration(text[1:])
        milliseconds(shift, "when")  # checks it
        return {"shift": -shift if text[0] == "-" else shift}
    due = parse_age(text)
    timestamp_ms(due, "when") if isinstance(due, dt.datetime) else delay_ms(due, "when")  # checks it
    return {"due": due}


def _read_spread(text: str) -> dict[str, Any]:
    spread = parse_duration(text) if text else 0
    milliseconds(spread, "spread")  # checks it
    return {"spread": spread}


def _read_delay(text: str) -> dict[str, Any]:
    delay = parse_duration(text) if text else 0
    delay_ms(delay)  # checks it
    return {"delay": delay}


def _read_rate(text: str) -> dict[str, Any]:
    return {"rate": per_second(text) if text else None}


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """An action on messages, on a schedule, on a topic, or on its records, groups or their dead letters.

    Attributes:
        name: of the command, in paths of the HTTP API, and in audit lines.
        target: what follows its name in audit lines, such as "group"; empty for actions on messages.
        states: of the messages that it applies to; empty if it acts on others.
        done: the outcome of a message that it has changed.
        words: what it is called.
        words_if_dead: what it is called for dead letters, if that differs.
        about, about_matching: what it does to named messages and to all that match, for the HTTP API.
        remarks: what else a command says about an unchanged message, by outcome.
        counted: what messages with an outcome are called, where that differs from `UNCHANGED`.
        is_danger: whether it cannot be undone.
        takes_ids: whether it acts on named messages and on matches; if not, on all messages of a state.
        confirmed_by: what a user has to name to confirm it, if it acts on all: "queue", "topic" or "group".
        fields: its settings.
        command: its command, if that is made from this row: it calls the method of `Queue` with the action's name.
    """

    name: str
    target: str = ""
    states: tuple[State, ...] = ()
    done: str = ""
    words: Words
    words_if_dead: Words | None = None
    about: str = ""
    about_matching: str = ""
    remarks: Mapping[str, str] = msgspec.field(default_factory=dict)
    counted: Mapping[str, str] = msgspec.field(default_factory=dict)
    is_danger: bool = False
    takes_ids: bool = True
    confirmed_by: str = ""
    fields: tuple[Field, ...] = ()
    command: CommandText | None = None

    @property
    def audited(self) -> str:
        """What audit lines call it, such as "move group"."""
        return f"{self.name} {self.target}".rstrip()

    def words_for(self, state: State) -> Words:
        """Return what it is called for messages in a state."""
        return self.words_if_dead if self.words_if_dead and state == "dead" else self.words

    def refusal(self, outcome: str) -> str:
        """Say why it has left a message unchanged; the sentence follows the message's id."""
        remark = self.remarks.get(outcome)
        return UNCHANGED[outcome].sentence + (f": {remark}" if remark else "")

    def changes(self, outcome: str) -> bool:
        """Whether this is the outcome of a message that it has changed: one to stop may have been waiting."""
        return outcome in (self.done, "cancelled")

    def became(self, outcome: str, state: State) -> str:
        """Say what messages of a state with this outcome are; the text follows their number."""
        if outcome == self.done:
            return self.words_for(state).became
        return self.counted.get(outcome) or UNCHANGED[outcome].counted


class ScheduleAction(Action, frozen=True, kw_only=True):
    """An action on a schedule, which is a method of `Schedules`.

    Attributes:
        method: its name there, if that differs.
        notice: what the dashboard says once it is done, after the schedule's name.
    """

    method: str = ""
    notice: str

    @property
    def audited(self) -> str:
        return f"schedule {self.name}"


_Kind = TypeVar("_Kind", bound=Action)


def _by_name(*actions: _Kind) -> dict[str, _Kind]:
    return {each.name: each for each in actions}


_UNMOVED = {"in_flight": "its due time is unchanged", "dead": "use delayq dead requeue instead"}

ACTIONS: Final = _by_name(
    Action(
        name="now",
        states=WAITING,
        done="rescheduled",
        words=Words("Run now", "rescheduled", "They become due now. Their attempts still count."),
        about="Make waiting messages due now. Their attempts still count.",
        about_matching="Make all messages in a state that match due now, as a job.",
        remarks=_UNMOVED,
        command=CommandText(
            "Make waiting messages due now.",
            "Make waiting messages of QUEUE by ID due now; their attempts still count. With --lake, also look in the "
            "lake.\n\nExit code 1 if one of the messages is not waiting.",
            'delayq send emails \'{"to": "a@example.org"}\' --id order-42 --delay 1h\ndelayq now emails order-42',
            "{} is due now",
            in_lake=True,
        ),
    ),
    Action(
        name="reschedule",
        states=WAITING,
        done="rescheduled",
        words=Words("Reschedule", "rescheduled", "Their attempts still count."),
        about="Give waiting messages another due time. Their attempts still count.",
        about_matching="Give all messages in a state that match another due time, as a job.",
        remarks=_UNMOVED,
        fields=(
            Field(
                name="when",
                label="New time",
                placeholder="10m, 2026-12-24T18:00+01:00, +10m or -1h",
                size=42,
                hint="A sign shifts each message’s own time: +10m makes it later, -1h earlier.",
                read=_read_time,
                is_required=True,
            ),
            Field(
                name="spread",
                label="Spread at random over",
                placeholder="empty for no spread, or 1h",
                size=24,
                read=_read_spread,
            ),
        ),
    ),
    Action(
        name="requeue",
        states=("dead",),
        done="requeued",
        words=Words("Requeue", "scheduled again", "They are scheduled again with all their retries."),
        about="Schedule dead letters again, with all their retries.",
        about_matching="Schedule all matching dead letters again, as a job, optionally at a maximum rate.",
        fields=(
            Field(name="delay", label="Delay", placeholder="0, 10m, 1h30m", size=12, read=_read_delay),
            Field(
                name="rate",
                label="Maximum rate",
                placeholder="100/s, 5/10s, 30/min",
                size=18,
                read=_read_rate,
                of_matching=True,
            ),
        ),
    ),
    Action(
        name="bury",
        states=WAITING,
        done="buried",
        words=Words("Bury", "buried", "They become dead letters, which you can inspect, requeue or delete."),
        about="Move waiting messages to the dead letters.",
        about_matching="Move all waiting messages in a state that match to the dead letters, as a job.",
        remarks={"in_flight": "not moved"},
    ),
    Action(
        name="cancel",
        states=(*PURGEABLE, "unack"),
        done="cancelled",
        words=Words("Cancel", "cancelled", "You cannot undo this. Running messages finish, but are not retried."),
        words_if_dead=Words("Delete", "deleted", "They are deleted permanently."),
        about="Cancel messages permanently. Running messages finish, but are not retried.",
        about_matching="Cancel all messages in a state that match, as a job.",
        remarks={"in_flight": "it will not be retried"},
        counted={"in_flight": "still running, but will not be retried"},
        is_danger=True,
    ),
    Action(
        name="stop",
        states=("unack",),
        done="stopping",
        words=Words(
            "Stop",
            "being stopped",
            "You cannot undo this. Within 2 seconds, async handlers are cancelled, and pool processes and programs are "
            "ended; a handler in a thread or of a batch is only notified. Messages that wait meanwhile are cancelled.",
        ),
        about="Cancel messages, and stop the handlers of those that a consumer is running.",
        about_matching="Cancel all running messages that match, and stop their handlers, as a job.",
        remarks={"in_flight": "a program that called receive has it, and cannot be stopped; it will not be retried"},
        counted={
            "cancelled": "cancelled, as they were not running",
            "in_flight": "taken by programs that call receive, which cannot be stopped, but will not be retried",
        },
        is_danger=True,
    ),
    Action(
        name="purge",
        states=PURGEABLE,
        done="purged",
        words=Words("Purge", "purged", "They are deleted permanently. Messages that arrive later stay."),
        about="Delete all messages that are in a state now, as a job.",
        is_danger=True,
        takes_ids=False,
        confirmed_by="queue",
    ),
)
"""The actions on messages by name, in the order of their buttons."""

GROUP_ACTIONS: Final = _by_name(
    Action(name="make", target="group", words=Words("Create", "created")),
    Action(name="move", target="group", words=Words("Move", "moved", "Unacked records stay with their consumers.")),
    Action(
        name="destroy",
        target="group",
        words=Words("Destroy", "destroyed", "The topic keeps its records. Running consumers of the group fail."),
        is_danger=True,
        confirmed_by="group",
    ),
    Action(name="claim", words=Words("Claim", "claimed")),
)
"""The actions on a group by name."""

DEAD_ACTIONS: Final = _by_name(
    Action(
        name="requeue",
        target="dead",
        words=Words(
            "Requeue",
            "requeued",
            "They become unacked records again, which a consumer of the group takes over, and their deliveries count "
            "from zero. A trimmed record is appended to the topic again, for this group only.",
        ),
        about="Requeue dead letters for their group, as a job.",
        about_matching="Requeue all dead letters for their group, as a job.",
    ),
    Action(
        name="delete",
        target="dead",
        words=Words("Delete", "deleted", "They are deleted permanently. The topic keeps its records."),
        about="Delete dead letters of a group, as a job. The topic keeps its records.",
        about_matching="Delete all dead letters of a group, as a job. The topic keeps its records.",
        is_danger=True,
        confirmed_by="group",
    ),
)
"""The actions on the dead letters of a group by name, in the order of their buttons."""

RECORD_ACTIONS: Final = _by_name(
    Action(
        name="delete",
        target="records",
        words=Words("Delete", "deleted", "They are deleted permanently, for all groups, acked or not."),
        is_danger=True,
    ),
    Action(name="trim", words=Words("Trim", "deleted"), is_danger=True, confirmed_by="topic"),
)
"""The actions on the records of a topic by name."""

SCHEDULE_ACTIONS: Final = _by_name(
    ScheduleAction(
        name="run",
        method="run_now",
        words=Words("Run now", "sent"),
        about="Send an occurrence of a schedule now. Add an Idempotency-Key to repeat the request safely.",
        notice="was sent now",
    ),
    ScheduleAction(
        name="resume",
        words=Words("Resume", "resumed"),
        about="Resume a schedule with its next slot.",
        notice="is resumed and fires at its next time.",
    ),
    ScheduleAction(
        name="pause",
        words=Words("Pause", "paused"),
        about="Pause a schedule: it fires only on request.",
        notice="is paused: it fires only with Run now.",
    ),
    ScheduleAction(
        name="remove",
        words=Words(
            "Remove",
            "removed",
            "This deletes the schedule and its waiting message permanently. A running message finishes.",
        ),
        about="Remove a schedule and its waiting occurrence. A running occurrence finishes.",
        notice="and its waiting message are removed. A running message finishes.",
        is_danger=True,
    ),
)
"""The actions on a schedule by name, in the order of their buttons."""
