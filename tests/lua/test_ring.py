from __future__ import annotations

import pytest

from tests.harness.lua.raw import RUNG


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("bell", [[], RUNG])
def test_token_is_passed_on_once(queue, bell):
    queue.given(bell=bell)
    assert queue.ring() == 1
    assert queue.state() == {"bell": RUNG}
