"""A reply of a topic is lost: who called is told that nobody knows, and nothing false of what was done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delayq import NewRecord, Topic
from delayq.errors import ServerError
from tests.harness.proxy import Cut, Proxy
from tests.harness.servers import RedisServer

Make = Callable[[Topic], Any]

CALLS: dict[str, Make] = {
    "publish": lambda topic: topic.publish("b", id="9-1"),  # sent again, its id would not come after the last one's
    "cancel": lambda topic: topic.cancel("waits"),  # would say that it did not wait
    "remove_consumer": lambda topic: topic.group("billing").remove_consumer(
        "a", to="b"
    ),  # that there is no such consumer
    "destroy": lambda topic: topic.group("billing").destroy(),  # that there was no such group
    "XDEL": lambda topic: topic.delete("5-1"),  # that there was no such record
}


@pytest.mark.parametrize("name", CALLS)
def test_call_with_a_lost_reply_is_not_repeated_if_the_repeat_would_report_something_false(
    redis_server: RedisServer, name: str
):
    with Topic("orders", url=redis_server.url) as other:
        group = other.group("billing", "0")
        other.publish_many([NewRecord("a", id="5-1"), NewRecord("a", id="5-2")])
        other.publish("later", delay=600, id="waits")
        group.poll("a")
    words = name if name.isupper() else f"topics/{name}"
    with Proxy(redis_server.socket) as proxy, Topic("orders", url=proxy.url) as topic:
        topic.group("billing")
        proxy.decide = lambda call: Cut("after") if call == words and not proxy.cuts else None
        with pytest.raises(ServerError):
            CALLS[name](topic)
        assert proxy.cuts == 1
