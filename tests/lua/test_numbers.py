"""Scripts give Redis large numbers as text, except scores, as Redis 7.2 writes 1e8 as 1e+8.

Every test of a script fails if its script does not.
"""

from __future__ import annotations

from functools import partial

import pytest

from delayq.errors import DelayqError
from tests.harness.lua.raw import rewritten


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("number", ["1e6", "-1700000000000"])
def test_large_number_is_seen(queue, number):
    body = f"redis.call('SET', KEYS[1], {number})"
    with pytest.raises(DelayqError, match=r"SET is given the number -?1\d+ as argument 2"):
        queue.run(rewritten(queue.scripts.resume(), partial(str.format, body)))
