"""Random programs that use every part of a queue, on a real Redis and on a model, which must agree after each step.

The programs are the same each time: FEW in `make test`, MANY in `make test-all`. DELAYQ_PROGRAMS=2000 runs more, which
differ each time, and needs ``-o faulthandler_timeout=0``; ``-s`` shows how many there were, and which features
took effect together.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider
from hypothesis.stateful import run_state_machine_as_test

from delayq.model.placement import STATES
from tests.harness.model.held import PURGEABLE
from tests.harness.model.machine import Life, met, taken

PROGRAMS = os.environ.get("DELAYQ_PROGRAMS", "")
FEW, MANY = 80, 400
COUNTS = [int(PROGRAMS)] if PROGRAMS else [FEW, pytest.param(MANY, marks=pytest.mark.full)]
# Hypothesis' own way to make programs, renamed: under its own name, most programs are variants of the one before.
AVAILABLE_PROVIDERS["independent"] = HypothesisProvider
SETTINGS = settings(
    stateful_step_count=50,
    derandomize=not PROGRAMS,
    backend="independent",
    deadline=None,
    database=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)

# What at least one of MANY programs must do, and all but SELDOM with FEW: a path that none takes is not tested.
PATHS = {
    *(f"send {conflict} over {was}" for conflict in ("ignore", "replace", "error") for was in (*STATES, "nothing")),
    *(
        "send DuplicateMessage",
        "receive nothing",
        "receive some",
        "receive a retry",
        "receive payload-missing",
        "receive leaves some",
        "rang",
    ),
    *(f"receive counts {name}" for name in ("lease_lost", "expired", "died", "cancelled", "promoted")),
    *(f"{verb} {how}" for verb in ("ack", "nack", "extend", "release", "reject") for how in ("done", "StaleReceipt")),
    *(f"{verb} to garbage" for verb in ("nack", "release", "reject")),
    *("nack to retry", "nack to dead", "release to ready", "reject to dead"),
    *(f"cancel {how}" for how in ("cancelled", "in_flight", "unknown")),
    *(f"bury {how}" for how in ("buried", "in_flight", "dead", "unknown")),
    *(f"reschedule {how}" for how in ("rescheduled", "in_flight", "dead", "unknown")),
    *(f"purge {state}" for state in PURGEABLE),
    *("requeue all", "requeue one", "collect counts collected"),
    *(f"then {conflict} over {was}" for conflict in ("ignore", "replace", "error") for was in (*STATES, "nothing")),
    *(f"ack then {how}" for how in ("done", "StaleReceipt", "DuplicateMessage")),
    *(f"send unique {how}" for how in ("done", "refused", "DuplicateMessage", "while reserved")),
    *(f"edit {how}" for how in ("done", "refused", "without payload")),
    *(f"redrive {how}" for how in ("all", "not all", "leaves a payload that is gone")),
    *("reply repeated", "reply unheard"),
    *(f"group {how}" for how in ("done", "existing", "DuplicateMessage", "QueueFull", "with then", "without then")),
    *(f"group is {state}" for state in ("running", "blocked", "done", "cancelled", "unknown")),
    *("group cancelled", "group forgotten", "send unique QueueFull"),
    *("lack task waits", "lack task dies"),
    *(f"result is {how}" for how in ("live", "plain", "gone", "dead dead", "kept done", "kept dead", "kept expired")),
    *(f"{verb} an occurrence" for verb in ("send", "cancel", "bury", "reschedule", "requeue", "edit")),
}
# What fewer than one program in ten does: FEW miss some of it, which depends on the version of Hypothesis.
SELDOM = {
    *(
        f"{verb} {conflict} over {was}"
        for verb in ("send", "then")
        for conflict in ("ignore", "replace", "error")
        for was in STATES
        if was != "pending"
    ),
    *(f"{verb} to garbage" for verb in ("nack", "release", "reject")),
    "purge ready",
    *(f"purge {state}" for state in ("dead", "retry", "held")),
    *(f"group is {state}" for state in ("running", "blocked", "cancelled")),
    *(f"result is {how}" for how in ("dead dead", "kept done", "kept dead", "kept expired")),
    *("group QueueFull", "group cancelled", "group forgotten", "send unique QueueFull"),
    *("requeue all", "requeue one", "redrive all", "redrive leaves a payload that is gone", "reschedule dead"),
    *("receive counts cancelled", "edit without payload", "send unique while reserved", "ack then DuplicateMessage"),
}


@pytest.mark.timeout(3600 if PROGRAMS else 600)  # seconds: a failing program is run many times to shorten it
@pytest.mark.parametrize("count", COUNTS)
def test_queue_and_model_agree_after_each_step_of_random_programs(redis_client: redis.Redis, count: int):
    taken.clear()
    met.pairs.clear()
    any_factory: Any = partial(Life, redis_client)
    run_state_machine_as_test(any_factory, settings=settings(SETTINGS, max_examples=count))
    sys.stdout.write(f"{taken['programs']} programs, {taken['steps']} calls compared\n{met}\n")
    wanted = PATHS - SELDOM if count < MANY else PATHS
    assert sorted(wanted - set(+taken)) == []
    assert count < MANY or met.missing() == []
