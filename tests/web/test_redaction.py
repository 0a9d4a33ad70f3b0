"""Values of named fields and headers are on no page; content that cannot be searched is hidden as a whole."""

from __future__ import annotations

import json
import quopri
import re
from collections.abc import Iterator

import pytest

from delayq import Outgoing, Queue, Topic
from delayq.errors import InvalidInput
from delayq.model.envelope import JSON, RAW, Envelope
from delayq.web import app
from delayq.web.redaction import MOST, REDACTED, Redaction
from tests.harness.servers import RedisServer
from tests.harness.web import encodings
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
        reason = f"password={SECRET}"
        for record in group.poll("first"):
            group.bury(record, "first", reason, reason)
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
        (b'[{"pass\\u0077ord":{"a":"x"},"n":1.10}]', b'[{"pass\\u0077ord":"[redacted]","n":1.10}]'),
        (b'{"password":1, "n" : -0.10e+2,"n":123456789012345678901234567890,"e":"\\u00e9"}',
         b'{"password":"[redacted]", "n" : -0.10e+2,"n":123456789012345678901234567890,"e":"\\u00e9"}'),
        (b'{"password":1,"password":{"a":[1]},"b":[]}', b'{"password":"[redacted]","password":"[redacted]","b":[]}'),
        (b'{"a":["password","x"],"b":1}', b'{"a":"[redacted]","b":1}'),
        (b'{"a":{"name":"password","value":"x"},"b":1}', b'{"a":"[redacted]","b":1}'),
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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('a\n{"access_token": "x", "n": 1}\nToken:\n  x\nno token', f'a\n{{"access_token": {REDACTED}'),
        ("HTTP 401: token=x", f"HTTP 401: token= {REDACTED}"),
        ("bad token x", f"bad token {REDACTED}"),
        ("T\u200bOKEN: x", f"T\u200bOKEN: {REDACTED}"),
        ("\uff54oken: x", f"\uff54oken: {REDACTED}"),
        ("\U0001d42doken: x", f"\U0001d42doken: {REDACTED}"),
        ("to\u2028ken: x", f"to\u2028ken: {REDACTED}"),
        ("tok%65n=x, token=y", REDACTED),
        ("wrong dG9rZW4=", REDACTED),
        ("746f6b656e: x", REDACTED),
        ("ValueError: {'value': 'x', 'name': 'token'}", f"ValueError: {REDACTED}"),
        ('{"error": "no", "token": "x"}', f'{{"error": "no", "token": "{REDACTED}"}}'),
    ],
)
def test_text_is_cut_off_after_a_name(text: str, shown: str):
    assert Redaction(["token"]).text(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "no token",
        "KeyError: 'token'",
        "wrong token!",
        "2 tokens left, token_bucket is full, in tokenizer.py line 3",
        "50 % of https://example.org/a?b=%20c&d=e+f, C:\\new\\table \u2028 größer als &lt;b&gt;",
        "0b8f2c1e-6f0e-4a6b-9a3f-2f4f6f1f5a10 eyJ1c2VyIjogImFubiIsICJuIjogMX0= deadbeefdeadbeefdeadbeef",
        "a" * 100_000,
        "\\" * 1000,
    ],
)
def test_text_without_a_hidden_value_is_shown_as_it_is(text: str):
    redaction, payload = Redaction(["token"]), json.dumps({"note": text, "n": [1.5, None], "größe": text}).encode()
    assert redaction.text(text) == text
    assert redaction.headers({"note": text, "n": 1}) == {"note": text, "n": 1}
    assert redaction.envelope(Envelope(1, JSON, payload, 0)).body == payload


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.full) for name in encodings.NAMES[:-1]), encodings.NAMES[-1]]
)
def test_value_of_a_hidden_name_is_hidden_however_it_is_encoded(name: str):
    redaction, shown = Redaction(encodings.NAMES), list[str]()
    for label, value in encodings.cases(name):
        text = value if isinstance(value, str) else json.dumps(value)
        payloads = [json.dumps({"kept": "ann", "note": value}, ensure_ascii=is_ascii) for is_ascii in (True, False)]
        bodies = [redaction.envelope(Envelope(1, JSON, each.encode(), 0)).body.decode() for each in payloads]
        texts = [*bodies, str(redaction.headers({"note": text}))]
        texts += [redaction.text(each) for each in (text, " ".join(text.split()))]  # as errors may be stored
        shown += [label] * any(map(encodings.shows_secret, texts))
        assert all(each.startswith('{"kept": "ann", "note": ') for each in bodies), label
    assert shown == []


@pytest.mark.parametrize(
    "part", ["\\", "{", "%25", "\\u0070%", "=\n", "+A", "p\u200b", "token-", "api \n", "A", "\x1b[0;", "&#"]
)
def test_texts_of_a_megabyte_are_searched_or_hidden(part: str):
    """With a pattern that backtracks, one of them would take hours."""
    redaction, text = Redaction(["token", "api key", "-"]), part * ((MOST - 100) // len(part.encode()))
    assert redaction.text(f"{text} token: {SECRET}").endswith(REDACTED)
    body = json.dumps({"a": text[: MOST // 8], "token": SECRET}).encode()
    assert SECRET.encode() not in redaction.envelope(Envelope(1, JSON, body, 0)).body


@pytest.mark.parametrize(
    "body",
    [
        json.dumps([f"token={n}" for n in range(30_000)]),
        json.dumps([f"token={SECRET}"] * 30_000),
        json.dumps({"a": "%25" * 10 + "70", "token": SECRET}),
    ],
)
def test_what_takes_too_long_to_search_is_hidden(body: str):
    assert SECRET.encode() not in Redaction(["token"]).envelope(Envelope(1, JSON, body.encode(), 0)).body


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


@pytest.mark.parametrize("name", ["straße", "пароль", "\uff50assword"])
def test_name_is_found_where_quoted_printable_breaks_its_lines(name: str):
    redaction = Redaction([name])
    for pad in range(80):
        line = quopri.encodestring(f"{'x' * pad} {name}: {SECRET}".encode()).decode()
        assert SECRET not in redaction.text(line).replace("=\n", ""), pad


@pytest.mark.parametrize("name", ["password", b"password", b"PASSWORD", "p%61ssword"], ids=repr)
def test_headers_that_are_a_pair_of_a_hidden_name_and_its_value_are_hidden(name: str | bytes):
    shown = Redaction(["password"]).headers({"n": name, "v": SECRET})
    assert SECRET not in str(shown)


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
    ("redact", "expected"),
    [
        ("password", "give a list of names"),
        ([" "], "is not the name of a field"),
        (["a", "\u200b"], "is not the name of a field"),
    ],
)
def test_invalid_names_are_refused(redact: list[str], expected: str):
    with pytest.raises(InvalidInput, match=expected):
        app("redis://127.0.0.1:1", redact=redact)
