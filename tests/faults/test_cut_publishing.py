"""When the reply to a topic call is lost, the caller gets an error that says so, and nothing false."""

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
    "publish": lambda topic: topic.publish("b", id="9-1"),  # repeated, its id would not be greater than the last
    "cancel": lambda topic: topic.cancel("waits"),  # repeated, it would say that there was no such delayed record
    "remove_consumer": lambda topic: topic.group("billing").remove_consumer("a", to="b"),  # …, no such consumer
    "destroy": lambda topic: topic.group("billing").destroy(),  # …, no such group
    "XDEL": lambda topic: topic.delete("5-1"),  # …, no such record
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
