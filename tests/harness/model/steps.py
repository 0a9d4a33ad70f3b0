"""The steps of a random program: which there are, how often each comes, and what its arguments are drawn from."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st

from delayq.model.placement import STATES
from tests.harness.model.held import PURGEABLE


def _id_of(follower: dict[str, Any]) -> str:
    return str(follower["id"])


IDS = st.sampled_from("abcdef")
DELAYS = st.sampled_from([0, 0, 0, 1, 20, 1000, 60_000])
LEASES = st.sampled_from([1, 50, 30_000])
SOME = st.integers(1, 4)
ANY = st.integers(0, 5)
RARELY = st.sampled_from([False, False, False, True])

DELIVERY = {"number": ANY, "stale": RARELY}
MESSAGE = {"id": IDS, "state": st.sampled_from([None, *STATES])}
SEND = {
    "delay": DELAYS,
    "conflict": st.sampled_from(["ignore", "replace", "error"]),
    "expires": st.sampled_from([None, 5000]),
    "retries": st.integers(0, 2),
}
THEN = {"id": IDS} | SEND
SEEN = st.sampled_from(["none", "this", "older"])
AGES = st.sampled_from([None, None, None, 0, 1000])
ERRORS = st.sampled_from([None, None, None, "broke", "LeaseLost"])
REASONS = st.sampled_from([None, None, None, "unwanted", "payload-missing"])
UNIQUE = st.sampled_from([60_000, 120_000])  # no time of this machine: Redis drops a reservation by its own clock
KINDS: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = {
    "send": (6, MESSAGE | SEND),
    "send_unique": (
        3,
        MESSAGE
        | {"delay": DELAYS, "conflict": st.sampled_from(["ignore", "error"]), "retries": st.integers(0, 2)}
        | {"unique": UNIQUE},
    ),
    "receive": (8, {"ahead": st.booleans(), "limit": SOME, "lease": LEASES}),
    "let_time_pass": (1, {"ms": st.sampled_from([1, 30, 1000, 31_000])}),
    "go_to_a_time_that_matters": (2, {"number": ANY, "off": st.integers(-1, 1)}),
    "ack": (2, DELIVERY),
    "ack_many": (1, {"count": SOME}),
    "ack_then": (3, DELIVERY | {"then": st.lists(st.fixed_dictionaries(THEN), max_size=3, unique_by=_id_of)}),
    "nack": (4, DELIVERY | {"delay": st.none() | DELAYS, "error": st.sampled_from(["", "it broke"])}),
    "release": (2, DELIVERY),
    "extend": (1, DELIVERY | {"lease": LEASES}),
    "reject": (2, DELIVERY | {"error": st.sampled_from(["", "of no use"])}),
    "cancel": (3, MESSAGE | {"state": st.sampled_from([*STATES, "unack", "unack"])}),
    "reschedule": (2, MESSAGE | {"delay": DELAYS}),
    "requeue": (2, MESSAGE | {"whole": st.booleans(), "delay": DELAYS}),
    "edit": (2, MESSAGE | {"state": st.sampled_from([None, "dead", "dead"]), "delay": DELAYS, "seen": SEEN}),
    "redrive": (3, {"older": AGES, "newer": AGES, "error": ERRORS, "reason": REASONS, "delay": DELAYS}),
    "purge": (1, {"of": st.sampled_from([None, *PURGEABLE])}),
    "purge_old_dead_letters": (1, {"age": DELAYS}),
    "collect": (1, {}),
    "lose_payload": (1, MESSAGE),
    "pause": (1, {}),
    "resume": (2, {}),
    "get": (1, MESSAGE),
    "peek": (1, {"of": st.sampled_from(STATES)}),
    "stats": (1, {}),
}
STEPS = st.sampled_from([kind for kind, (often, _) in KINDS.items() for _ in range(often)]).flatmap(
    lambda kind: st.tuples(st.just(kind), st.fixed_dictionaries(KINDS[kind][1]))
)
