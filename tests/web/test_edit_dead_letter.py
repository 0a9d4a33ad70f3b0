"""The page that edits and requeues a dead letter."""

from __future__ import annotations

import re
from html import unescape

from delayq import Queue
from tests.web.conftest import Enter
from tests.web.test_actions import QUEUE, bury, ids, send
from tests.web.test_messages import words


def test_dead_letter_is_requeued_with_its_edits(enter: Enter, queue: Queue):
    bury(queue, "a/b")
    client = enter()
    path = f"{QUEUE}/messages/a%252Fb/edit"
    page = client.get(path).text
    assert '"id": "a/b"' in unescape(page)
    died = re.findall('name="died" value="([^"]*)"', page)[0]
    fields = {"died": died, "kind": "json", "payload": '{"id":\r\n "new"}', "headers": '{"tenant": 7}'}
    assert "is scheduled again" in words(client.get(send(client, path, **fields).headers["location"]).text)
    info = queue.get("a/b")
    assert info is not None
    assert (info.state, info.payload, info.headers) == ("pending", {"id": "new"}, {"tenant": 7})
    again = send(client, path, **fields)
    assert "nothing was changed" in words(client.get(again.headers["location"]).text)


def test_payload_that_is_not_json_is_refused(enter: Enter, queue: Queue):
    bury(queue, "a")
    client = enter()
    died = re.findall('name="died" value="([^"]*)"', client.get(f"{QUEUE}/messages/a/edit").text)[0]
    answer = send(client, f"{QUEUE}/messages/a/edit", died=died, kind="json", payload="{", headers="{}")
    assert (answer.status_code, "the field payload is not JSON" in words(answer.text)) == (400, True)
    assert ids(queue, "dead") == {"a"}


def test_bytes_are_edited_as_text_or_kept(enter: Enter, queue: Queue):
    for message_id, payload in (("text", b"some text"), ("raw", b"\xff\x00")):
        queue.send(payload, id=message_id, headers={"raw": b"\xff"})
        (message,) = queue.receive(1)
        message.reject("no")
    client = enter()
    page = client.get(f"{QUEUE}/messages/text/edit").text
    died = re.findall('name="died" value="([^"]*)"', page)[0]
    assert 'name="headers"' not in page
    send(client, f"{QUEUE}/messages/text/edit", died=died, kind="text", payload="two\r\nlines")
    info = queue.get("text")
    assert info is not None
    assert (info.payload, info.headers) == (b"two\nlines", {"raw": b"\xff"})
    kept = client.get(f"{QUEUE}/messages/raw/edit").text
    assert 'name="payload"' not in kept
    assert "The payload stays as it is" in words(kept)


def test_message_that_is_not_dead_cannot_be_edited(enter: Enter, queue: Queue):
    queue.send("x", id="m", delay=60)
    answer = enter().get(f"{QUEUE}/messages/m/edit")
    assert (answer.status_code, "m is not a dead letter of emails" in words(answer.text)) == (404, True)


def test_time_limit_is_shown_changed_and_removed(enter: Enter, queue: Queue):
    client = enter()
    path = f"{QUEUE}/messages/a/edit"
    queue.send("x", id="a", timeout=90)
    for shown, given, kept in (("90s", "1h30m", 5400), ("5400s", "", None)):
        (message,) = queue.receive(1)
        message.reject("no")
        page = client.get(path).text
        assert re.findall('name="timeout" value="([^"]*)"', page) == [shown]
        died = re.findall('name="died" value="([^"]*)"', page)[0]
        send(client, path, died=died, timeout=given)
        info = queue.get("a")
        assert info is not None
        assert (info.state, info.payload, info.timeout) == ("pending", "x", kept)
