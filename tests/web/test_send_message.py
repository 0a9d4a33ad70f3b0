"""The form that sends a message or a copy of one."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from delayq import Queue
from delayq.operations.schedules import add_all
from tests.web.conftest import OWN, Client, Enter
from tests.web.test_actions import QUEUE, send
from tests.web.test_forms import typed, wrong
from tests.web.test_messages import words

SEND = f"{QUEUE}/send"


def filled(client: Client, path: str = SEND) -> dict[str, str]:
    """Return the initial content of the form."""
    form = unescape(client.get(path).text.partition('<form class="editor"')[2].partition("</form>")[0])
    fields = dict(re.findall(r'<input (?:type="hidden" )?name="(\w+)" value="([^"]*)"', form))
    fields |= dict(re.findall(r'<textarea name="(\w+)"[^>]*>\n(.*?)</textarea>', form, re.DOTALL))
    chosen = re.findall(r'<select name="(\w+)">.*?<option value="(\w+)" selected>', form, re.DOTALL)
    return fields | dict(chosen)


@pytest.fixture
def client(enter: Enter, queue: Queue) -> Client:
    queue.pause()
    return enter()


def test_message_has_the_content_of_the_form(client: Client, queue: Queue):
    fields = filled(client) | {
        "payload": '{"n": 12345678901234567890.10,\r\n "to": "ann"}',
        "headers": "tenant=acme\r\n trace = a=b ",
        "when": "10m",
        "id": "mine",
        "expires": "1h",
        "retries": "2",
        "timeout": "30s",
    }
    answer = client.post(SEND, data=fields, headers=OWN)
    assert answer.headers["location"] == f"{QUEUE}/messages/mine"
    assert re.search(r"Sent as mine, due in (10m|9m \d+s)", words(client.get(answer.headers["location"]).text))
    info = queue.get("mine")
    assert info is not None
    assert (info.body, info.headers) == (
        b'{"n":12345678901234567890.10,"to":"ann"}',
        {"tenant": "acme", "trace": "a=b"},
    )
    assert (info.max_retries, info.timeout, info.state) == (2, 30.0, "pending")
    assert info.due_at is not None
    assert info.created_at is not None
    assert info.expires_at is not None
    assert round((info.due_at - info.created_at).total_seconds()) == 600
    assert round((info.expires_at - info.created_at).total_seconds()) == 3600


@pytest.mark.parametrize(
    ("kind", "payload", "sent"), [("json", "[1]", [1]), ("text", "a\r\nb", "a\nb"), ("bytes", "ä", "ä".encode())]
)
def test_payload_is_json_text_or_bytes(client: Client, queue: Queue, kind: str, payload: str, sent: Any):
    client.post(SEND, data=filled(client) | {"payload": payload, "kind": kind}, headers=OWN)
    assert [info.payload for info in queue.peek("pending")] == [sent]


def test_form_sent_twice_sends_one_message_even_to_another_dashboard(client: Client, enter: Enter, queue: Queue):
    fields = filled(client) | {"payload": "1"}
    path = client.post(SEND, data=fields, headers=OWN).headers["location"]
    assert fields["once"].isalnum()
    assert f"Sent as {fields['once']}, due now." in words(client.get(path).text)
    again = client.post(SEND, data=fields, headers=OWN).headers["location"]
    assert "was already sent" in words(client.get(again).text)
    other = enter()
    moved = send(other, SEND, **{name: value for name, value in fields.items() if name != "csrf"}).headers["location"]
    assert "already exists: nothing was sent" in words(other.get(moved).text)
    assert path == again == moved
    assert queue.stats().sent == 1


@pytest.mark.parametrize(
    ("on_conflict", "expected", "left"),
    [
        ("ignore", "m already exists: nothing was sent.", "old"),
        ("replace", "m existed and was replaced.", "new"),
    ],
)
def test_existing_id_is_kept_or_replaced(client: Client, queue: Queue, on_conflict: str, expected: str, left: str):
    queue.send("old", delay=60, id="m")
    fields = filled(client) | {"payload": '"new"', "id": "m", "when": "60s", "on_conflict": on_conflict}
    assert expected in words(client.get(client.post(SEND, data=fields, headers=OWN).headers["location"]).text)
    assert [info.payload for info in queue.peek()] == [left]


REFUSED = {
    "invalid JSON": ({"payload": '{"a": 1,\n "b": x}'}, "payload", "line 2, column 7"),
    "too large": ({"payload": '"' + "x" * 2**20 + '"'}, "payload", "at most 1,048,576 are allowed"),
    "unknown payload type": ({"kind": "xml"}, "", ""),
    "invalid due time": ({"when": "soon"}, "when", "'soon' is not a duration, such as"),
    "invalid header": ({"headers": "a=1\ntenant"}, "headers", "line 2 of the headers is 'tenant'"),
    "a header twice": ({"headers": "a=1\na=2"}, "headers", "line 2 of the headers repeats 'a'"),
    "invalid id": ({"id": "x" * 300}, "id", "at most 256"),
    "an id that exists": ({"id": "m", "on_conflict": "error"}, "id", "message m already exists"),
    "invalid expiry": ({"expires": "-1s"}, "expires", "is not a duration"),
    "invalid retries": ({"retries": "many"}, "retries", "'many' is not a number of retries"),
    "too long a name of a task": ({"task": "x" * 300}, "task", "at most 256"),
    "arguments that are no object": ({"task": "a", "payload": "[1]"}, "task", "is not an object: give a dict"),
    "text as arguments of a task": ({"task": "a", "kind": "text"}, "task", "is not an object: give a dict"),
    "bytes as arguments of a task": ({"task": "a", "kind": "bytes"}, "task", "is not an object: give a dict"),
    "too long a time limit": ({"timeout": "2d"}, "timeout", "is not between 0.001 and 86400 seconds"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_form_comes_back_with_the_reason_and_sends_nothing(client: Client, queue: Queue, case: str):
    change, name, expected = REFUSED[case]
    queue.send("old", delay=60, id="m")
    fields = filled(client) | {"payload": '{"a": 1}', "headers": "tenant=acme"} | change
    answer = client.post(SEND, data=fields, headers=OWN)
    assert answer.status_code == 400
    assert typed(answer.text, "payload") == fields["payload"]
    if name:
        assert wrong(answer.text)[0] == name
        assert expected in wrong(answer.text)[1]
    assert queue.stats().sent == 1
    assert re.findall(r'name="once" value="([^"]*)"', answer.text) == [fields["once"]]


def test_copy_has_the_payload_headers_and_limits_of_its_message(client: Client, queue: Queue):
    headers: dict[str, str | int] = {"tenant": "acme", "n": 7, "text": "two\nlines"}
    queue.send({"to": ["ann"]}, id="a/b", delay=60, headers=headers, max_retries=3, timeout=90)
    page = client.get(f"{QUEUE}/messages/a%252Fb").text
    (link,) = re.findall(r'href="([^"]*/send\?copy=[^"]*)"', page)
    fields = filled(client, unescape(link))
    client.post(unescape(link), data=fields, headers=OWN)
    copied = queue.get(fields["once"])
    assert copied is not None
    assert (copied.payload, copied.headers) == ({"to": ["ann"]}, headers)
    assert (copied.max_retries, copied.timeout) == (3, 90.0)


def test_copy_of_a_message_of_a_task_is_for_the_same_task(client: Client, queue: Queue):
    queue.send({"user_id": 42}, id="m", delay=60, task="welcome", headers={"tenant": "acme"})
    fields = filled(client, f"{SEND}?copy=m")
    assert fields["task"] == "welcome"
    client.post(f"{SEND}?copy=m", data=fields, headers=OWN)
    copied = queue.get(fields["once"])
    assert copied is not None
    assert (copied.payload, copied.headers, copied.task) == ({"user_id": 42}, {"tenant": "acme"}, "welcome")


def test_copy_of_an_occurrence_is_an_ordinary_message(client: Client, queue: Queue):
    queue.schedules.add("hourly", "every 1h", {"a": 1}, headers={"tenant": "acme"})
    schedule = queue.schedules.get("hourly")
    assert schedule is not None
    assert schedule.next_id is not None
    link = f"{SEND}?copy={schedule.next_id}"
    fields = filled(client, link)
    client.post(link, data=fields, headers=OWN)
    copied = queue.get(fields["once"])
    assert copied is not None
    assert (copied.payload, copied.headers, copied.schedule) == ({"a": 1}, {"tenant": "acme"}, None)


def test_occurrence_that_only_its_function_handles_is_not_copied(client: Client, queue: Queue):
    queue.cron("every 1h")(nightly)
    queue.execute(add_all, queue.handlers.prepared)  # as a consumer does when it starts
    (waiting,) = queue.peek("pending")
    answer = client.get(f"{SEND}?copy={waiting.id}")
    assert answer.status_code == 409
    assert "only the function of schedule nightly handles it. Run the schedule instead" in words(answer.text)


def test_occurrence_of_a_task_is_copied_for_the_task(client: Client, queue: Queue):
    queue.cron("every 1h", payload={"days": 2})(queue.task(clean_up))
    queue.execute(add_all, queue.handlers.prepared)
    (waiting,) = queue.peek("pending")
    fields = filled(client, f"{SEND}?copy={waiting.id}")
    assert (fields["task"], fields["payload"]) == ("clean_up", '{\n  "days": 2\n}')


def clean_up(days: int) -> None: ...


def nightly(_: Any) -> None: ...


@pytest.mark.parametrize(
    ("payload", "headers", "expected"),
    [
        (b"\xff\x00", {}, "its payload is not text"),
        (b"a\r\nb", {}, "its payload is not text"),
        ("x" * 300_000, {}, "its payload is 293 KiB, and a form takes at most 256 KiB"),
        ("x", {"raw": b"\xff"}, "one of its headers contains bytes"),
    ],
)
def test_message_that_a_form_cannot_hold_is_not_copied(
    client: Client, queue: Queue, payload: Any, headers: dict[str, Any], expected: str
):
    queue.send(payload, id="m", delay=60, headers=headers)
    answer = client.get(f"{SEND}?copy=m")
    assert answer.status_code == 409
    assert expected in words(answer.text)


def test_send_is_audited_without_its_payload(enter: Enter, queue: Queue):
    queue.pause()
    lines: list[Any] = []
    client = enter(audit=lines.append)
    client.post(SEND, data=filled(client) | {"payload": '"a secret"', "id": "mine"}, headers=OWN)
    (line,) = lines
    assert {name: line[name] for name in ("who", "action", "queue", "id", "outcome")} == {
        "who": "local",
        "action": "send",
        "queue": "emails",
        "id": "mine",
        "outcome": "done",
    }
    assert "secret" not in str(line)


def test_viewer_gets_no_form(enter: Enter, queue: Queue):
    queue.send("x", id="m", delay=60)
    client = enter(read_only=True)
    assert "You have read-only access." in words(client.get(SEND).text)
    assert "Send" not in words(client.get(QUEUE).text)
    assert "Send a copy" not in words(client.get(f"{QUEUE}/messages/m").text)
