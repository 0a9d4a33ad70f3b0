"""The results of tasks on a message's page and in the HTTP API."""

from __future__ import annotations

from typing import Any

import pytest

from delayq import Consumer, Outgoing, Queue, TaskFailed
from delayq.web.redaction import REDACTED, Redaction
from tests.harness.servers import RedisServer
from tests.harness.web.api import EMAILS, is_problem
from tests.web.conftest import Client, Enter
from tests.web.test_messages import MESSAGES, words


def price(item: str, *, amount: int = 1) -> Any:
    if item == "milk":
        raise LookupError(f"no price for {item}")
    return {"item": item, "total": 3 * amount}


@pytest.fixture
def known(queue: Queue) -> Queue:
    """The queue, with its task."""
    queue.task(price)
    return queue


def asked(client: Client, name: str = "a") -> Any:
    return client.get(f"{EMAILS}/messages/{name}").json()


def sent(client: Client, **more: Any) -> None:
    message = {"payload": {"item": "tea", "amount": 2}, "task": "price", "results_seconds": 60, "id": "a"}
    answer = client.post(f"{EMAILS}/messages?create=true", json=message | more)
    assert answer.status_code == 200, answer.text


def test_message_sent_with_results_is_answered_with_its_result(enter: Enter, known: Queue):
    client = enter()
    sent(client)
    assert (asked(client)["message"]["state"], asked(client)["result"]) == ("pending", None)
    Consumer(known).drain()
    answer = asked(client)
    assert (answer["message"], "its result is kept until" in answer["why"]) == (None, True)
    result = answer["result"]
    assert (result["status"], result["task"], result["value"]) == ("done", "price", {"item": "tea", "total": 6})
    assert result["arguments"] == {"item": "tea", "amount": 2}
    assert (result["attempts"], len(result["consumers"]), result["error"]) == (1, 1, None)
    times = [result[each] for each in ("created_at", "started_at", "last_attempted_at", "finished_at", "kept_until")]
    assert times == sorted(times)


def test_failure_has_its_type_text_traceback_and_reason(enter: Enter, known: Queue):
    client = enter()
    sent(client, payload={"item": "milk"}, max_retries=0)
    Consumer(known).drain()
    answer = asked(client)
    error = answer["result"]["error"]
    assert (answer["message"]["state"], answer["result"]["status"], answer["result"]["value"]) == ("dead", "dead", None)
    assert (error["type"], error["text"], error["reason"]) == (
        "LookupError",
        "no price for milk",
        "retries-exhausted",
    )
    assert error["traceback"].startswith("Traceback")
    known.dead.requeue("a")
    assert (asked(client)["message"]["state"], asked(client)["result"]) == ("pending", None)


def test_result_of_an_earlier_message_is_not_that_of_a_later_one(enter: Enter, known: Queue):
    client = enter()
    sent(client)
    Consumer(known).drain()
    sent(client)
    assert asked(client)["result"] is None
    assert "Result" not in words(client.get(f"{MESSAGES}/a").text)


@pytest.mark.parametrize(
    ("given", "field"),
    [({"results_seconds": 0}, "results_seconds"), ({"task": None}, "results_seconds"), ({"task": 1}, "task")],
    ids=str,
)
def test_results_need_a_task_and_a_time(enter: Enter, known: Queue, given: dict[str, Any], field: str):
    message = {"payload": {"item": "tea"}, "task": "price", "results_seconds": 60}
    answer = enter().post(f"{EMAILS}/messages?create=true", json=message | given)
    assert is_problem(answer, 400)
    assert answer.json()["field"] == field
    assert known.stats().sent == 0


def test_page_shows_the_result_of_a_message_that_is_gone(enter: Enter, known: Queue):
    client = enter()
    sent(client)
    Consumer(known).drain()
    page = client.get(f"{MESSAGES}/a")
    assert page.status_code == 200
    text = words(page.text)
    assert "Result status done task price created" in text
    assert "Value 24 bytes" in text
    assert '{ "item": "tea", "total": 6 }' in text
    assert "Arguments 25 bytes" in text
    assert client.get(f"{MESSAGES}/b").status_code == 404


def test_page_shows_the_last_attempt_of_a_message_that_waits(enter: Enter, known: Queue):
    client = enter()
    sent(client, payload={"item": "milk"})
    Consumer(known).drain()
    text = words(client.get(f"{MESSAGES}/a").text)
    assert "Last attempt status retry" in text
    assert "raise LookupError(f&quot;no price for {item}&quot;)" in client.get(f"{MESSAGES}/a").text or (
        'raise LookupError(f"no price for {item}")' in text
    )


def test_long_value_is_cut_until_all_of_it_is_asked_for(enter: Enter, queue: Queue):
    queue.task(name="long", results=60)(lambda: ["x" * 300_000, "end"])
    queue.send({}, id="a", task="long", results=60)
    Consumer(queue).drain()
    client = enter()
    assert '"end"' not in client.get(f"{MESSAGES}/a").text
    assert "&#34;end&#34;" in client.get(f"{MESSAGES}/a?whole=1").text


def test_login_that_may_not_read_results_sees_the_message(enter: Enter, known: Queue, redis_server: RedisServer):
    client = known._executor.client
    client.acl_setuser("half", enabled=True, nopass=True, commands=["+@all", "-pttl"], keys=["*"])
    sent(enter())
    shown = enter(servers={"main": redis_server.url.replace("redis://", "redis://half:x@")})
    try:
        assert asked(shown)["message"]["state"] == "pending"
    finally:
        client.acl_deluser("half")


def test_error_whose_type_is_a_hidden_name_is_hidden(known: Queue):
    """The stored error "password: hunter2" is split at its colon, and neither part alone tells what to hide."""
    with Queue("emails", redis=known._executor.client) as other:
        sending = other.task(price).options(results=60)
        sent = sending.send("tea")
        (message,) = other.receive()
        message.reject("why", error="password: hunter2")
    with pytest.raises(TaskFailed) as raised:
        sent.result(0)
    assert (raised.value.type, raised.value.text) == ("password", "hunter2")
    result = known.result(sent.id)
    assert result is not None
    shown = Redaction(["password"]).result(result)
    assert "hunter2" not in str(shown)
    assert shown.error is not None
    assert REDACTED in shown.error.text


def test_why_of_a_message_that_is_gone_hides_values(enter: Enter, queue: Queue):
    @queue.task(results=60, max_retries=0)
    def fail(text: str) -> None:
        raise ValueError(text)

    fail.options(id="a").send("password=hunter2")
    Consumer(queue).drain()
    assert queue.cancel("a") == "cancelled"
    queue.collect_garbage()
    for redact, is_shown in (([], True), (["password"], False)):
        why = asked(enter(redact=redact))["why"]
        assert "is gone; a message with this id became a dead letter" in why
        assert ("hunter2" in why) == is_shown


def test_page_and_api_of_a_queue_say_how_the_runs_of_its_tasks_ended(enter: Enter, queue: Queue):
    name = '<b>&"price"'
    queue.task(name=name)(price)
    client = enter()
    queue.send_many([Outgoing({"item": each}, task=name, max_retries=0) for each in ("tea", "milk")])
    assert client.get(EMAILS).json()["tasks"] == []
    Consumer(queue).drain()
    answer = client.get(EMAILS).json()["tasks"]
    assert answer == [{"task": name, "acked": 1, "failed": 0, "dead": 1}]
    page = client.get("/main/queues/emails").text
    assert "&lt;b&gt;&amp;" in page.partition('id="task-runs"')[2]
    assert name not in page
