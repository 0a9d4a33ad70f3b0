"""Refused forms come back on their page, with the reason beside the field and everything that was typed."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from delayq import Outgoing, Queue, Topic
from delayq.errors import ServerUnreachable
from delayq.web import Token, Users, path_params, user_line
from tests.harness.servers import RedisServer
from tests.web.conftest import OWN, Client, Enter, log_in, token_on
from tests.web.test_actions import QUEUE, bury, fields_of, ids, send
from tests.web.test_messages import words


def typed(text: str, name: str) -> str:
    """Return the value of the visible field with this name."""
    found = [tag for tag in re.findall(r"<input [^>]*>", text) if f' name="{name}"' in tag and "hidden" not in tag]
    areas = re.findall(rf'<textarea name="{name}"[^>]*>\n(.*?)</textarea>', text, re.DOTALL)
    (value,) = [re.findall(' value="([^"]*)"', tag)[0] for tag in found] + areas
    return unescape(value)


def wrong(text: str) -> tuple[str, str]:
    """Return the name of the invalid field on a page, and the reason."""
    ((tag, described),) = re.findall(
        r'(<(?:input|textarea) [^>]*aria-invalid="true" aria-describedby="([^"]*)"[^>]*>)', text
    )
    (message,) = re.findall(rf'<p class="wrong" id="{described}">(.*?)</p>', text)
    return re.findall(' name="([^"]*)"', tag)[0], unescape(message)


def alert(text: str) -> str:
    """Return the error at the top of a page."""
    (message,) = re.findall('<p class="failed" role="alert">(.*?)</p>', text)
    return unescape(message)


def test_invalid_pause_comes_back_on_the_page_of_the_queue(enter: Enter, queue: Queue):
    queue.send("x", delay=60)
    answer = send(enter(), f"{QUEUE}/pause?span=day", **{"for": "soon"})
    assert (answer.status_code, typed(answer.text, "for")) == (400, "soon")
    assert wrong(answer.text)[0] == "for"
    assert "'soon' is not a duration" in wrong(answer.text)[1]
    assert "History" in words(answer.text)
    assert re.search('aria-current="true">Last day<', answer.text)


@pytest.mark.usefixtures("answered_at_the_end")
def test_invalid_time_comes_back_with_the_selection(enter: Enter, queue: Queue):
    queue.send_many([Outgoing(n, id=f"m{n}", delay=60) for n in range(3)])
    client = enter()
    confirmed = fields_of(send(client, f"{QUEUE}/confirm", act="reschedule", ids=["m0", "m2"], state="pending").text)
    answer = client.post(f"{QUEUE}/run", data=confirmed | {"when": "tomorow"}, headers=OWN)
    assert (answer.status_code, typed(answer.text, "when")) == (400, "tomorow")
    assert wrong(answer.text)[0] == "when"
    again = fields_of(answer.text)
    assert again["ids"] == ["m0", "m2"]
    assert client.post(f"{QUEUE}/run", data=again | {"when": "2090-01-01T00:00Z"}, headers=OWN).status_code == 303
    assert [info.id for info in queue.peek("pending") if info.due_at and info.due_at.year == 2090] == ["m0", "m2"]


@pytest.mark.parametrize(("name", "value"), [("delay", "soon"), ("rate", "fast")])
def test_invalid_redrive_comes_back_with_its_filter(enter: Enter, queue: Queue, name: str, value: str):
    bury(queue, "a")
    client = enter()
    asked = {"act": "requeue", "all": "1", "state": "dead", "error": "503"}
    confirmed = fields_of(send(client, f"{QUEUE}/confirm", **asked).text)
    known = {"delay": "10m", "rate": "5/s"} | {name: value}
    answer = client.post(f"{QUEUE}/run", data=confirmed | known, headers=OWN)
    assert (answer.status_code, wrong(answer.text)[0]) == (400, name)
    assert {each: typed(answer.text, each) for each in known} == known
    assert fields_of(answer.text)["error"] == ["503"]
    assert ids(queue, "dead") == {"a"}


def test_action_without_a_selection_comes_back_on_the_list(enter: Enter, queue: Queue):
    queue.send_many([Outgoing(n, id=f"m{n:03}", delay=60) for n in range(60)])
    client = enter()
    second = client.get(f"{QUEUE}/messages?state=pending")
    path = unescape(re.findall(r'href="(\?[^"]*after[^"]*)"', second.text)[0])
    page = client.get(f"{QUEUE}/messages{path}").text
    action = unescape(re.findall(r'<form method="post" action="([^"]*confirm[^"]*)">', page)[0])
    answer = send(client, action, act="cancel", state="pending")
    assert answer.status_code == 400
    assert 'class="wrong" id="wrong-ids">no message is selected: select at least one<' in answer.text
    assert "51–60 of 60" in words(answer.text)


def test_too_large_selection_is_kept(enter: Enter, queue: Queue):
    queue.send_many([Outgoing(n, id=f"m{n:03}", delay=60 + n) for n in range(501)])
    chosen = [f"m{n:03}" for n in range(501)]
    answer = send(enter(), f"{QUEUE}/confirm?state=pending", act="cancel", state="pending", ids=chosen)
    assert (answer.status_code, "select at most 500" in words(answer.text)) == (400, True)
    assert sorted(re.findall(r'name="ids" value="(m\d+)" checked', answer.text)) == chosen


def test_invalid_header_search_comes_back_and_lists_nothing(enter: Enter, queue: Queue):
    queue.send("x", id="m", delay=60)
    answer = enter().get(f"{QUEUE}/messages", params={"state": "pending", "header": "tenant"})
    assert (answer.status_code, typed(answer.text, "header")) == (400, "tenant")
    assert wrong(answer.text) == ("header", "header 'tenant' is not a name and a value, such as tenant=acme")
    assert "confirm" not in answer.text  # pending messages must not look like search results


@pytest.mark.parametrize(("name", "value"), [("header", "tenant"), ("older", "long"), ("newer", "2090-13-01")])
def test_invalid_filter_of_dead_letters_comes_back(enter: Enter, queue: Queue, name: str, value: str):
    bury(queue, "a")
    client = enter()
    known = {"error": "503", "reason": "no luck", "header": "n=1", "older": "1s", "newer": "2d"} | {name: value}
    answer = client.get(f"{QUEUE}/dead", params=known)
    assert (answer.status_code, wrong(answer.text)[0]) == (400, name)
    assert "Requeue…" not in answer.text.partition('id="matches"')[2].partition("<h2>")[0]
    live = client.get(f"{QUEUE}/dead/matches", params=known).text
    assert wrong(answer.text)[1] in unescape(live)
    assert {each: typed(answer.text, each) for each in known} == known


def test_busy_queue_keeps_what_was_typed(enter: Enter, queue: Queue):
    bury(queue, "a", "b", "c")
    client = enter()

    def confirmed() -> dict[str, Any]:
        return fields_of(send(client, f"{QUEUE}/confirm", act="requeue", all="1", state="dead").text)

    first = client.post(f"{QUEUE}/run", data=confirmed() | {"rate": "1/h"}, headers=OWN).headers["location"]
    busy = client.post(f"{QUEUE}/run", data=confirmed() | {"rate": "7/s", "delay": "3m"}, headers=OWN)
    assert (busy.status_code, typed(busy.text, "rate"), typed(busy.text, "delay")) == (409, "7/s", "3m")
    assert "Queue emails is busy: Requeue all dead." in alert(busy.text)
    send(client, f"{first}/stop")
    again = client.post(f"{QUEUE}/run", data=fields_of(busy.text) | {"rate": "7/s"}, headers=OWN)
    assert again.status_code == 303


def edited(client: Client, **fields: str) -> Any:
    path = f"{QUEUE}/messages/a/edit"
    died = re.findall('name="died" value="([^"]*)"', client.get(path).text)[0]
    known = {"died": died, "kind": "json", "payload": '{"n": 1}', "headers": "{}", "delay": "", "timeout": ""}
    return send(client, path, **known | fields)


@pytest.mark.parametrize(
    ("name", "value"),
    [("payload", '{"n": 2'), ("headers", '{"a"}'), ("delay", "soon"), ("timeout", "later"), ("timeout", "400d")],
)
def test_invalid_edit_comes_back_filled(enter: Enter, queue: Queue, name: str, value: str):
    bury(queue, "a")
    known = {"payload": '{"n":\n 3}', "headers": '{"b": 1}', "delay": "4m", "timeout": "5m"} | {name: value}
    answer = edited(enter(), **known)
    assert (answer.status_code, wrong(answer.text)[0]) == (400, name)
    assert {each: typed(answer.text, each) for each in known} == known
    assert ids(queue, "dead") == {"a"}


def test_edit_of_a_letter_that_died_again_is_refused_until_its_page_is_reloaded(enter: Enter, queue: Queue):
    bury(queue, "a")
    client = enter()
    answer = edited(client, died="1000", payload='{"n": 4')
    assert (answer.status_code, fields_of(answer.text)["died"]) == (400, ["1000"])
    for _ in range(2):
        answer = edited(client, died=fields_of(answer.text)["died"][0], payload='{"n": 4}')
        assert (answer.status_code, typed(answer.text, "payload")) == (409, '{"n": 4}')
        assert "a has died again since you opened it: nothing was changed. Reload this page" in alert(answer.text)
    assert ids(queue, "dead") == {"a"}
    assert edited(client, payload='{"n": 4}').status_code == 303
    assert ids(queue, "pending") == {"a"}


def test_form_for_an_unreachable_server_can_be_sent_again(enter: Enter, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    bury(queue, "a")
    client = enter()

    async def away(*_: object) -> None:
        raise ServerUnreachable("the server is away")

    page = client.get(f"{QUEUE}/messages/a/edit").text
    fields = {"died": re.findall('name="died" value="([^"]*)"', page)[0], "kind": "json", "payload": '{"n": 5}'}
    with monkeypatch.context() as patch:
        patch.setattr(path_params, "queue_of", away)
        answer = client.post(f"{QUEUE}/messages/a/edit", data=fields | {"csrf": token_on(page)}, headers=OWN)
    assert (answer.status_code, answer.headers["retry-after"], alert(answer.text)) == (503, "5", "the server is away")
    kept = {
        name: unescape(value) for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', answer.text)
    }
    assert fields.items() <= kept.items()
    assert client.post(f"{QUEUE}/messages/a/edit", data=kept, headers=OWN).status_code == 303
    assert ids(queue, "pending") == {"a"}


def test_claim_without_a_duration_comes_back(enter: Enter, queue: Queue, redis_server: RedisServer):
    queue.pause()
    with Topic("orders", url=redis_server.url) as topic:
        group = topic.group("billing", start="0")
        topic.publish("x")
        group.poll("one")
        answer = send(enter(), "/main/topics/orders/groups/billing/claim", consumer="one", idle="long", once="1")
        assert (answer.status_code, wrong(answer.text)[0]) == (400, "idle")
        assert (typed(answer.text, "consumer"), typed(answer.text, "idle")) == ("one", "long")


@pytest.mark.usefixtures("cheap_passwords")
def test_refused_login_keeps_the_name_but_no_password(enter: Enter):
    client = enter(login=Users([user_line("ann", "operator", "ann's password")]))
    answer = log_in(client, "not it at all", "ann")
    assert (answer.status_code, typed(answer.text, "name"), alert(answer.text)) == (
        403,
        "ann",
        "Wrong name or password.",
    )
    assert "not it at all" not in answer.text


def test_missing_schedule_is_reported_on_the_page_of_the_schedules(enter: Enter, queue: Queue):
    queue.schedules.add("kept", "every 1h")
    answer = send(enter(), f"{QUEUE}/schedules/none", act="pause", once="1")
    assert (answer.status_code, "Queue emails has no schedule none" in alert(answer.text)) == (404, True)
    assert "kept Every 1h" in words(answer.text)


def test_refused_form_is_audited_once(enter: Enter, queue: Queue):
    queue.send("x", id="m", delay=60)
    lines: list[Any] = []
    send(enter(audit=lines.append), f"{QUEUE}/run", act="reschedule", ids=["m"], when="soon", once="1")
    assert [(line["action"], line["outcome"][:15]) for line in lines] == [("reschedule", "refused: 'soon'")]


def test_wrong_token_is_refused_on_the_login_form(enter: Enter):
    answer = log_in(enter(login=Token("a token that is long enough")), "another token")
    assert (answer.status_code, alert(answer.text)) == (403, "Wrong token.")
    assert 'name="secret"' in answer.text
