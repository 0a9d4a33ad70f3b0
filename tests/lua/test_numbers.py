"""Scripts give Redis large numbers as text, unless they are scores: Redis 7.2 writes 1700000000000 as 1.7e+12.

The clock of these tests begins at a million.
"""

from __future__ import annotations

from functools import partial

import pytest

from delayq.errors import DelayqError
from tests.harness.lua.every import CALLS, each_script, state_for
from tests.harness.lua.raw import refusing_numbers, rewritten


@pytest.mark.same_on_all_servers
@each_script
@pytest.mark.parametrize("meta", [{}, {"events": 1000}], ids=["", "ledger"])
def test_script_gives_redis_large_numbers_as_text(queue, script, meta):
    queue.given(**state_for(script))
    queue.given(meta=meta)
    queue.run(refusing_numbers(CALLS[script](queue.scripts)))


@pytest.mark.same_on_all_servers
def test_large_number_would_be_seen(queue):
    for number in "1e6", "-1700000000000":
        body = f"redis.call('SET', KEYS[1], {number})"
        call = rewritten(queue.scripts.resume(), partial(str.format, body))
        with pytest.raises(DelayqError, match=r"SET is given the number -?1\d+ as argument 2"):
            queue.run(refusing_numbers(call))
