"""Values of named fields and headers are on no page; content that cannot be searched is hidden as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from delayq import Outgoing, Queue, Topic
from delayq.errors import InvalidInput
from delayq.model.envelope import JSON, RAW, Envelope
from delayq.web import app
from delayq.web.redaction import MOST, REDACTED, Redaction
from tests.harness.servers import RedisServer
from tests.web.conftest import Enter
from tests.web.test_actions import QUEUE, ids, run, send
from tests.web.test_every_route import PAGES, ROUTES, STEPS, quoted_path
from tests.web.test_messages import MESSAGES, rows, words

SECRET = "hunter2"
NAMES = ["Password", "x-token"]


@pytest.fixture
def stocked(queue: Queue, redis_server: RedisServer) -> Iterator[Queue]:
    """A queue and a topic with a secret wherever the dashboard may show one."""
    queue.configure(events=True)
    payload, headers = {"user": {"name": "Ann", "PASSWORD": SECRET}}, {"X-Token": SECRET, "tenant": "acme"}
    queue.send_many([Outgoing(payload, id=each, headers=headers) for each in ("dead", "raw")])
    for message in queue.receive(2):
        message.reject(f"password={SECRET}", error=f"Traceback\nValueError: {{'password': '{SECRET}'}}")
    queue.send(f"password: {SECRET}".encode(), id="text", delay=60)
    queue.send(payload, id="waits", delay=60, headers=headers)
    queue.schedules.add("hourly", "every 1h", payload)
    with Topic("orders", url=redis_server.url) as topic:
        group = topic.group("billing", start="0")
        topic.publish(payload, headers=headers)
        topic._executor.client.xadd(topic._context.shards[0].keys.stream, {"password": SECRET})
        told = f"password={SECRET}"
        for record in group.poll("first"):
            group.bury(record, "first", told, told)
        yield queue


@pytest.mark.parametrize("name", PAGES)
def test_no_page_shows_redacted_values(enter: Enter, stocked: Queue, name: str):
    dashboard = app("redis://127.0.0.1:1")
    route = next(each for each in ROUTES if each.name == name)
    client, before = enter(redact=NAMES), stocked.stats().dead
    letters = re.findall(r"dead/letters/(0\.[\d-]+)", client.get("/main/topics/orders/groups/billing/dead").text)
    assert len(letters) == 2
    for message_id, letter in (("dead", letters[0]), ("waits", letters[1]), ("text", letters[0])):
        steps = STEPS | {"id": message_id, "letter": letter, "schedule": "hourly", "group": "billing"}
        path = quoted_path(dashboard.url_path_for(name, **{each: steps[each] for each in route.param_convertors}))
        for query in ("", "?state=dead", "?state=dead&where=error&text=Traceback"):
            answer = client.get(path + query)
            assert answer.status_code < 500
            assert SECRET not in answer.text
    assert stocked.stats().dead == before == 2


def test_other_values_are_shown(enter: Enter, stocked: Queue):
    client = enter(redact=NAMES)
    page = words(client.get(f"{MESSAGES}/dead").text)
    assert '"name": "Ann", "PASSWORD": "[redacted]"' in page
    assert "X-Token [redacted] tenant acme" in page
    assert "ValueError: {'password': [redacted]" in page
    assert '{"user":{"name":"Ann","PASSWORD":"[redacted]"}}' in words(client.get(MESSAGES).text)
    assert SECRET in enter().get(f"{MESSAGES}/dead").text
    assert stocked.stats().dead == 2


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"n":1.10,"big":123456789012345678901234567890}', None),
        (b'[{"pass\\u0077ord":{"a":"x"},"n":1.10}]', b'[{"password":"[redacted]","n":1.10}]'),
        (b'{"in":"{\\"password\\":\\"x\\"}"}', b'{"in":"{\\"password\\":\\"[redacted]\\"}"}'),
        (b'"password=x"', b'"password= [redacted]"'),
        (b'{"password":"x"', b"[redacted]"),
        (b'{"password":NaN}', b"[redacted]"),
        (b"[" * 100_000 + b"]" * 100_000, b"[redacted]"),
        (b'"' + b"x" * MOST + b'"', b"[redacted]"),
    ],
)  # fmt: skip
def test_payload_keeps_everything_but_hidden_values(body: bytes, shown: bytes | None):
    assert Redaction(NAMES).envelope(Envelope(1, JSON, body, 0)).body == (shown or body)


@pytest.mark.parametrize(("body", "shown"), [(b"x", b"[redacted]"), (b"\xff", b"[redacted]"), (b'{"a":1}', b'{"a":1}')])
def test_bytes_that_are_not_json_are_hidden_as_a_whole(body: bytes, shown: bytes):
    assert Redaction(NAMES).envelope(Envelope(1, RAW, body, 0)).body == shown
    assert Redaction().envelope(Envelope(1, RAW, body, 0)).body == body


def test_text_loses_the_rest_of_a_line_after_a_name():
    told = Redaction(["token"]).text('a\n{"access_token": "x", "n": 1}\nToken:\n  x\nno token')
    assert told == f'a\n{{"access_token": {REDACTED}\nToken: {REDACTED}\nno token'


@pytest.mark.parametrize(("field", "text"), [("payload", "hun"), ("header", "x-TOKEN=hunter2")])
def test_search_for_hidden_values_is_refused(enter: Enter, stocked: Queue, field: str, text: str):
    client = enter(redact=NAMES)
    for path in (MESSAGES, f"{QUEUE}/found"):
        answer = client.get(path, params={"state": "dead", "where": field, "text": text})
        assert (answer.status_code, "this dashboard hides" in words(answer.text)) == (400, True)
    answer = send(client, f"{QUEUE}/confirm", act="cancel", all="1", state="dead", **{field: text})
    assert (answer.status_code, "this dashboard hides" in words(answer.text)) == (400, True)
    assert stocked.stats().dead == 2


def test_search_of_errors_sees_only_shown_text(enter: Enter, stocked: Queue):
    client, asked = enter(redact=NAMES), {"state": "dead", "where": "error"}
    assert rows(client.get(MESSAGES, params=asked | {"text": SECRET[:3]}).text) == []
    assert rows(client.get(MESSAGES, params=asked | {"text": REDACTED}).text) == ["dead", "raw"]
    assert stocked.stats().dead == 2


@pytest.mark.parametrize("header", [f"note=password={SECRET}", f"blob={SECRET}"])
def test_search_of_headers_sees_only_shown_values(enter: Enter, queue: Queue, header: str):
    queue.send("x", id="m", delay=60, headers={"note": f"password={SECRET}", "blob": SECRET.encode(), "tenant": "acme"})
    for client, found in ((enter(), ["m"]), (enter(redact=NAMES), [])):
        assert rows(client.get(MESSAGES, params={"header": header}).text) == found
        assert rows(client.get(MESSAGES, params={"header": "tenant=acme"}).text) == ["m"]


def test_cause_with_a_secret_is_requeued_by_its_shown_text(enter: Enter, stocked: Queue):
    client = enter(redact=NAMES)
    form = client.get(f"{QUEUE}/dead").text.partition("Traceback")[2].partition("</form>")[0]
    asked = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form))
    del asked["csrf"]
    assert "2 scheduled again." in run(client, asked | {"act": "requeue"})
    assert ids(stocked, "dead") == set()


def test_edit_keeps_hidden_values(enter: Enter, stocked: Queue):
    client, path = enter(redact=NAMES), f"{MESSAGES}/dead/edit"
    page = client.get(path).text
    assert "The payload stays as it is" in words(page)
    assert "The headers stay as they are" in words(page)
    assert 'name="payload"' not in page
    copy = client.get("/main/queues/emails/send?copy=dead")
    assert (copy.status_code, "dead cannot be copied" in words(copy.text)) == (409, True)
    died = re.findall('name="died" value="([^"]*)"', page)[0]
    refused = send(client, path, died=died, kind="json", payload="{}")
    assert (refused.status_code, "the field payload cannot be replaced" in words(refused.text)) == (400, True)
    assert send(client, path, died=died, delay="1h", timeout="5s").status_code == 303
    info = stocked.get("dead")
    assert info is not None
    assert (info.state, info.timeout, info.payload["user"]["PASSWORD"]) == ("pending", 5.0, SECRET)


@pytest.mark.parametrize(
    ("redact", "told"), [("password", "give a list of names"), ([" "], "is not the name of a field")]
)
def test_invalid_names_are_refused(redact: list[str], told: str):
    with pytest.raises(InvalidInput, match=told):
        app("redis://127.0.0.1:1", redact=redact)
