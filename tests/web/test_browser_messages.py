"""Each action clicked in a real browser, and its effect in Redis; a test finds actions that are missing here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, Request, expect

from delayq import Consumer, Message, Outgoing, Queue, Topic
from delayq.model.actions import ACTIONS, SCHEDULE_ACTIONS
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually
from tests.web.conftest import Screen, Serve
from tests.web.test_actions import bury
from tests.web.test_every_route import POSTS, ROUTES

pytestmark = pytest.mark.full

PREVIEWED = {"preview", "store", "apply"}  # the forms with a preview


class Act(NamedTuple):
    """An action to click.

    Attributes:
        clicks: clicks it, and checks the queue.
        routes: the routes that its forms are sent to.
        words: the values of their field `act`.
    """

    clicks: Callable[[Page, Queue], None]
    routes: set[str]
    words: set[str]


ACTS: dict[str, Act] = {}


def act(*routes: str, words: tuple[str, ...] = ()) -> Callable[[Callable[[Page, Queue], None]], None]:
    """Register a function that clicks an action."""

    def register(clicks: Callable[[Page, Queue], None]) -> None:
        ACTS[clicks.__name__] = Act(clicks, set(routes), set(words))

    return register


@pytest.fixture
def stocked(queue: Queue, redis_server: RedisServer) -> Iterator[Queue]:
    queue.send_many([Outgoing({"n": n}, delay=600, id=f"m{n}", headers={"tenant": n % 2}) for n in range(4)])
    bury(queue, "d0", "d1", "d2")
    queue.schedules.add("hourly", "every 1h", {"of": "hourly"})
    with Topic("orders", url=redis_server.url) as topic:
        topic.publish({"order": 1})
        topic.group("billing", start="0").poll("first")
        yield queue


def ids(queue: Queue, state: str) -> set[str]:
    return {info.id for info in queue.peek(state) if not info.id.startswith("hourly")}  # type: ignore[arg-type]


def visit(page: Page, path: str) -> None:
    page.goto(f"{page.url.partition('/main')[0].rstrip('/')}/main/{path}")


def press(page: Page, name: str, nth: int = 0) -> None:
    page.get_by_role("button", name=name, exact=True).nth(nth).click()


def tick(page: Page, *chosen: str) -> None:
    for each in chosen:
        page.get_by_label(f"Select {each}").check()


def sees(page: Page, text: str) -> None:
    expect(page.get_by_text(text)).to_be_visible()


@act("confirm", "run", words=("cancel",))
def cancel_one(page: Page, queue: Queue) -> None:
    visit(page, "queues/emails/messages/m0")
    press(page, "Cancel…")
    sees(page, "1 message selected.")
    press(page, "Cancel 1 message")
    sees(page, "1 of 1 cancelled.")
    assert ids(queue, "pending") == {"m1", "m2", "m3"}


@act("confirm", "run", words=("cancel",))
def cancel_all_search_results(page: Page, queue: Queue) -> None:
    visit(page, "queues/emails/messages?state=pending&where=header&text=tenant%3D1")
    page.locator(".all").get_by_role("button", name="Cancel…").click()
    sees(page, "2 messages match.")
    press(page, "Cancel 2 messages")
    sees(page, "2 of 2 cancelled.")
    assert ids(queue, "pending") == {"m0", "m2"}


@act("confirm", "run", words=("stop",))
def stop_running(page: Page, queue: Queue) -> None:
    began = threading.Event()

    def handle(message: Message) -> None:
        began.set()
        assert eventually(lambda: message.cancelled)

    queue.now("m0")
    consumer = Consumer(queue, handle)
    consumer.start()
    try:
        assert began.wait(60)
        visit(page, "queues/emails/messages/m0")
        press(page, "Stop…")
        sees(page, "1 message selected.")
        press(page, "Stop 1 message")
        sees(page, "1 of 1 being stopped.")
        assert eventually(lambda: queue.get("m0") is None)
    finally:
        consumer.stop()


@act("confirm", "run", words=("bury",))
def bury_one(page: Page, queue: Queue) -> None:
    visit(page, "queues/emails/messages/m0")
    press(page, "Bury…")
    sees(page, "1 message selected.")
    press(page, "Bury 1 message")
    sees(page, "1 of 1 buried.")
    assert "m0" in ids(queue, "dead")


@act("confirm", "run", words=("reschedule",))
def reschedule_one(page: Page, queue: Queue) -> None:
    visit(page, "queues/emails/messages/m0")
    press(page, "Reschedule…")
    page.get_by_label("New time").fill("2090-01-01T00:00Z")
    press(page, "Reschedule 1 message")
    sees(page, "1 of 1 rescheduled.")
    assert [info.id for info in queue.peek("pending") if info.due_at and info.due_at.year == 2090] == ["m0"]


@act("confirm", "run", words=("now",))
def run_some_now(page: Page, queue: Queue) -> None:
    visit(page, "queues/emails/messages?state=pending")
    tick(page, "m1", "m2")
    press(page, "Run now…", -1)
    sees(page, "2 messages selected.")
    press(page, "Run now 2 messages")
    sees(page, "2 of 2 rescheduled.")
    assert {message.id for message in queue.receive(9)} == {"m1", "m2"}


@act("confirm", "run", words=("requeue",))
def requeue_some(page: Page, queue: Queue) -> None:
    visit(page, "queues/emails/messages?state=dead")
    tick(page, "d0", "d2")
    press(page, "Requeue…", -1)
    page.get_by_label("Delay").fill("1h")
    press(page, "Requeue 2 messages")
    sees(page, "2 of 2 scheduled again.")
    assert ids(queue, "dead") == {"d1"}
    assert ids(queue, "pending") == {"m0", "m1", "m2", "m3", "d0", "d2"}


@act("confirm", "run", words=("requeue",))
def redrive_by_a_filter_at_a_rate_after_a_dry_run(page: Page, queue: Queue) -> None:
    visit(page, "queues/emails/dead")
    page.get_by_label("Error").fill("503: d1")
    sees(page, "1 matches")
    page.locator("#matches").get_by_role("button", name="Requeue…").click()
    sees(page, "1 message matches.")
    press(page, "Dry run (count only)")
    sees(page, "1 match.")
    assert ids(queue, "dead") == {"d0", "d1", "d2"}
    press(page, "Requeue…")
    page.get_by_label("Rate").fill("100/s")
    press(page, "Requeue 1 message")
    sees(page, "1 scheduled again.")
    assert ids(queue, "dead") == {"d0", "d2"}


@act("edit")
def edit_and_requeue(page: Page, queue: Queue) -> None:
    visit(page, "queues/emails/messages/d0")
    page.get_by_role("link", name="Edit and requeue…").click()
    page.get_by_label("Payload").fill('{"mended": true}')
    page.get_by_label("Headers").fill('{"by": "hand"}')
    press(page, "Save and requeue")
    expect(page.get_by_role("heading", level=1)).to_have_text("d0")
    (message,) = queue.receive(9)
    assert (message.id, message.payload, message.headers) == ("d0", {"mended": True}, {"by": "hand"})


@act("confirm", "run", words=("purge",))
def purge_a_state(page: Page, queue: Queue) -> None:
    visit(page, "queues/emails/messages?state=dead")
    press(page, "Purge…")
    sees(page, "3 messages match.")
    page.get_by_label("Type the name of the queue").fill("emails")
    press(page, "Purge 3 messages")
    sees(page, "3 purged.")
    assert (queue.stats().dead, queue.stats().purged) == (0, 3)


@act("confirm", "run", "stop", words=("requeue",))
def stop_a_long_job(page: Page, queue: Queue) -> None:
    visit(page, "queues/emails/messages?state=dead")
    press(page, "Requeue…")
    page.get_by_label("Rate").fill("1/min")
    press(page, "Requeue 3 messages")
    sees(page, "1 scheduled again.")
    press(page, "Stop")
    sees(page, "Stopped: the rest is unchanged.")
    assert queue.stats().dead == 2


@act("pause", "resume")
def pause_and_resume(page: Page, queue: Queue) -> None:
    visit(page, "queues/emails")
    press(page, "Pause")
    sees(page, "emails is paused")
    assert queue.stats().paused_since is not None
    press(page, "Resume")
    sees(page, "emails is resumed.")
    assert queue.stats().paused_since is None


@act("schedule", words=("pause", "resume", "run"))
def pause_resume_and_run_a_schedule(page: Page, queue: Queue) -> None:
    visit(page, "queues/emails/schedules")
    press(page, "Pause")
    sees(page, "hourly is paused")
    assert [each.paused for each in queue.schedules.list()] == [True]
    press(page, "Resume")
    sees(page, "hourly is resumed")
    assert [each.paused for each in queue.schedules.list()] == [False]
    press(page, "Run now")
    sees(page, "was sent now")
    assert [message.payload for message in queue.receive(9)] == [{"of": "hourly"}]


@act("add-schedule", "schedule", words=("preview", "store", "remove"))
def add_and_remove_a_schedule(page: Page, queue: Queue) -> None:
    visit(page, "queues/emails/new-schedule")
    page.get_by_label("Name", exact=True).fill("nightly")
    page.get_by_label("When").fill("0 9 * * mon-fri")
    press(page, "Preview")
    sees(page, "Every weekday at 09:00, UTC.")
    press(page, "Add nightly")
    sees(page, "nightly is stored")
    assert [each.name for each in queue.schedules.list()] == ["hourly", "nightly"]
    page.get_by_role("link", name="Remove…").last.click()
    press(page, "Remove nightly")
    sees(page, "nightly and its waiting message are removed.")
    assert [each.name for each in queue.schedules.list()] == ["hourly"]


@act("send")
def send_one(page: Page, queue: Queue) -> None:
    visit(page, "queues/emails/send")
    page.locator("textarea[name=payload]").fill('{"n":\n 7}')
    page.get_by_label("Headers").fill("tenant=acme\nn=1")
    press(page, "Send")
    sees(page, "due now.")
    (message,) = queue.receive(9)
    assert (message.payload, message.headers) == ({"n": 7}, {"tenant": "acme", "n": "1"})


@act("configure", words=("preview", "apply"))
def configure_a_queue(page: Page, queue: Queue) -> None:
    visit(page, "queues/emails/configure")
    page.get_by_label("Rate").fill("5/s")
    press(page, "Preview changes")
    press(page, "Configure emails")
    sees(page, "emails is configured: rate: none → 5/s.")
    assert queue.configuration().rate == "5/s"


@act("claim")
def claim_records_of_another(page: Page, queue: Queue) -> None:
    visit(page, "topics/orders/groups/billing")
    page.get_by_label("Consumer", exact=True).fill("second")
    page.get_by_label("This is a new consumer").check()
    page.get_by_label("Records unacked for").fill("0s")
    press(page, "Claim up to 100")
    sees(page, "Claimed 1 record for second")
    with Topic("orders", redis=queue._executor.client) as topic:
        assert [each.consumer for each in topic.group("billing").unacked()] == ["second"]


@act("make_group", "confirm_move_group", "move_group", "confirm_destroy_group", "destroy_group")
def create_move_and_destroy_a_group(page: Page, queue: Queue) -> None:
    visit(page, "topics/orders")
    page.get_by_text("New group").click()
    page.get_by_label("Name").fill("audit")
    press(page, "Create the group")
    sees(page, "Created group audit. It starts from records published from now on.")
    page.get_by_text("Move", exact=True).click()
    page.get_by_label("Continue from").select_option("start")
    press(page, "Move…")
    press(page, "Move the group")
    sees(page, "The group continues from the first record.")
    press(page, "Destroy…")
    page.get_by_label("Type the name of the group").fill("audit")
    press(page, "Destroy the group")
    sees(page, "Destroyed group audit.")
    with Topic("orders", redis=queue._executor.client) as topic:
        assert [each.name for each in topic.groups()] == ["billing"]


@act("confirm_delete_records", "delete_records", "confirm_trim", "trim")
def delete_a_record_and_trim_the_rest(page: Page, queue: Queue) -> None:
    with Topic("orders", redis=queue._executor.client) as topic:
        gone = topic.publish({"order": 2}).id
        visit(page, "topics/orders")
        tick(page, gone)
        press(page, "Delete…")
        press(page, "Delete 1 record")
        sees(page, "Deleted 1 record.")
        page.get_by_text("Trim", exact=True).click()
        page.get_by_label("Delete records").select_option("length")
        page.get_by_label("number of newest records").fill("0")
        press(page, "Trim…")
        page.get_by_label("Type the name of the topic").fill("orders")
        press(page, "Delete 1 record")
        sees(page, "Deleted 1 record.")
        assert topic.length() == 0


@act("confirm_dead_records", "run_dead_records", words=("requeue",))
def requeue_a_dead_record(page: Page, queue: Queue) -> None:
    with Topic("orders", redis=queue._executor.client) as topic:
        billing = topic.group("billing")
        (record,) = billing.own_unacked("first")
        billing.bury(record, "first")
        visit(page, "topics/orders/groups/billing/dead")
        tick(page, record.id)
        press(page, "Requeue…", 1)  # below the list, for selected ones
        press(page, "Requeue 1 dead letter")
        sees(page, "1 requeued.")
        assert billing.dead_length() == 0


@act("examine")
def examine_a_queue(page: Page, queue: Queue) -> None:
    before = queue.stats().inside
    visit(page, "server")
    press(page, "Examine emails")
    sees(page, "8 of 8 checked")
    sees(page, "the server keeps nothing on disk")
    assert queue.stats().inside == before


@pytest.mark.parametrize("name", ACTS)
def test_clicked_action_changes_redis(serve: Serve, stocked: Queue, screen: Screen, name: str):
    sent: list[Request] = []
    screen.page.on("request", lambda request: sent.append(request) if request.method == "POST" else None)
    screen.page.goto(serve())
    ACTS[name].clicks(screen.page, stocked)
    assert set(map(route_of, sent)) == ACTS[name].routes
    fields = [parse_qs(request.post_data or "") for request in sent]
    assert {word for each in fields for word in each.get("act", [])} == ACTS[name].words
    assert screen.complaints == []


def test_id_is_copied_exactly_and_without_scripts_there_is_no_button(serve: Serve, queue: Queue, screen: Screen):
    message_id = "a\u200bb <i>'\"&"
    queue.send("x", id=message_id, delay=600)
    page = screen.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{serve()}/main/queues/emails/messages")
    page.locator("tbody th a").click()
    page.get_by_role("button", name="Copy the id").click()
    expect(page.get_by_role("status").get_by_text("Copied.")).to_be_attached()
    assert page.evaluate("navigator.clipboard.readText()") == message_id
    page.evaluate("document.documentElement.classList.remove('copies')")  # only the script adds this class
    expect(page.get_by_role("button", name="Copy the id")).to_be_hidden()


def test_every_action_is_clicked():
    assert {route for each in ACTS.values() for route in each.routes} == set(POSTS) - {"enter", "logout"}
    assert {word for each in ACTS.values() for word in each.words} == set(ACTIONS) | set(SCHEDULE_ACTIONS) | PREVIEWED


def route_of(request: Request) -> str:
    """Return the name of the route that a form was sent to."""
    path = urlsplit(request.url).path
    return next(each.name for each in ROUTES if each.path_regex.match(path) and "POST" in (each.methods or ()))
