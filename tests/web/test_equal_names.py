"""Names that are shown alike: one has a hidden character, the other the characters that the pages show in its place."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from html import unescape
from urllib.parse import quote

import pytest

from delayq import Queue, Topic
from delayq.model.text import printable
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually
from tests.harness.web.following import Follower
from tests.web.conftest import Enter, Follow, Serve

TWINS = ["a\u200bb", "a\\u200bb"]
SCHEDULED = 6
"""Messages that each queue has: four, and an occurrence of each schedule."""

IDS = re.compile(r'\sid="([^"]*)"')


@pytest.fixture
def twins(redis_server: RedisServer) -> Iterator[list[Queue]]:
    """Queues, topics, groups, schedules and messages, all under the two names."""
    assert printable(TWINS[0]) == TWINS[1]
    with ExitStack() as stack:
        queues = []
        for name in TWINS:
            queue = stack.enter_context(Queue(name, url=redis_server.url, shards=None))
            topic = stack.enter_context(Topic(name, url=redis_server.url, shards=None))
            for other in TWINS:
                queue.send("hello", id=other, delay=60)
                queue.send("hello", id=f"{other}-2", delay=60, headers={other: other})
                queue.send("hello", id=f"{other}-dead")
                queue.schedules.add(other, "0 9 * * *", "hello")
                topic.group(other, start="0")
            for message in queue.receive(10):
                message.reject("wrong")
            topic.publish("hello")
            for other in TWINS:
                topic.group(other).poll(other)
            queues.append(queue)
        yield queues


@pytest.mark.usefixtures("twins")
def test_no_page_has_an_id_twice(enter: Enter, redis_server: RedisServer):
    client = enter(servers=dict.fromkeys(TWINS, redis_server.url))
    found, kinds = ["/"], {"/"}
    for path in found:  # one page of each kind
        page = client.get(path)
        assert page.status_code == 200, path
        assert [each for each, times in Counter(IDS.findall(page.text)).items() if times > 1] == [], path
        for link in re.findall(r'<a [^>]*href="(/[^"#]*)"', page.text):
            plain = unescape(link).partition("?")[0]
            kind = re.sub(r"a%[^/]*", "X", plain)
            if kind not in kinds:
                kinds.add(kind)
                found.append(plain)
    assert {"/X/queues/X", "/X/topics/X", "/X/topics/X/groups/X", "/X/queues/X/messages/X"} <= kinds


def is_updated(page: Follower, start: str) -> bool:
    """Whether the last row that starts like this shows three messages more."""
    row = page.text.rpartition(start)[2].partition("</tr>")[0]
    return f'Scheduled">{SCHEDULED + 3}<' in row


def test_rows_of_queues_shown_alike_are_updated_each(serve: Serve, follow: Follow, twins: list[Queue]):
    page = follow(f"{serve()}/live")
    assert page.has_seen("event: seen")
    for queue, name in zip(twins, TWINS, strict=True):
        for _ in range(3):
            queue.send("hello", delay=60)
        assert eventually(partial(is_updated, page, f'id="queue#main#{quote(name, safe="")}"'))


def test_payloads_of_messages_shown_alike_have_files_of_their_own(enter: Enter, twins: list[Queue]):
    client = enter()
    queue = quote(quote(TWINS[0], safe=""), safe="")
    names = set()
    for other in ("a_b", "a/b", "a b"):
        twins[0].send("hello", id=other, delay=60)
    for each in twins[0].peek("pending", limit=20):
        path = f"/main/queues/{queue}/messages/{quote(quote(each.id, safe=''), safe='')}/payload"
        names.add(client.get(path).headers["content-disposition"])
    assert len(names) == SCHEDULED + 3
