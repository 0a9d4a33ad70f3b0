"""The steps of a random program, how often each occurs, and what its arguments are drawn from."""

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
REPLIES = st.sampled_from([*["heard"] * 10, "repeated", "unheard"])
AGAIN = st.booleans()

DELIVERY = {"number": ANY, "stale": RARELY}
MESSAGE = {"id": IDS, "state": st.sampled_from([None, *STATES, "schedule"])}
SEND = {
    "delay": DELAYS,
    "conflict": st.sampled_from(["ignore", "replace", "error"]),
    "expires": st.sampled_from([None, 1, 5000]),
    "retries": st.integers(0, 2),
}
THEN = {"id": IDS} | SEND
SEEN = st.sampled_from(["none", "this", "older"])
AGES = st.sampled_from([None, None, None, 0, 1000])
ERRORS = st.sampled_from([None, None, None, "broke", "LeaseLost"])
REASONS = st.sampled_from([None, None, None, "unwanted", "payload-missing"])
UNIQUE = st.sampled_from([60_000, 120_000])  # long, because Redis drops a reservation by its own clock
VERDICTS = st.lists(st.sampled_from(["done", "failed", "unwanted", "unwanted"]), min_size=4, max_size=4)

OVER = st.sampled_from([*[None] * 4, *STATES, "held", "retry"])

RATES = st.sampled_from([(1, 50), (2, 1000), (3, 1000)])
SLOTS = st.integers(1, 2)
LIMITS = {"rate": RATES, "concurrency": st.integers(1, 3), "per_key": SLOTS}
NUMBERS = st.fixed_dictionaries(LIMITS)
COMBINED = [
    ("rate",),
    ("concurrency",),
    *[("per_key",)] * 3,
    ("rate", "per_key"),
    ("concurrency", "per_key"),
    tuple(LIMITS),
]
MIX = st.fixed_dictionaries(
    {
        "shards": st.sampled_from([1, 1, 1, 3]),
        "ledger": st.booleans(),
        "limits": st.sampled_from([set(), *map(set, COMBINED)]),
        "numbers": NUMBERS,
    }
)
"""What a program has from its beginning: the shards of its queue, and which limits; these exclude each other."""

PLAN = {
    "every": st.sampled_from([1000, 5000, 60_000]),
    "missed": st.sampled_from(["once", "skip", "all"]),
    "grace": st.sampled_from([0, 1000]),
    "retries": st.integers(0, 2),
}
FILL = {
    "ids": st.lists(IDS, min_size=2, max_size=5, unique=True),
    "delay": DELAYS,
    "retries": st.integers(0, 2),
    "expires": st.sampled_from([None, None, 1]),
}
MEMBER = {
    "id": IDS,
    "delay": DELAYS,
    "expires": st.sampled_from([None, None, 1, 5000]),
    "retries": st.integers(0, 1),
}
GROUPS = st.sampled_from("gh")
GROUP = {
    "name": GROUPS,
    "members": st.lists(st.fixed_dictionaries(MEMBER), max_size=3, unique_by=_id_of),
    "then": st.none() | st.fixed_dictionaries(MEMBER | {"id": st.sampled_from("abctu")}),
    "continues": st.booleans(),
}
KINDS: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = {
    "send": (5, MESSAGE | SEND | {"state": st.sampled_from([None, *STATES, "held", "unack", "unack", "schedule"])}),
    "fill": (4, FILL),
    "send_unique": (
        4,
        {"id": st.sampled_from("ef"), "delay": DELAYS, "conflict": st.sampled_from(["ignore", "error"])}
        | {"retries": st.integers(0, 2), "unique": UNIQUE},
    ),
    "bound": (2, {"most": st.sampled_from([None, 1, 2, 3, 5])}),
    "send_group": (7, GROUP),
    "cancel_group": (1, {"name": GROUPS}),
    "look_at_group": (2, {"name": GROUPS}),
    "look_at_result": (3, MESSAGE | {"state": st.sampled_from([None, *STATES, "dead", "dead"])}),
    "sweep": (1, {"later": st.sampled_from([0, 0, 3_700_000])}),
    "receive": (8, {"ahead": st.booleans(), "limit": SOME, "lease": LEASES, "lost": st.sampled_from([0, 0, 1, 2])}),
    "batch": (4, {"ahead": st.booleans(), "limit": st.integers(2, 4), "lease": LEASES, "verdicts": VERDICTS}),
    "lack_task": (
        1,
        {"ahead": st.booleans(), "limit": SOME, "lease": LEASES, "times": st.sampled_from([1, 2, 20])},
    ),
    "serve": (
        3,
        {"urgent": st.integers(1, 3), "ahead": st.booleans(), "lease": LEASES, "verdicts": VERDICTS},
    ),
    "look": (3, {"every_second": st.booleans()}),
    "let_time_pass": (1, {"ms": st.sampled_from([1, 30, 1000, 31_000])}),
    "go_to_a_time_that_matters": (2, {"number": ANY, "off": st.integers(-1, 1)}),
    "ack": (2, DELIVERY),
    "ack_many": (1, {"count": SOME}),
    "ack_then": (
        5,
        DELIVERY | {"then": st.lists(st.fixed_dictionaries(THEN), max_size=3, unique_by=_id_of), "over": OVER},
    ),
    "nack": (4, DELIVERY | {"delay": st.none() | DELAYS, "error": st.sampled_from(["", "it broke"])}),
    "release": (4, DELIVERY),
    "extend": (1, DELIVERY | {"lease": LEASES}),
    "reject": (3, DELIVERY | {"error": st.sampled_from(["", "of no use"])}),
    "crash": (2, {"is_found": st.booleans()}),
    "cancel": (3, MESSAGE | {"state": st.sampled_from([*STATES, "unack", "unack", "schedule"])}),
    "bury": (2, MESSAGE | {"state": st.sampled_from([*STATES, "retry", "unack", "schedule"])}),
    "reschedule": (2, MESSAGE | {"delay": DELAYS}),
    "requeue": (2, MESSAGE | {"whole": st.booleans(), "delay": DELAYS}),
    "edit": (3, MESSAGE | {"state": st.sampled_from([None, "dead", "dead"]), "delay": DELAYS, "seen": SEEN}),
    "redrive": (3, {"older": AGES, "newer": AGES, "error": ERRORS, "reason": REASONS, "delay": DELAYS, "gone": RARELY}),
    "purge": (1, {"of": st.sampled_from([None, *PURGEABLE])}),
    "purge_old_dead_letters": (1, {"age": DELAYS}),
    "collect": (1, {}),
    "clean_up": (2, {"later": st.sampled_from([0, 1000])}),
    "look_through": (1, {}),
    "lose_payload": (1, MESSAGE),
    "pause": (1, {"for_ms": st.sampled_from([None, 1, 1000])}),
    "resume": (2, {}),
    "configure": (1, {"numbers": NUMBERS}),
    "keep_dead": (1, {"most": st.sampled_from([1, 2, 4])}),
    "add_schedule": (3, PLAN | {"wait": st.booleans()}),
    "change_schedule": (1, {"how": st.sampled_from(["pause", "resume", "resume", "remove", "run_now"])}),
    "get": (1, MESSAGE),
    "peek": (1, {"of": st.sampled_from(STATES)}),
    "stats": (1, {}),
}
STEPS = st.sampled_from([kind for kind, (often, _) in KINDS.items() for _ in range(often)]).flatmap(
    lambda kind: st.tuples(st.just(kind), st.fixed_dictionaries(KINDS[kind][1]), REPLIES, AGAIN)
)
