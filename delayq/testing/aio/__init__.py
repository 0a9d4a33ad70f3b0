"""For tests of code that uses `delayq.aio`: the same names as in `delayq.testing`, awaited where they run something.

async with in_memory(emails) as clock:
    await sign_up("ann@example.org")
    await assert_sent(emails, {"to": "ann@example.org"}, due_in=timedelta(days=3))
    await clock.run_for(days=3)
"""

from delayq.model.server_guard import RealServerUsed
from delayq.testing.aio.assertions import assert_dead, assert_empty, assert_not_sent, assert_sent, sent
from delayq.testing.aio.clock import Clock
from delayq.testing.aio.memory import in_memory
from delayq.testing.sent import SentInfo

__all__ = [
    "Clock",
    "RealServerUsed",
    "SentInfo",
    "assert_dead",
    "assert_empty",
    "assert_not_sent",
    "assert_sent",
    "in_memory",
    "sent",
]
