"""Headers of delayq: refused in each form and API operation that takes headers, and harmless where they are shown."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from delayq import Queue
from delayq.model.validation import MAX_ID_BYTES
from delayq.web.api.operation import Operation
from delayq.web.api.table import OPERATIONS
from tests.harness.foreign_headers import CORPUS, NAME, PLAN, SLOT, plan, write
from tests.harness.web.api import BODIES, EMAILS, is_problem, path_of
from tests.web.conftest import Client, Enter
from tests.web.test_actions import QUEUE, bury
from tests.web.test_actions import send as post
from tests.web.test_api_acts import act, snapshot, stocked, topic
from tests.web.test_forms import wrong
from tests.web.test_schedules import FIELDS, NEW
from tests.web.test_send_message import SEND, filled

__all__ = ["stocked", "topic"]

WITH_HEADERS = [each for each in OPERATIONS if each.acts and "'headers'" in str(msgspec.json.schema(each.body))]


def with_header(body: Any, name: str) -> Any:
    """Return a body whose last message has a header with this name."""
    if "messages" in body:
        return body | {"messages": [*body["messages"][:-1], with_header(body["messages"][-1], name)]}
    return body | {"headers": {"tenant": "acme", name: 1}}


def test_operations_that_take_headers_are_known():
    assert {each.name for each in WITH_HEADERS} == {
        "send_message",
        "send_messages",
        "edit_dead_letter",
        "add_schedule",
        "publish_record",
    }


@pytest.mark.parametrize("operation", WITH_HEADERS, ids=lambda each: each.name)
@pytest.mark.parametrize("name", [SLOT, " DELAYQ-Plan"])
def test_api_refuses_headers_of_delayq_and_changes_nothing(
    enter: Enter, stocked: Queue, operation: Operation, name: str
):
    before = snapshot(stocked)
    answer = act(enter(), path_of(operation).replace("/m/", "/dead/"), with_header(BODIES[operation.name], name))
    assert is_problem(answer, 400)
    response = answer.json()
    assert response["field"].endswith(f"headers.{name}")
    assert f"header {name!r} is reserved" in response["detail"]
    assert snapshot(stocked) == before


@pytest.mark.parametrize("headers", ["a=1\nDelayq-Slot = 1", '{"a": 1, "Delayq-Slot": 1}'])
def test_forms_refuse_headers_of_delayq_and_change_nothing(enter: Enter, queue: Queue, headers: str):
    bury(queue, "dead")
    client = enter()
    page = client.get(f"{QUEUE}/messages/dead/edit").text
    edit = {"died": re.findall('name="died" value="([^"]*)"', page)[0], "kind": "json", "payload": "1"}
    edit["headers"] = '{"a": 1, "Delayq-Slot": 1}'
    before = snapshot(queue)
    forms = {
        SEND: filled(client) | {"payload": "1", "headers": headers},
        NEW: FIELDS | {"act": "preview", "headers": headers},
        f"{QUEUE}/messages/dead/edit": edit,
    }
    for path, fields in forms.items():
        answer = post(client, path, **fields)
        assert answer.status_code == 400
        assert wrong(answer.text)[0] == "headers"
        assert "header 'Delayq-Slot' is reserved" in wrong(answer.text)[1]
    assert snapshot(queue) == before


@pytest.mark.parametrize("headers", ["[]", "5", "[1]", '"a"'])
def test_edit_refuses_headers_that_are_no_object(enter: Enter, queue: Queue, headers: str):
    bury(queue, "dead")
    client = enter()
    page = client.get(f"{QUEUE}/messages/dead/edit").text
    died = re.findall('name="died" value="([^"]*)"', page)[0]
    answer = post(client, f"{QUEUE}/messages/dead/edit", died=died, kind="json", payload="1", headers=headers)
    assert (answer.status_code, wrong(answer.text)[0]) == (400, "headers")


def is_id(text: str) -> bool:
    """Whether a user could give this id; pages refuse any other."""
    return text.isprintable() and len(text.encode()) <= MAX_ID_BYTES


def get(client: Client, path: str) -> Any:
    answer = client.get(path)
    assert answer.status_code == 200, (path, answer.text[:500])
    return answer


def test_headers_that_another_client_has_written_can_be_looked_at(enter: Enter, queue: Queue):
    for name in ("bob", "alice"):
        queue.schedules.add(name, "0 0 1 1 *")
    for each in CORPUS:
        write(queue, *each, due="+60000")
    client = enter()
    for page in ("", "/messages", "/schedules"):
        get(client, f"{QUEUE}{page}")
    listed = get(client, f"{EMAILS}/messages?state=pending&limit=200").json()["messages"]
    assert len(listed) == len({each.id for each in CORPUS}) + 2
    assert {name for each in listed for name in each["headers"]} <= {"tenant"}
    for message_id in filter(is_id, {each.id for each in CORPUS}):
        step = quote(message_id, safe="")
        page = get(client, f"{QUEUE}/messages/{quote(step, safe='')}").text
        assert "delayq-slot" not in re.sub(r"delayq-slot[^<>\n]{0,30}?(@|%40)", "", page)  # an id may be called so
        get(client, f"{EMAILS}/messages/{step}")


def test_page_and_api_show_the_schedule_and_slot_of_an_occurrence(enter: Enter, queue: Queue):
    write(queue, "bob@1700000000000", {NAME: "bob", SLOT: 1_700_000_000_000, PLAN: plan(), "tenant": "acme"}, "+60000")
    client = enter()
    page = get(client, f"{QUEUE}/messages/bob%40{1_700_000_000_000}").text
    assert re.search(r"<dt>schedule</dt><dd>bob, ", page)
    assert "delayq-" not in page.partition("<h2>Headers</h2>")[2]
    shown = get(client, f"{EMAILS}/messages/bob%40{1_700_000_000_000}").json()["message"]
    assert (shown["schedule"], shown["slot"], shown["headers"]) == ("bob", "2023-11-14T22:13:20Z", {"tenant": "acme"})
