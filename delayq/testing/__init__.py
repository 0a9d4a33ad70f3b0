"""For tests of code that sends and handles messages: queues in memory, and a clock that the test moves.

    with in_memory(emails) as clock:
        sign_up("ann@example.org")
        assert_sent(emails, {"to": "ann@example.org"}, due_in=timedelta(days=3))
        clock.run_for(days=3)

fakeredis runs the same scripts as a real server: it is in the extra ``testing``. See docs/testing.md.
"""

from delayq.model.server_guard import RealServerUsed
from delayq.testing.assertions import assert_dead, assert_empty, assert_not_sent, assert_sent, sent
from delayq.testing.clock import Clock
from delayq.testing.memory import in_memory
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
