"""Fixtures: metrics as a scrape sees them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
import redis

from delayq import Queue


@pytest.fixture
def queue(redis_client: redis.Redis) -> Iterator[Queue]:
    with Queue("emails", redis=redis_client) as queue:
        yield queue


@pytest.fixture
def promtool() -> str:
    """Return the program. Without it a test is skipped, or fails where DELAYQ_REQUIRE_PROMTOOL is set."""
    found = shutil.which("promtool")
    if found is None:
        missing = "promtool is not installed: Debian's prometheus has it"
        if os.environ.get("DELAYQ_REQUIRE_PROMTOOL"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found
