"""Messages with delayq's own headers that another client has written straight into Redis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from hypothesis import strategies as st

from delayq.model.envelope import FORMAT, RAW, TASK, Envelope, encode
from delayq.model.units import MAX_TIME_MS
from delayq.operations.encode import EncodedMessage
from delayq.operations.send import send_encoded

NAME, SLOT, PLAN = "delayq-schedule", "delayq-slot", "delayq-plan"
OWN = (NAME, SLOT, PLAN, TASK)


class Foreign(NamedTuple):
    """A message as another client writes it."""

    id: str
    headers: dict[str, Any]


def write(
    queue: Any, message_id: str, headers: Mapping[str, Any], due: str | int = "+0", payload: bytes = b"x"
) -> None:
    """Store a message with any headers in a queue of either API, as another client could."""
    envelope = encode(Envelope(FORMAT, RAW, payload, 0, None, dict(headers)))
    queue.execute(send_encoded, [EncodedMessage(message_id, due, envelope, "replace", True)])


def plan(when: object = "0 0 1 1 *", **fields: object) -> str:
    return msgspec.json.encode({"when": when, **fields}).decode()


PLANS: list[Any] = [
    *(
        plan(),
        plan("every 1s"),
        plan("* * * * * *"),
        plan("0 0 30 2 *"),
        plan("0 0 29 2 mon#5"),
        plan("junk"),
        plan(""),
    ),
    *(plan(missed="skip"), plan(missed="all"), plan("every 1s", missed="all"), plan(missed="never"), plan(own=True)),
    *(plan(missed="skip", grace_ms=value) for value in (-1, 0, 2**62, 1.5)),
    *(plan(timezone=zone) for zone in ("Mars", "", "../../etc/passwd", "America", "a" * 300, "a\0b", "\x1b[2J", None)),
    *(plan("every 1s", jitter_ms=value) for value in (-1, 86_400_000, 366 * 86_400_000, MAX_TIME_MS, 2**63)),
    *(plan(start_ms=value) for value in (-1, MAX_TIME_MS, MAX_TIME_MS + 1)),
    *(plan(end_ms=value) for value in (0, 1, MAX_TIME_MS)),
    *(plan("every 366d", start_ms=MAX_TIME_MS), plan("every 1s", end_ms=1), plan("every " + "9" * 300 + "d"), plan(5)),
    *(None, True, 5, 1.5, b"{}", [], [plan()], {}, {"when": "every 1s"}),
    *("", "{", "{}", "[]", "null", "[" * 100_000, '{"a":' * 100_000, '{"when":"\\ud800"}', plan("é" * 300), plan("\0")),
]
SLOTS: list[Any] = [
    *(True, False, None, 0, 1, -1, 123, 1.5, float("nan"), float("inf"), b"1", "1", ""),
    *([], [1], {}, {"a": 1}, [True, [None]]),
    *(2**31, 2**53, 2**63, 2**64 - 1, -(2**63), MAX_TIME_MS - 1, MAX_TIME_MS, MAX_TIME_MS + 1, 1_600_000_000_000),
]
NAMES: list[Any] = [
    "bob",
    "alice",
    "nobody",
    "",
    " ",
    "x" * 300,
    "é" * 200,
    "\x1b[2J",
    "a@b",
    "~",
    True,
    5,
    b"bob",
    None,
    ["bob"],
    {"bob": 1},
]

OTHERS = [
    *("delayq-", "delayq-task", "delayq-group", "delayq-result", "delayq-expires", "delayq-\0", "delayq-é", "delayq--"),
    *(
        "Delayq-Slot",
        "DELAYQ-SCHEDULE",
        " DELAYQ-PLAN",
        "\tdelayq-slot",
        "\u2003delayq-task",
        "delayq-slot ",
        "dElAyQ-plan",
    ),
]
"""Other names that are delayq's own, some of which mean nothing yet."""

single = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(max_size=40)
values = single | st.lists(single, max_size=3) | st.dictionaries(st.text(), single, max_size=3)


@st.composite
def messages(draw: Any) -> Foreign:
    """A message with any of delayq's headers; often with the id that belongs to them."""
    name, slot = draw(st.sampled_from(NAMES) | values), draw(st.sampled_from(SLOTS) | values)
    headers = {NAME: name, SLOT: slot, PLAN: draw(st.sampled_from(PLANS) | values), "tenant": "acme"}
    headers[TASK] = draw(st.sampled_from(NAMES) | values)
    for left_out in draw(st.sets(st.sampled_from([NAME, SLOT, PLAN, TASK, TASK]), max_size=3)):
        del headers[left_out]
    reserved = st.sampled_from(OTHERS) | st.text(max_size=9).map("delayq-{}".format)
    headers |= draw(
        st.dictionaries(reserved.filter(lambda each: each not in (NAME, SLOT, PLAN, TASK)), values, max_size=3)
    )
    own = f"{name}@{slot}" if SLOT in headers else f"{name}@run-1"
    ids = st.sampled_from([own, own, own, own + "~1", own + "~", "bob@123", f"@{slot}", "bob@run-", "@", "a"])
    return Foreign(draw(ids.filter(_can_be_sent)), headers)


def _can_be_sent(message_id: str) -> bool:
    return 0 < len(message_id.encode()) <= 256


CORPUS = [
    *(Foreign(f"bob@{slot}", {NAME: "bob", SLOT: slot, PLAN: plan()}) for slot in SLOTS if slot != ""),
    *(Foreign(f"bob@{number}", {NAME: "bob", SLOT: number, PLAN: each}) for number, each in enumerate(PLANS, 1000)),
    *(Foreign(f"run@run-{number}", {NAME: "run", PLAN: each}) for number, each in enumerate(PLANS)),
    *(Foreign(f"{name}@1"[:200], {NAME: name, SLOT: 1, PLAN: plan()}) for name in NAMES),
    *(
        Foreign(f"{name}@1"[:200], {name: value, NAME: "bob"})
        for name in OTHERS
        for value in (2**63, b"\xff", None, [1])
    ),
    *(Foreign(f"task {number}", {TASK: name}) for number, name in enumerate(NAMES)),
    Foreign("bob@124", {NAME: "bob", SLOT: 124, PLAN: plan(own=True), TASK: "alice"}),
    *(Foreign(f"bob@{slot}", {}) for slot in (0, 1, 123, -1, 2**53, "x", "run-1", "1~1")),
    Foreign("variants", dict(zip(OTHERS, [1, b"\xff", None, 2**63, True, 0.1, "", *"abcdefgh"], strict=True))),
]
"""One of each kind. Ids may repeat."""
