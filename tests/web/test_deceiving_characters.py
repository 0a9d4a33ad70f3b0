"""Hidden and reordering characters are shown escaped wherever a user can choose a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

import pytest

from delayq import Consumer, Outgoing, Queue, Topic
from delayq.web import app
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually
from tests.web.conftest import Enter
from tests.web.test_actions import QUEUE, run, send
from tests.web.test_every_route import FILES, PAGES, ROUTES, STEPS, quoted_path
from tests.web.test_messages import MESSAGES, rows, words

TURNED = "gnp.\u202efdp"
UNSEEN = "\u200b"
BAD = f"{TURNED}\u00a0{UNSEEN}\u3164\u2066"
ESCAPED = r"gnp.\u202efdp\xa0\u200b\u3164\u2066"


@pytest.fixture
def stocked(queue: Queue, redis_server: RedisServer) -> Iterator[Queue]:
    """A queue and a topic in which all names, ids and texts deceive; a consumer with such a name holds a message."""
    queue.configure(events=True)
    queue.send_many([Outgoing({BAD: BAD}, id=BAD, headers={BAD: BAD}), Outgoing(BAD, id=f"{BAD}-waits", delay=60)])
    (message,) = queue.receive(1)
    message.reject(BAD, error=f"{BAD}\n{BAD}")
    queue.schedules.add(BAD, "every 1h", {BAD: BAD})
    with Queue(BAD, url=redis_server.url) as other:
        other.send(BAD)
    with Topic(BAD, url=redis_server.url) as topic:
        group = topic.group(BAD, start="0")
        topic.publish({BAD: BAD}, headers={BAD: BAD})
        group.poll(BAD)
        yield queue


def shown(text: str) -> str:
    """Return what people see of a page: without hidden form values and the texts of copy buttons."""
    return unescape(re.sub(r' (?:value|data-copy)="[^"]*"|<textarea.*?</textarea>', "", text, flags=re.DOTALL))


@pytest.mark.parametrize("query", ["", "?state=dead", "?state=pending&where=payload&text=gnp"])
@pytest.mark.parametrize("name", [name for name in PAGES if name not in {"metrics", *FILES}])
def test_no_page_shows_deceiving_characters(enter: Enter, stocked: Queue, name: str, query: str):
    steps = STEPS | {"id": BAD, "topic": BAD, "group": BAD, "schedule": BAD}
    route = next(each for each in ROUTES if each.name == name)
    path = quoted_path(
        app("redis://127.0.0.1:1").url_path_for(name, **{each: steps[each] for each in route.param_convertors})
    )
    answer = enter().get(path + query)
    assert answer.status_code < 500
    assert not set(shown(answer.text)) & set("\u202e\u200b\u00a0\u3164\u2066")
    assert stocked.stats().dead == 1


def test_ids_with_hidden_characters_are_listed_and_linked(enter: Enter, queue: Queue):
    queue.send_many([Outgoing(each, id=each, delay=60) for each in (TURNED, UNSEEN, "gnp.fdp")])
    client = enter()
    page = client.get(MESSAGES).text
    assert sorted(rows(page)) == sorted([r"gnp.\u202efdp", r"\u200b", "gnp.fdp"])
    (link,) = re.findall(r'<a href="([^"]*)">\\u200b</a>', page)
    assert r"\u200b is not due until" in words(client.get(unescape(link)).text)


def test_error_names_the_character(enter: Enter, queue: Queue):
    queue.pause()
    assert rf"Server main has no queue {ESCAPED}" in words(enter().get(f"/main/queues/{quoted_path(BAD)}").text)


def test_forms_send_back_the_exact_text(enter: Enter, queue: Queue):
    queue.send_many([Outgoing("x", id=each, delay=60, headers={"name": BAD}) for each in ("a", UNSEEN)])
    client = enter()
    asked = {"act": "cancel", "all": "1", "state": "pending", "header": f"name={BAD}"}
    assert "2 of 2 cancelled." in run(client, asked)
    assert queue.stats().pending == 0


def test_edit_keeps_untouched_characters(enter: Enter, queue: Queue):
    queue.send({"text": BAD}, id="a", headers={"h": BAD})
    queue.receive(1)[0].reject("no")
    client = enter()
    page = client.get(f"{QUEUE}/messages/a/edit").text
    areas = {n: unescape(v) for n, v in re.findall(r'<textarea name="(\w+)"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)}
    hidden = dict(re.findall(r'<input type="hidden" name="(died|kind)" value="([^"]*)">', page))
    assert send(client, f"{QUEUE}/messages/a/edit", **areas, **hidden).status_code == 303
    info = queue.get("a")
    assert info is not None
    assert (info.payload, info.headers) == ({"text": BAD}, {"h": BAD})


def test_error_of_several_lines_keeps_its_lines(enter: Enter, stocked: Queue):
    page = enter().get(f"{QUEUE}/messages/{quoted_path(BAD)}").text
    assert f'<pre class="block" tabindex="0">{ESCAPED}\n{ESCAPED}</pre>' in page
    assert f'<pre class="block">{ESCAPED}</pre>' in page  # only the last line
    assert stocked.stats().dead == 1


def test_payload_file_is_exact_and_has_a_safe_name(enter: Enter, stocked: Queue):
    answer = enter().get(f"{QUEUE}/messages/{quoted_path(BAD)}/payload")
    assert answer.json() == {BAD: BAD}
    name = re.findall('filename="(.*)"', answer.headers["content-disposition"])
    assert name == ["gnp._fdp____-fcf4cd5e.json"]
    assert stocked.stats().dead == 1


def test_consumer_and_what_it_holds_are_shown_escaped(enter: Enter, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.operations.presence.SECONDS", 0.05)
    queue.send("x", id=BAD)
    client = enter()

    def handle(_: object) -> None:
        assert eventually(lambda: any(each.holds for each in queue.consumers()))
        seen.append(client.get(f"{QUEUE}/consumers").text)

    seen: list[str] = []
    Consumer(queue, handle).drain()
    assert f">{ESCAPED}</a>" in unescape(seen[0])
