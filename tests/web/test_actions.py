"""What an action does in Redis: with some messages, with all that match, once however often its form is sent."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from html import unescape
from typing import Any

import pytest

from delayq import Outgoing, Queue
from tests.harness.waiting import eventually
from tests.web.conftest import OWN, Client, Enter, token_on
from tests.web.test_messages import rows, words

QUEUE = "/main/queues/emails"


def send(client: Client, path: str, **fields: Any) -> Any:
    """Send a form of the dashboard's own."""
    token = token_on(client.get(f"{QUEUE}/messages").text)
    return client.post(path, data={"csrf": token} | fields, headers=OWN)


def fields_of(text: str) -> dict[str, Any]:
    """Return what the form of a confirmation holds."""
    form = text.partition('<form class="editor"')[2].partition("</form>")[0]
    found: dict[str, Any] = {}
    for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form):
        found.setdefault(name, []).append(unescape(value))
    return found


def run(client: Client, asked: Mapping[str, Any], **more: str) -> str:
    """Ask for an action, confirm it, and return what its task tells in the end."""
    confirmation = send(client, f"{QUEUE}/confirm", **asked)
    assert confirmation.status_code == 200, words(confirmation.text)
    answer = client.post(f"{QUEUE}/run", data=fields_of(confirmation.text) | more, headers=OWN)
    assert answer.status_code == 303, words(answer.text)
    return finished(client, answer.headers["location"])


def finished(client: Client, path: str) -> str:
    """Return what is told in the end: by the page that a short action leads back to, or by the task of a long one."""
    if "/tasks/" not in path:
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


def test_cancel_takes_away_what_was_chosen(enter: Enter, stocked: Queue):
    told = run(enter(), {"act": "cancel", "ids": ["m1", "m2"], "state": "pending"})
    assert "2 of 2 cancelled." in told
    assert ids(stocked, "pending") == {"m0", "m3", "m4", "m5"}


def test_buried_messages_are_dead_letters(enter: Enter, stocked: Queue):
    told = run(enter(), {"act": "bury", "ids": ["m1", "m2"], "state": "pending"})
    assert "2 of 2 buried." in told
    assert [info.reason for info in stocked.dead.list() if info.id in ("m1", "m2")] == ["buried", "buried"]


def test_message_that_runs_is_cancelled_for_its_next_attempt(enter: Enter, queue: Queue):
    queue.send("x", id="m")
    (message,) = queue.receive(1)
    told = run(enter(), {"act": "cancel", "ids": ["m", "gone"], "state": "unack"})
    assert "1 of 2 running: not stopped, but not retried either; 1 gone meanwhile." in told
    message.nack()
    assert (queue.stats().retry, queue.stats().cancelled) == (0, 1)


def test_confirmation_tells_the_count_and_changes_nothing(enter: Enter, stocked: Queue):
    client = enter()
    chosen = words(send(client, f"{QUEUE}/confirm", act="cancel", ids=["m1", "m2"], state="pending").text)
    assert "Cancel 2 messages 2 messages were chosen." in chosen
    matching = words(send(client, f"{QUEUE}/confirm", act="cancel", all="1", state="pending", header="tenant=1").text)
    assert "Cancel all scheduled with the header tenant=1 3 messages match now" in matching
    assert stocked.stats().pending == 6


def test_action_on_what_was_ticked_leads_back_to_the_search(enter: Enter, stocked: Queue):
    client, search = enter(), "?state=pending&header=tenant%3D1"
    confirmation = send(client, f"{QUEUE}/confirm{search}", act="cancel", ids=["m1"], state="pending").text
    assert unescape(re.findall('href="([^"]*)">Leave them', confirmation)[0]) == f"{QUEUE}/messages{search}"
    (action,) = re.findall('class="editor" method="post" action="([^"]*)"', confirmation)
    answer = client.post(unescape(action), data=fields_of(confirmation), headers=OWN)
    assert answer.headers["location"] == f"{QUEUE}/messages{search}"
    assert stocked.stats().pending == 5


def test_count_of_many_ends_after_a_moment_and_says_so(enter: Enter, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.web.meant.COUNT_SECONDS", 0.0)
    queue.send_many([Outgoing(n, delay=60 + n, id=f"m{n:03}") for n in range(300)])
    client = enter()
    asked = {"act": "cancel", "all": "1", "state": "pending", "payload": "99"}
    assert re.search(
        r"2 of the first 2\d\d messages match, of 300 in all", words(send(client, f"{QUEUE}/confirm", **asked).text)
    )
    dry = run(client, asked, dry="1")
    assert ("3 match." in dry, queue.stats().pending) == (True, 300)


def test_reschedule_gives_another_time(enter: Enter, stocked: Queue):
    told = run(enter(), {"act": "reschedule", "ids": ["m1", "m2"], "state": "pending"}, when="2090-01-01T00:00Z")
    assert "2 of 2 rescheduled." in told
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
def test_reschedule_with_a_sign_shifts_the_time_of_each(
    enter: Enter, queue: Queue, given: dict[str, str], due: list[int], meant: dict[str, Any]
):
    queue.pause()
    start = queue.stats().at.replace(microsecond=0) + dt.timedelta(hours=1)
    queue.send_many([Outgoing(n, at=start + dt.timedelta(minutes=60 + n), id=f"m{n}") for n in range(3)])
    assert "3 of 3 rescheduled." in run(enter(), {"act": "reschedule", "state": "pending"} | meant, **given)
    times = {info.id: info.due_at for info in queue.peek("pending")}
    assert times == {f"m{n}": start + dt.timedelta(minutes=minutes) for n, minutes in enumerate(due)}


def test_reschedule_spreads_over_a_time(enter: Enter, stocked: Queue):
    asked = {"act": "reschedule", "all": "1", "state": "pending"}
    assert "6 of 6 rescheduled." in run(enter(), asked, when="2090-01-01T00:00Z", spread="1h")
    times = {info.due_at for info in stocked.peek("pending") if info.due_at}
    start = dt.datetime(2090, 1, 1, tzinfo=dt.UTC)
    assert len(times) == 6
    assert all(start <= at < start + dt.timedelta(hours=1) for at in times)


def test_confirmation_shows_examples_and_from_when_to_when_they_are(
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
    assert "UTC, among those looked at." in some


@pytest.mark.parametrize(("page", "path"), [("dead", "dead"), ("", "messages?state=dead"), ("message", "messages/a")])
def test_short_action_leads_back_to_its_page_with_a_notice(enter: Enter, queue: Queue, page: str, path: str):
    bury(queue, "a", "b")
    client = enter()
    confirmed = fields_of(send(client, f"{QUEUE}/confirm", act="requeue", ids=["a"], state="dead", page=page).text)
    answer = client.post(f"{QUEUE}/run", data=confirmed, headers=OWN)
    assert answer.headers["location"] == f"{QUEUE}/{path}"
    assert "Requeue 1 message: 1 of 1 scheduled again." in words(client.get(answer.headers["location"]).text)


def test_action_on_all_messages_leads_back_to_their_list(enter: Enter, stocked: Queue):
    form = {"act": "bury", "all": "1", "state": "pending", "page": "message", "once": "of-this-form"}
    answer = send(enter(), f"{QUEUE}/run", **form)
    assert answer.headers["location"] == f"{QUEUE}/messages?state=pending"
    assert stocked.stats().pending == 0


def test_dead_letter_is_deleted_and_not_cancelled(enter: Enter, queue: Queue):
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


def test_run_now_lets_messages_be_due(enter: Enter, stocked: Queue):
    run(enter(), {"act": "now", "ids": ["m3"], "state": "pending"})
    assert [message.id for message in stocked.receive(10)] == ["m3"]


def test_all_that_match_run_now(enter: Enter, stocked: Queue):
    told = run(enter(), {"act": "now", "all": "1", "state": "pending", "header": "tenant=1"})
    assert "3 of 3 rescheduled." in told
    assert {message.id for message in stocked.receive(10)} == {"m1", "m3", "m5"}


def test_requeue_brings_dead_letters_back(enter: Enter, queue: Queue):
    bury(queue, "a", "b", "c")
    assert "2 of 2 scheduled again." in run(enter(), {"act": "requeue", "ids": ["a", "b"], "state": "dead"})
    assert (ids(queue, "dead"), ids(queue, "pending")) == ({"c"}, {"a", "b"})


def test_redrive_brings_back_those_that_match_and_a_dry_run_none(enter: Enter, queue: Queue):
    bury(queue, "a", "b", "c")
    client = enter()
    asked = {"act": "requeue", "all": "1", "state": "dead", "error": "503: a"}
    assert "1 match." in run(client, asked, dry="1")
    assert ids(queue, "dead") == {"a", "b", "c"}
    assert "1 are scheduled again." in run(client, asked, delay="10m", rate="1000/s")
    assert (ids(queue, "dead"), ids(queue, "pending")) == ({"b", "c"}, {"a"})


def test_cause_without_an_error_brings_back_none_that_has_one(enter: Enter, queue: Queue):
    bury(queue, "told", "told too")
    queue.send("x", id="untold")
    queue.receive(1)[0].reject("no luck")
    client = enter()
    form = client.get(f"{QUEUE}/dead").text.partition("no luck</a>")[2].partition("</form>")[0]
    fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form)
    asked = {name: unescape(value) for name, value in fields if name != "csrf"} | {"act": "requeue"}
    assert "1 are scheduled again." in run(client, asked)
    assert ids(queue, "dead") == {"told", "told too"}


def test_purge_empties_a_state(enter: Enter, stocked: Queue):
    assert "6 purged." in run(enter(), {"act": "purge", "all": "1", "state": "pending"}, name="emails")
    stats = stocked.stats()
    assert (stats.pending, stats.purged, stats.garbage) == (0, 6, 0)


def test_form_that_is_sent_twice_does_it_once(enter: Enter, queue: Queue):
    bury(queue, "a")
    client = enter()
    confirmed = fields_of(send(client, f"{QUEUE}/confirm", act="requeue", ids=["a"], state="dead").text)
    first = client.post(f"{QUEUE}/run", data=confirmed, headers=OWN)
    (message,) = queue.receive(1)
    message.reject("again")
    second = client.post(f"{QUEUE}/run", data=confirmed, headers=OWN)
    assert first.headers["location"] == second.headers["location"]
    assert (ids(queue, "dead"), queue.stats().requeued) == ({"a"}, 1)


def test_messages_that_have_moved_meanwhile_are_told(enter: Enter, queue: Queue):
    queue.send_many([Outgoing(n, id=f"m{n}") for n in range(5)])
    client = enter()
    confirmed = fields_of(
        send(client, f"{QUEUE}/confirm", act="now", ids=[f"m{n}" for n in range(5)], state="ready").text
    )
    taken = queue.receive(2)
    taken[0].ack()
    answer = client.post(f"{QUEUE}/run", data=confirmed, headers=OWN)
    told = finished(client, answer.headers["location"])
    assert "3 of 5 rescheduled; 1 delivered meanwhile; 1 gone meanwhile." in told


def test_task_is_stopped_and_leaves_the_rest_as_it_was(enter: Enter, queue: Queue):
    bury(queue, "a", "b", "c")
    lines: list[Any] = []
    client = enter(audit=lines.append)
    confirmed = fields_of(send(client, f"{QUEUE}/confirm", act="requeue", all="1", state="dead").text)
    path = client.post(f"{QUEUE}/run", data=confirmed | {"rate": "1/h"}, headers=OWN).headers["location"]
    assert eventually(lambda: ">running<" in client.get(path).text and queue.stats().dead == 2)
    busy = send(client, f"{QUEUE}/run", act="cancel", all="1", state="dead", once="other")
    assert (busy.status_code, "Stop it, or wait" in words(busy.text)) == (409, True)
    assert (lines[-1]["action"], lines[-1]["all"]) == ("cancel", "dead")
    assert lines[-1]["outcome"].startswith("refused: Queue emails is busy: Requeue all dead.")
    send(client, "/main/queues/emails/examine", once="third")
    assert (lines[-1]["action"], lines[-1]["outcome"][:7]) == ("examine", "refused")
    assert "Delete 1 message: 1 of 1 deleted." in run(client, {"act": "cancel", "ids": ["b"], "state": "dead"})
    stopped = send(client, f"{path}/stop")
    assert "It was stopped: what it had not reached is as before." in words(
        client.get(stopped.headers["location"]).text
    )
    assert ids(queue, "dead") == {"c"}


def test_task_goes_on_when_its_browser_has_gone(enter: Enter, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.web.pages.actions.QUICK_SECONDS", 0.0)
    bury(queue, "a", "b", "c")
    client = enter()
    confirmed = fields_of(send(client, f"{QUEUE}/confirm", act="requeue", all="1", state="dead").text)
    path = client.post(f"{QUEUE}/run", data=confirmed | {"rate": "50/s"}, headers=OWN).headers["location"]
    client.cookies.clear()
    assert "3 are scheduled again." in finished(client, path)
    assert client.get(f"{path}/live").status_code == 204  # which ends the stream of each page that shows it


def test_task_tells_what_it_has_done_apart_from_what_it_has_looked_at(
    enter: Enter, stocked: Queue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delayq.web.pages.actions.QUICK_SECONDS", 0.0)  # each leads to its task
    client = enter()
    some = {"act": "now", "all": "1", "state": "pending", "header": "tenant=1"}
    assert "6 of 6 looked at" in (dry := run(client, some, dry="1"))
    assert "done 6 of 6" in dry
    assert "done 3 messages done, 6 of 6 looked at" in run(client, some)
    assert "done 1 message done, 2 of 2 looked at" in run(client, {"act": "cancel", "ids": ["m0", "gone"]})
    left = stocked.stats().pending
    assert f"done {left} messages done, {left} of {left} looked at" in run(
        client, {"act": "purge", "all": "1", "state": "pending"}, name="emails"
    )


def test_redrive_tells_what_is_back_apart_from_what_it_has_looked_at(
    enter: Enter, queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delayq.web.pages.actions.QUICK_SECONDS", 0.0)
    bury(queue, "a", "b", "c")
    told = run(enter(), {"act": "requeue", "all": "1", "state": "dead", "error": "503: b"})
    assert "done 1 message done, 3 of 3 looked at" in told


def test_dry_run_waits_for_no_task_of_its_queue(enter: Enter, queue: Queue):
    bury(queue, "a", "b", "c")
    client = enter()
    confirmed = fields_of(send(client, f"{QUEUE}/confirm", act="requeue", all="1", state="dead").text)
    path = client.post(f"{QUEUE}/run", data=confirmed | {"rate": "1/h"}, headers=OWN).headers["location"]
    assert eventually(lambda: ">running<" in client.get(path).text and queue.stats().dead == 2)
    assert "2 match." in run(client, {"act": "requeue", "all": "1", "state": "dead"}, dry="1")
    assert "2 match." in run(client, {"act": "cancel", "all": "1", "state": "dead"}, dry="1")
    send(client, f"{path}/stop")


def test_purge_spares_what_has_died_since_it_was_counted(enter: Enter, queue: Queue):
    bury(queue, "a", "b", "c")
    client = enter()
    confirmed = fields_of(send(client, f"{QUEUE}/confirm", act="purge", all="1", state="dead").text)
    eventually(lambda: queue.stats().at > max(each.died_at for each in queue.dead.list() if each.died_at))
    queue.cancel("a")
    bury(queue, "late")
    path = client.post(f"{QUEUE}/run", data=confirmed | {"name": "emails"}, headers=OWN).headers["location"]
    assert "2 of 3 purged." in finished(client, path)
    assert ids(queue, "dead") == {"late"}


def test_purge_takes_no_more_than_were_counted(enter: Enter, stocked: Queue):
    client = enter()
    confirmed = fields_of(send(client, f"{QUEUE}/confirm", act="purge", all="1", state="pending").text)
    stocked.send_many([Outgoing(n, id=f"far-{n}", delay=10**7 + n) for n in range(3)])
    path = client.post(f"{QUEUE}/run", data=confirmed | {"name": "emails"}, headers=OWN).headers["location"]
    assert "6 purged." in finished(client, path)
    assert ids(stocked, "pending") == {"far-0", "far-1", "far-2"}


@pytest.mark.parametrize("name", ["", "email", "Emails"])
def test_purge_without_the_name_of_its_queue_comes_back_and_discards_nothing(enter: Enter, stocked: Queue, name: str):
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
        ({"act": "cancel"}, "no message is ticked"),
        ({"act": "requeue", "all": "1", "state": "pending"}, "Requeue is not for messages that are scheduled"),
        ({"act": "cancel", "ids": [f"m{n}" for n in range(501)]}, "at most 500 at a time"),
        ({"act": "cancel", "all": "1", "state": "pending", "header": "x"}, "is not a name and a value"),
    ],
)
def test_form_that_makes_no_sense_is_refused(enter: Enter, stocked: Queue, asked: dict[str, Any], refusal: str):
    for path in ("confirm", "run"):
        answer = send(enter(), f"{QUEUE}/{path}", once="o", **asked)
        assert (answer.status_code, refusal in words(answer.text)) == (400, True)
    assert stocked.stats().pending == 6


@pytest.mark.parametrize(
    ("more", "refusal"),
    [
        ({"act": "reschedule", "when": "soon"}, "'soon' is neither a length of time"),
        ({"act": "reschedule", "when": "+soon"}, "'soon' is not a length of time"),
        ({"act": "reschedule", "when": "+1h", "spread": "1h"}, "'1h' cannot be used with a shift"),
        ({"act": "reschedule", "when": "1h", "spread": "wide"}, "'wide' is not a length of time"),
        ({"act": "purge"}, "a purge is of all that is in a state"),
        ({"act": "purge", "all": "1", "ids": []}, "the form does not tell what was counted"),
        ({"act": "cancel", "once": ""}, "the form has no word of its own"),
    ],
)
def test_what_is_asked_for_at_the_confirmation_is_checked(
    enter: Enter, stocked: Queue, more: dict[str, str], refusal: str
):
    answer = send(enter(), f"{QUEUE}/run", **{"ids": ["m1"], "state": "pending", "once": "o"} | more)
    assert (answer.status_code, refusal in words(answer.text)) == (400, True)
    assert stocked.stats().pending == 6


def test_each_action_leaves_an_audit_line(enter: Enter, stocked: Queue):
    lines: list[Any] = []
    client = enter(audit=lines.append)
    run(client, {"act": "cancel", "ids": ["m1"], "state": "pending"})
    run(client, {"act": "cancel", "all": "1", "state": "pending"})
    told = [(line["who"], line["action"], line["queue"], line["outcome"]) for line in lines]
    assert told == [("local", "cancel", "emails", outcome) for outcome in ("done", "began", "done")]
    assert lines[0]["ids"] == ["m1"]
    assert lines[1]["all"] == "scheduled"
    assert lines[2]["told"] == "5 of 5 cancelled."
    assert stocked.stats().cancelled == 6


def test_pause_ends_by_itself_after_the_time_that_its_form_holds(enter: Enter, stocked: Queue) -> None:
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
def test_pause_of_a_length_that_cannot_be_is_named_and_changes_nothing(
    enter: Enter, stocked: Queue, length: str
) -> None:
    answer = send(enter(), f"{QUEUE}/pause", **{"for": length})
    assert answer.status_code == 400
    assert length in words(answer.text)
    assert stocked.stats().paused_since is None
