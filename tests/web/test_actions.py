"""Actions on selected messages and on all matches, and their effects in Redis."""

from __future__ import annotations

import datetime as dt
import re
import threading
from collections.abc import Mapping
from html import unescape
from typing import Any

import msgspec
import pytest

from delayq import Consumer, Message, Outgoing, Queue
from delayq.model.actions import ACTIONS, Action, Field, How, Words
from delayq.web.api.actions import BODIES, Ids, Matching, _body
from delayq.web.filters import FIELDS
from tests.harness.waiting import eventually
from tests.web.conftest import OWN, Client, Enter, token_on
from tests.web.test_messages import rows, words

QUEUE = "/main/queues/emails"


def send(client: Client, path: str, **fields: Any) -> Any:
    """Send a form of the dashboard's own."""
    token = token_on(client.get(f"{QUEUE}/messages").text)
    return client.post(path, data={"csrf": token} | fields, headers=OWN)


def fields_of(text: str) -> dict[str, Any]:
    """Return the fields of a confirmation's form."""
    form = text.partition('<form class="editor"')[2].partition("</form>")[0]
    found: dict[str, Any] = {}
    for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form):
        found.setdefault(name, []).append(unescape(value))
    return found


def run(client: Client, asked: Mapping[str, Any], **more: str) -> str:
    """Send an action, confirm it, and return the final text of its job."""
    confirmation = send(client, f"{QUEUE}/confirm", **asked)
    assert confirmation.status_code == 200, words(confirmation.text)
    answer = client.post(f"{QUEUE}/run", data=fields_of(confirmation.text) | more, headers=OWN)
    assert answer.status_code == 303, words(answer.text)
    return finished(client, answer.headers["location"])


def finished(client: Client, path: str) -> str:
    """Return the final text: on the page that a short action returns to, or on the page of a long job."""
    if "/jobs/" not in path:
        return words(client.get(path).text)
    assert eventually(lambda: ">running<" not in client.get(path).text)
    return words(client.get(path).text)


@pytest.fixture
def stocked(queue: Queue) -> Queue:
    queue.send_many([Outgoing({"n": n}, delay=600, id=f"m{n}", headers={"tenant": n % 2}) for n in range(6)])
    return queue


def bury(queue: Queue, *ids: str) -> None:
    queue.send_many([Outgoing({"id": each}, id=each) for each in ids])
    for message in queue.receive(len(ids)):
        message.reject("no luck", error=f"HTTP 503: {message.id}")


def ids(queue: Queue, state: Any) -> set[str]:
    return {info.id for info in queue.peek(state, 1000)}


def test_cancel_removes_selected_messages(enter: Enter, stocked: Queue):
    job = run(enter(), {"act": "cancel", "ids": ["m1", "m2"], "state": "pending"})
    assert "2 of 2 cancelled." in job
    assert ids(stocked, "pending") == {"m0", "m3", "m4", "m5"}


def test_buried_messages_are_dead_letters(enter: Enter, stocked: Queue):
    job = run(enter(), {"act": "bury", "ids": ["m1", "m2"], "state": "pending"})
    assert "2 of 2 buried." in job
    assert [info.reason for info in stocked.dead.list() if info.id in ("m1", "m2")] == ["buried", "buried"]


def test_held_messages_are_run_rescheduled_and_buried(enter: Enter, queue: Queue):
    for each in "abcd":
        queue.send_group([Outgoing("member", delay=60)], Outgoing("then", id=each))
    client = enter()
    page, listed = client.get(f"{QUEUE}/messages/a").text, client.get(f"{QUEUE}/messages?state=held").text
    for act in ("now", "reschedule", "bury", "cancel"):
        assert f'value="{act}"' in page
        assert f'value="{act}"' in listed
    assert "1 of 1 rescheduled." in run(client, {"act": "now", "ids": ["a"], "state": "held", "page": "message"})
    assert "1 of 1 buried." in run(client, {"act": "bury", "ids": ["b"], "state": "held"})
    assert "2 of 2 rescheduled." in run(client, {"act": "now", "all": "1", "state": "held"})
    assert ids(queue, "held") == set()
    assert {each.payload for each in queue.receive()} == {"then"}


def test_running_message_is_stopped_from_its_page(enter: Enter, queue: Queue):
    began, client = threading.Event(), enter()

    def handle(message: Message) -> None:
        began.set()
        assert eventually(lambda: message.cancelled)
        raise InterruptedError

    queue.send("x", id="m")
    consumer = Consumer(queue, handle)
    consumer.start()
    try:
        assert began.wait(60)
        assert 'value="stop"' in client.get("/main/queues/emails/messages/m").text
        job = run(client, {"act": "stop", "ids": ["m"], "state": "unack", "page": "message"})
        assert "1 of 1 being stopped." in job
        assert eventually(lambda: queue.stats().cancelled == 1)
    finally:
        consumer.stop()


def test_cancelled_running_message_is_not_retried(enter: Enter, queue: Queue):
    queue.send("x", id="m")
    (message,) = queue.receive(1)
    job = run(enter(), {"act": "cancel", "ids": ["m", "gone"], "state": "unack"})
    assert "1 of 2 still running, but will not be retried; 1 gone meanwhile." in job
    message.nack()
    assert (queue.stats().retry, queue.stats().cancelled) == (0, 1)


def test_confirmation_shows_the_count_and_changes_nothing(enter: Enter, stocked: Queue):
    client = enter()
    chosen = words(send(client, f"{QUEUE}/confirm", act="cancel", ids=["m1", "m2"], state="pending").text)
    assert "Cancel 2 messages 2 messages selected." in chosen
    matching = words(send(client, f"{QUEUE}/confirm", act="cancel", all="1", state="pending", header="tenant=1").text)
    assert "Cancel all scheduled with the header tenant=1 3 messages match." in matching
    assert stocked.stats().pending == 6


def test_warning_of_running_messages_is_not_for_dead_letters(enter: Enter, queue: Queue):
    queue.send("x", id="m")
    queue.receive(1)[0].reject("no")
    client = enter()
    asked = words(send(client, f"{QUEUE}/confirm", act="cancel", ids=["m"], state="dead").text)
    assert "Delete 1 message 1 message selected. They are deleted permanently." in asked
    assert "Running messages finish" not in asked


@pytest.mark.usefixtures("answered_at_the_end")
def test_action_on_selected_messages_returns_to_the_search(enter: Enter, stocked: Queue):
    client, search = enter(), "?state=pending&header=tenant%3D1"
    confirmation = send(client, f"{QUEUE}/confirm{search}", act="cancel", ids=["m1"], state="pending").text
    assert unescape(re.findall('href="([^"]*)">Go back', confirmation)[0]) == f"{QUEUE}/messages{search}"
    (action,) = re.findall('class="editor" method="post" action="([^"]*)"', confirmation)
    answer = client.post(unescape(action), data=fields_of(confirmation), headers=OWN)
    assert answer.headers["location"] == f"{QUEUE}/messages{search}"
    assert stocked.stats().pending == 5


def test_long_count_stops_early_and_says_so(enter: Enter, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.web.meant.COUNT_SECONDS", 0.0)
    queue.send_many([Outgoing(n, delay=60 + n, id=f"m{n:03}") for n in range(300)])
    client = enter()
    asked = {"act": "cancel", "all": "1", "state": "pending", "payload": "99"}
    assert re.search(
        r"2 of the first 2\d\d messages match \(300 in total\)", words(send(client, f"{QUEUE}/confirm", **asked).text)
    )
    dry = run(client, asked, dry="1")
    assert ("3 match." in dry, queue.stats().pending) == (True, 300)


def test_reschedule_sets_another_time(enter: Enter, stocked: Queue):
    job = run(enter(), {"act": "reschedule", "ids": ["m1", "m2"], "state": "pending"}, when="2090-01-01T00:00Z")
    assert "2 of 2 rescheduled." in job
    late = [info.id for info in stocked.peek("pending") if info.due_at and info.due_at.year == 2090]
    assert sorted(late) == ["m1", "m2"]


@pytest.mark.parametrize(
    ("given", "due"),
    [
        ({"when": "+10m"}, [70, 71, 72]),
        ({"when": "-1h"}, [0, 1, 2]),
    ],
)
@pytest.mark.parametrize("meant", [{"ids": ["m0", "m1", "m2"]}, {"all": "1"}], ids=["ticked", "all"])
def test_reschedule_with_a_sign_shifts_each_time(
    enter: Enter, queue: Queue, given: dict[str, str], due: list[int], meant: dict[str, Any]
):
    queue.pause()
    start = queue.stats().at.replace(microsecond=0) + dt.timedelta(hours=1)
    queue.send_many([Outgoing(n, at=start + dt.timedelta(minutes=60 + n), id=f"m{n}") for n in range(3)])
    assert "3 of 3 rescheduled." in run(enter(), {"act": "reschedule", "state": "pending"} | meant, **given)
    times = {info.id: info.due_at for info in queue.peek("pending")}
    assert times == {f"m{n}": start + dt.timedelta(minutes=minutes) for n, minutes in enumerate(due)}


def test_reschedule_spreads_messages_over_a_time(enter: Enter, stocked: Queue):
    asked = {"act": "reschedule", "all": "1", "state": "pending"}
    assert "6 of 6 rescheduled." in run(enter(), asked, when="2090-01-01T00:00Z", spread="1h")
    times = {info.due_at for info in stocked.peek("pending") if info.due_at}
    start = dt.datetime(2090, 1, 1, tzinfo=dt.UTC)
    assert len(times) == 6
    assert all(start <= at < start + dt.timedelta(hours=1) for at in times)


def test_confirmation_shows_examples_and_their_range_of_times(
    enter: Enter, queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    start = dt.datetime(2090, 1, 1, tzinfo=dt.UTC)
    queue.send_many([Outgoing(n, at=start + dt.timedelta(minutes=n), id=f"m{n:03}") for n in range(300)])
    client, asked = enter(), {"act": "cancel", "all": "1", "state": "pending"}
    page = send(client, f"{QUEUE}/confirm", **asked).text
    assert rows(page) == [f"m{n:03}" for n in range(5)]
    assert "5 of them. Due from 2090-01-01 00:00:00 to 2090-01-01 04:59:00 UTC." in words(page)
    ticked = send(client, f"{QUEUE}/confirm", act="cancel", state="pending", ids=["m007", "m003", "gone"]).text
    assert rows(ticked) == ["m003", "m007"]
    assert "m003 2090-01-01 00:03:00" in words(ticked)
    monkeypatch.setattr("delayq.web.meant.COUNT_SECONDS", 0.0)  # one step, of 250 messages
    some = words(send(client, f"{QUEUE}/confirm", **asked, prefix="m").text)
    assert "UTC, among those checked." in some


@pytest.mark.usefixtures("answered_at_the_end")
@pytest.mark.parametrize(("page", "path"), [("dead", "dead"), ("", "messages?state=dead"), ("message", "messages/a")])
def test_short_action_returns_to_its_page_with_a_notice(enter: Enter, queue: Queue, page: str, path: str):
    bury(queue, "a", "b")
    client = enter()
    confirmed = fields_of(send(client, f"{QUEUE}/confirm", act="requeue", ids=["a"], state="dead", page=page).text)
    answer = client.post(f"{QUEUE}/run", data=confirmed, headers=OWN)
    assert answer.headers["location"] == f"{QUEUE}/{path}"
    assert "Requeue 1 message: 1 of 1 scheduled again." in words(client.get(answer.headers["location"]).text)


@pytest.mark.usefixtures("answered_at_the_end")
def test_action_on_all_messages_returns_to_their_list(enter: Enter, stocked: Queue):
    form = {"act": "bury", "all": "1", "state": "pending", "page": "message", "once": "of-this-form"}
    answer = send(enter(), f"{QUEUE}/run", **form)
    assert answer.headers["location"] == f"{QUEUE}/messages?state=pending"
    assert stocked.stats().pending == 0


@pytest.mark.usefixtures("answered_at_the_end")
def test_dead_letter_is_deleted_not_cancelled(enter: Enter, queue: Queue):
    bury(queue, "a", "b")
    client = enter()
    for path in ("dead", "messages?state=dead", "messages/a"):
        page = client.get(f"{QUEUE}/{path}").text
        assert ">Delete…<" in page
        assert "Cancel" not in words(page)
    page = send(client, f"{QUEUE}/confirm", act="cancel", all="1", state="dead").text
    assert "Delete all dead" in words(page)
    assert ">Delete 2 messages<" in page
    assert "Delete all dead: 2 of 2 deleted." in run(client, {"act": "cancel", "all": "1", "state": "dead"})


def test_run_now_makes_messages_due(enter: Enter, stocked: Queue):
    run(enter(), {"act": "now", "ids": ["m3"], "state": "pending"})
    assert [message.id for message in stocked.receive(10)] == ["m3"]


def test_run_now_applies_to_all_matches(enter: Enter, stocked: Queue):
    job = run(enter(), {"act": "now", "all": "1", "state": "pending", "header": "tenant=1"})
    assert "3 of 3 rescheduled." in job
    assert {message.id for message in stocked.receive(10)} == {"m1", "m3", "m5"}


def test_requeue_schedules_dead_letters_again(enter: Enter, queue: Queue):
    bury(queue, "a", "b", "c")
    assert "2 of 2 scheduled again." in run(enter(), {"act": "requeue", "ids": ["a", "b"], "state": "dead"})
    assert (ids(queue, "dead"), ids(queue, "pending")) == ({"c"}, {"a", "b"})


def test_redrive_requeues_matches_and_a_dry_run_requeues_none(enter: Enter, queue: Queue):
    bury(queue, "a", "b", "c")
    client = enter()
    asked = {"act": "requeue", "all": "1", "state": "dead", "error": "503: a"}
    assert "1 match." in run(client, asked, dry="1")
    assert ids(queue, "dead") == {"a", "b", "c"}
    assert "1 scheduled again." in run(client, asked, delay="10m", rate="1000/s")
    assert (ids(queue, "dead"), ids(queue, "pending")) == ({"b", "c"}, {"a"})


def test_cause_without_an_error_requeues_no_letter_with_one(enter: Enter, queue: Queue):
    bury(queue, "failed", "failed too")
    queue.send("x", id="without")
    queue.receive(1)[0].reject("no luck")
    client = enter()
    form = client.get(f"{QUEUE}/dead").text.partition("no luck</a>")[2].partition("</form>")[0]
    fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form)
    asked = {name: unescape(value) for name, value in fields if name != "csrf"} | {"act": "requeue"}
    assert "1 scheduled again." in run(client, asked)
    assert ids(queue, "dead") == {"failed", "failed too"}


def test_purge_empties_a_state(enter: Enter, stocked: Queue):
    assert "6 purged." in run(enter(), {"act": "purge", "all": "1", "state": "pending"}, name="emails")
    stats = stocked.stats()
    assert (stats.pending, stats.purged, stats.garbage) == (0, 6, 0)


@pytest.mark.usefixtures("answered_at_the_end")
def test_form_sent_twice_acts_once(enter: Enter, queue: Queue):
    bury(queue, "a")
    client = enter()
    confirmed = fields_of(send(client, f"{QUEUE}/confirm", act="requeue", ids=["a"], state="dead").text)
    first = client.post(f"{QUEUE}/run", data=confirmed, headers=OWN)
    (message,) = queue.receive(1)
    message.reject("again")
    second = client.post(f"{QUEUE}/run", data=confirmed, headers=OWN)
    assert first.headers["location"] == second.headers["location"]
    assert (ids(queue, "dead"), queue.stats().requeued) == ({"a"}, 1)


def test_messages_that_moved_meanwhile_are_reported(enter: Enter, queue: Queue):
    queue.send_many([Outgoing(n, id=f"m{n}") for n in range(5)])
    client = enter()
    confirmed = fields_of(
        send(client, f"{QUEUE}/confirm", act="now", ids=[f"m{n}" for n in range(5)], state="ready").text
    )
    taken = queue.receive(2)
    taken[0].ack()
    answer = client.post(f"{QUEUE}/run", data=confirmed, headers=OWN)
    job = finished(client, answer.headers["location"])
    assert "3 of 5 rescheduled; 1 delivered meanwhile; 1 gone meanwhile." in job


def test_stopped_job_leaves_the_rest_unchanged(enter: Enter, queue: Queue):
    bury(queue, "a", "b", "c")
    lines: list[Any] = []
    client = enter(audit=lines.append)
    confirmed = fields_of(send(client, f"{QUEUE}/confirm", act="requeue", all="1", state="dead").text)
    path = client.post(f"{QUEUE}/run", data=confirmed | {"rate": "1/h"}, headers=OWN).headers["location"]
    assert eventually(lambda: ">running<" in client.get(path).text and queue.stats().dead == 2)
    busy = send(client, f"{QUEUE}/run", act="cancel", all="1", state="dead", once="other")
    assert (busy.status_code, "Stop that job, or wait" in words(busy.text)) == (409, True)
    assert (lines[-1]["action"], lines[-1]["all"]) == ("cancel", "dead")
    assert lines[-1]["outcome"].startswith("refused: Queue emails is busy: Requeue all dead.")
    send(client, "/main/queues/emails/examine", once="third")
    assert (lines[-1]["action"], lines[-1]["outcome"][:7]) == ("examine", "refused")
    assert "1 of 1 deleted." in run(client, {"act": "cancel", "ids": ["b"], "state": "dead"})
    stopped = send(client, f"{path}/stop")
    assert "Stopped: the rest is unchanged." in words(client.get(stopped.headers["location"]).text)
    assert ids(queue, "dead") == {"c"}


def test_job_continues_without_its_browser(enter: Enter, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.web.request_jobs.QUICK_SECONDS", 0.0)
    bury(queue, "a", "b", "c")
    client = enter()
    confirmed = fields_of(send(client, f"{QUEUE}/confirm", act="requeue", all="1", state="dead").text)
    path = client.post(f"{QUEUE}/run", data=confirmed | {"rate": "50/s"}, headers=OWN).headers["location"]
    client.cookies.clear()
    assert "3 scheduled again." in finished(client, path)
    assert client.get(f"{path}/live").status_code == 204  # this ends the stream of each page that shows it


def test_job_counts_changed_and_checked_messages_separately(
    enter: Enter, stocked: Queue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delayq.web.request_jobs.QUICK_SECONDS", 0.0)  # each leads to its job
    client = enter()
    some = {"act": "now", "all": "1", "state": "pending", "header": "tenant=1"}
    assert "6 of 6 checked" in (dry := run(client, some, dry="1"))
    assert "done 6 of 6" in dry
    assert "done 3 messages changed, 6 of 6 checked" in run(client, some)
    assert "done 1 message changed, 2 of 2 checked" in run(client, {"act": "cancel", "ids": ["m0", "gone"]})
    left = stocked.stats().pending
    assert f"done {left} messages changed, {left} of {left} checked" in run(
        client, {"act": "purge", "all": "1", "state": "pending"}, name="emails"
    )


def test_redrive_counts_requeued_and_checked_letters_separately(
    enter: Enter, queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delayq.web.request_jobs.QUICK_SECONDS", 0.0)
    bury(queue, "a", "b", "c")
    job = run(enter(), {"act": "requeue", "all": "1", "state": "dead", "error": "503: b"})
    assert "done 1 message changed, 3 of 3 checked" in job


def test_body_is_made_from_the_settings_of_an_action():
    named: dict[str, Any] = {"label": "Rate", "placeholder": "", "size": 1, "read": lambda _: {}}
    fields = (Field(name="delay", is_required=True, **named), Field(name="rate", of_matching=True, **named))
    action = Action(name="touch", words=Words("Touch", "touched"), fields=fields)
    kind, every = _body(action, Ids), _body(action, Matching)
    assert msgspec.convert({"ids": ["a"], "delay": 2.0}, kind).how() == How(delay=2)
    assert msgspec.convert({"filter": {}, "delay": 2.0}, every).how() == How(delay=2)
    assert msgspec.convert({"filter": {}, "delay": 2.0, "rate": 5.0}, every).how() == How(delay=2, rate=5)
    for given in ({"ids": ["a"]}, {"ids": ["a"], "delay": 2, "rate": 5}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(given, kind)


def test_settings_of_actions_have_names_that_no_filter_has():
    made = {field.name for each in ACTIONS.values() if each.name not in BODIES for field in each.fields}
    assert made <= {*How.__struct_fields__}
    assert not {field.name for each in ACTIONS.values() for field in each.fields} & {
        *FIELDS,
        "act",
        "ids",
        "all",
        "page",
    }


@pytest.mark.parametrize("action", [each for each in ACTIONS.values() if each.fields], ids=lambda each: each.name)
def test_form_of_an_action_asks_for_its_settings_and_a_dry_run_keeps_them(enter: Enter, queue: Queue, action: Action):
    bury(queue, "a")
    queue.send("x", id="b", delay=600)
    client, state = enter(), action.states[0]
    selected = send(client, f"{QUEUE}/confirm", act=action.name, ids="a", state=state).text
    matching = send(client, f"{QUEUE}/confirm", act=action.name, all="1", state=state).text
    for each in action.fields:
        assert (f'name="{each.name}"' in selected) == (not each.of_matching)
        assert f'name="{each.name}"' in matching
    kept = {each.name: "5" if each.of_matching else "30m" for each in action.fields}
    moved = client.post(f"{QUEUE}/run", data=fields_of(matching) | kept | {"dry": "1"}, headers=OWN)
    again = fields_of(f'<form class="editor"{client.get(moved.headers["location"]).text}')
    assert {name: again[name] for name in kept} == {name: [text] for name, text in kept.items()}


def test_dry_run_does_not_wait_for_other_jobs(enter: Enter, queue: Queue):
    bury(queue, "a", "b", "c")
    client = enter()
    confirmed = fields_of(send(client, f"{QUEUE}/confirm", act="requeue", all="1", state="dead").text)
    path = client.post(f"{QUEUE}/run", data=confirmed | {"rate": "1/h"}, headers=OWN).headers["location"]
    assert eventually(lambda: ">running<" in client.get(path).text and queue.stats().dead == 2)
    assert "2 match." in run(client, {"act": "requeue", "all": "1", "state": "dead"}, dry="1")
    assert "2 match." in run(client, {"act": "cancel", "all": "1", "state": "dead"}, dry="1")
    send(client, f"{path}/stop")


def test_purge_spares_letters_that_died_after_the_count(enter: Enter, queue: Queue):
    bury(queue, "a", "b", "c")
    client = enter()
    confirmed = fields_of(send(client, f"{QUEUE}/confirm", act="purge", all="1", state="dead").text)
    eventually(lambda: queue.stats().at > max(each.died_at for each in queue.dead.list() if each.died_at))
    queue.cancel("a")
    bury(queue, "late")
    path = client.post(f"{QUEUE}/run", data=confirmed | {"name": "emails"}, headers=OWN).headers["location"]
    assert "2 of 3 purged." in finished(client, path)
    assert ids(queue, "dead") == {"late"}


def test_purge_deletes_no_more_than_were_counted(enter: Enter, stocked: Queue):
    client = enter()
    confirmed = fields_of(send(client, f"{QUEUE}/confirm", act="purge", all="1", state="pending").text)
    stocked.send_many([Outgoing(n, id=f"far-{n}", delay=10**7 + n) for n in range(3)])
    path = client.post(f"{QUEUE}/run", data=confirmed | {"name": "emails"}, headers=OWN).headers["location"]
    assert "6 purged." in finished(client, path)
    assert ids(stocked, "pending") == {"far-0", "far-1", "far-2"}


@pytest.mark.parametrize("name", ["", "email", "Emails"])
def test_purge_without_the_queue_name_is_refused(enter: Enter, stocked: Queue, name: str):
    client = enter()
    page = send(client, f"{QUEUE}/confirm", act="purge", all="1", state="pending").text
    assert "Type the name of the queue to confirm: emails" in words(page)
    answer = client.post(f"{QUEUE}/run", data=fields_of(page) | {"name": name}, headers=OWN)
    assert answer.status_code == 400
    assert "type emails to confirm" in words(answer.text)
    assert 'aria-describedby="wrong-name"' in answer.text
    assert stocked.stats().pending == 6


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        ({"act": "explode", "ids": "m1"}, "unknown action 'explode'; expected one of now, reschedule"),
        ({"act": "cancel"}, "no message is selected"),
        ({"act": "requeue", "all": "1", "state": "pending"}, "Requeue is not possible for scheduled messages"),
        ({"act": "cancel", "ids": [f"m{n}" for n in range(501)]}, "select at most 500"),
        ({"act": "cancel", "all": "1", "state": "pending", "header": "x"}, "is not a name and a value"),
    ],
)
def test_invalid_form_is_refused(enter: Enter, stocked: Queue, asked: dict[str, Any], refusal: str):
    for path in ("confirm", "run"):
        answer = send(enter(), f"{QUEUE}/{path}", once="o", **asked)
        assert (answer.status_code, refusal in words(answer.text)) == (400, True)
    assert stocked.stats().pending == 6


@pytest.mark.parametrize(
    ("more", "refusal"),
    [
        ({"act": "reschedule", "when": "soon"}, "'soon' is not a duration, such as"),
        ({"act": "reschedule", "when": "+soon"}, "'soon' is not a duration"),
        ({"act": "reschedule", "when": "+1h", "spread": "1h"}, "'1h' cannot be combined with a shift"),
        ({"act": "reschedule", "when": "1h", "spread": "wide"}, "'wide' is not a duration"),
        ({"act": "purge"}, "a purge deletes all messages of a state"),
        ({"act": "purge", "all": "1", "ids": []}, "the form lacks the number of messages"),
        ({"act": "cancel", "once": ""}, "the form's field once is invalid"),
    ],
)
def test_fields_of_the_confirmation_are_checked(enter: Enter, stocked: Queue, more: dict[str, str], refusal: str):
    answer = send(enter(), f"{QUEUE}/run", **{"ids": ["m1"], "state": "pending", "once": "o"} | more)
    assert (answer.status_code, refusal in words(answer.text)) == (400, True)
    assert stocked.stats().pending == 6


def test_each_action_leaves_an_audit_line(enter: Enter, stocked: Queue):
    lines: list[Any] = []
    client = enter(audit=lines.append)
    run(client, {"act": "cancel", "ids": ["m1"], "state": "pending"})
    run(client, {"act": "cancel", "all": "1", "state": "pending"})
    logged = [(line["who"], line["action"], line["queue"], line["outcome"]) for line in lines]
    assert logged == [("local", "cancel", "emails", outcome) for outcome in ("done", "began", "done")]
    assert lines[0]["ids"] == ["m1"]
    assert lines[1]["all"] == "scheduled"
    assert lines[2]["told"] == "5 of 5 cancelled."
    assert stocked.stats().cancelled == 6


def test_pause_ends_by_itself_after_the_given_time(enter: Enter, stocked: Queue) -> None:
    lines: list[dict[str, str]] = []
    client = enter(audit=lines.append)
    assert send(client, f"{QUEUE}/pause", **{"for": "10m"}).status_code == 303
    assert lines[-1]["length"] == "10m"
    stats = stocked.stats()
    assert stats.paused_until is not None
    assert stats.paused_since is not None
    assert round((stats.paused_until - stats.paused_since).total_seconds()) == 600
    assert "emails is paused for 10m" in words(client.get(QUEUE).text)
    send(client, f"{QUEUE}/pause", **{"for": " "})
    assert stocked.stats().paused_since is not None
    assert stocked.stats().paused_until is None
    assert "length" not in lines[-1]


@pytest.mark.parametrize("length", ["soon", "400d", "0"])
def test_pause_of_an_invalid_length_changes_nothing(enter: Enter, stocked: Queue, length: str) -> None:
    answer = send(enter(), f"{QUEUE}/pause", **{"for": length})
    assert answer.status_code == 400
    assert length in words(answer.text)
    assert stocked.stats().paused_since is None
