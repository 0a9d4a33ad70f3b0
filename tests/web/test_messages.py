"""Message lists, searches, and the page of a message."""

from __future__ import annotations

import datetime as dt
import re
from html import unescape
from typing import Any

import pytest
import redis

from delayq import Outgoing, Queue, RetryAfter
from delayq.model.outcome import of_error
from delayq.protocol.queue_keys import QueueKeys
from tests.harness.waiting import eventually
from tests.web.conftest import Enter

MESSAGES = "/main/queues/emails/messages"
STRANGE = ["a/b", "a?b=c&d", "100%", "%2F", "#x", "..", ".", "a b", "<b>&amp;</b>", "grün", "+", "'\"", "a;b", "\\"]
ROW = re.compile(r'<th scope="row"[^>]*><a href="([^"]*)">(.*?)</a>')


def rows(text: str) -> list[str]:
    """Return the ids that a page lists."""
    return [unescape(name) for _, name in ROW.findall(text)]


def link(text: str, title: str) -> str:
    """Return the target of the link with this title."""
    (found,) = re.findall(rf'<a [^>]*href="([^"]*)"[^>]*>{title}</a>', text)
    return unescape(found)


def words(text: str) -> str:
    """Return the text of a page."""
    return " ".join(unescape(re.sub("<[^>]*>", " ", text.partition("<main")[2])).split())


def test_pages_lead_through_all_messages_forwards_and_back(enter: Enter, queue: Queue):
    queue.send_many([Outgoing(n, delay=60, id=f"m{n:03}") for n in range(120)])
    client = enter()
    first = client.get(MESSAGES).text
    assert rows(first) == [f"m{n:03}" for n in range(50)]
    assert "1–50 of 120" in words(first)
    second = client.get(MESSAGES + link(first, "Next")).text
    third = client.get(MESSAGES + link(second, "Next")).text
    assert rows(second) + rows(third) == [f"m{n:03}" for n in range(50, 120)]
    assert ">Next<" not in third
    assert rows(client.get(MESSAGES + link(third, "Back")).text) == rows(second)
    assert rows(client.get(MESSAGES + link(first, "Last")).text) == [f"m{n:03}" for n in range(70, 120)]
    assert rows(client.get(MESSAGES + link(third, "First")).text) == rows(first)


@pytest.mark.parametrize(
    ("state", "word"),
    [("pending", "scheduled"), ("ready", "due"), ("unack", "running"), ("retry", "retrying"), ("dead", "dead")],
)
def test_empty_state_says_so_in_plain_words(enter: Enter, queue: Queue, state: str, word: str):
    queue.pause()
    page = enter().get(f"{MESSAGES}?state={state}").text
    assert f"No {word} messages." in words(page)
    assert f"<title>{word.capitalize()} · emails" in page
    assert word == state or f'<abbr title="{state}">{word}</abbr>' in page


def test_structures_are_named_only_in_tooltips_and_urls(enter: Enter, queue: Queue):
    queue.send_many([Outgoing(n, delay=60 * (n % 2), id=f"m{n}") for n in range(8)])
    taken = queue.receive(3)
    taken[0].nack(delay=60)
    taken[1].reject("no luck")
    client = enter()
    for state in ("pending", "ready", "unack", "retry", "dead"):
        message_id = queue.peek(state)[0].id
        for path in ("/", "/main/queues/emails", f"{MESSAGES}?state={state}", f"{MESSAGES}/{message_id}"):
            text = words(client.get(path).text)
            assert re.findall(r"\b([Pp]ending|[Rr]eady|[Uu]nack|[Rr]etry)\b", text) == [], path


def test_search_forms_have_distinct_names(enter: Enter, queue: Queue):
    queue.send("x")
    names = re.findall('role="search" aria-label="([^"]*)"', enter().get(MESSAGES).text)
    assert names == ["By id", "By filters"]


def test_unknown_state_is_refused(enter: Enter, queue: Queue):
    queue.pause()
    answer = enter().get(f"{MESSAGES}?state=lost")
    assert (answer.status_code, "unknown state 'lost'; expected one of pending" in words(answer.text)) == (400, True)


def test_message_with_any_id_opens(enter: Enter, queue: Queue):
    queue.send_many([Outgoing({"of": each}, delay=60, id=each) for each in STRANGE])
    client = enter()
    listed = {unescape(name): href for href, name in ROW.findall(client.get(MESSAGES).text)}
    assert set(listed) == set(STRANGE)
    for each in STRANGE:
        answer = client.get(unescape(listed[each]))
        assert answer.status_code == 200
        assert f"{each} is not due until" in words(answer.text)
        opened = client.get(client.get(MESSAGES, params={"id": each}).headers["location"])
        assert f"{each} is not due until" in words(opened.text)


def test_message_of_another_program_is_listed_and_explained(enter: Enter, queue: Queue, redis_client: redis.Redis):
    queue.pause()
    redis_client.zadd(QueueKeys("delayq", "emails").pending, {b"\xff\xfe": 4e12})
    client = enter()
    page = client.get(MESSAGES).text
    assert rows(page) == ["\\xff\\xfe"]
    answer = client.get(ROW.findall(page)[0][0])
    assert (answer.status_code, "another program has written it" in words(answer.text)) == (404, True)


def test_message_page_says_why_it_waits_and_shows_its_content(enter: Enter, queue: Queue):
    queue.configure(events=True)
    queue.send({"name": "Ann", "big": 12345678901234567890}, id="m", delay=60, headers={"tenant": "acme", "n": 3})
    queue.reschedule("m", delay=90)
    answer = enter().get(f"{MESSAGES}/m")
    text = words(answer.text)
    assert "m is not due until" in text
    assert '"big": 12345678901234567890' in text
    assert "tenant acme n 3" in text
    assert re.findall("<strong>(.*?)</strong>", answer.text) == ["rescheduled", "sent"]


def test_message_shows_bytes_in_hex_and_text_as_text(enter: Enter, queue: Queue):
    queue.send(b"\xff\x00ab", id="raw", delay=60)
    queue.send(b"two\nlines", id="text", delay=60)
    client = enter()
    assert "000000 ff 00 61 62 ..ab" in words(client.get(f"{MESSAGES}/raw").text)
    assert "two\nlines" in client.get(f"{MESSAGES}/text").text


def test_gone_message_is_described_from_the_ledger(enter: Enter, queue: Queue):
    queue.configure(events=True)
    queue.send("x", id="m", delay=60)
    queue.cancel("m")
    answer = enter().get(f"{MESSAGES}/m")
    assert (answer.status_code, "m was cancelled at" in words(answer.text)) == (200, True)


def test_message_that_never_existed_is_not_found(enter: Enter, queue: Queue):
    queue.pause()
    answer = enter().get(f"{MESSAGES}/nobody")
    assert answer.status_code == 404
    assert "nobody is not in queue emails: it was never sent, or is gone" in words(answer.text)


def test_timeline_in_a_long_ledger_is_searched_in_steps(enter: Enter, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.web.pages.message.LOOK_SECONDS", 1e-9)  # one step of 500 entries
    queue.configure(events=True)
    queue.send("x", id="m", delay=60)
    queue.send_many([Outgoing(n, delay=60) for n in range(500)])
    client = enter()
    page = client.get(f"{MESSAGES}/m").text
    assert "sent" not in re.findall("<strong>(.*?)</strong>", page)
    (further,) = re.findall('data-next="([^"]*)"', page)
    assert re.findall("<strong>(.*?)</strong>", client.get(unescape(further)).text) == ["sent"]
    assert client.get(f"{MESSAGES}/m/life?from=x").status_code == 400


@pytest.mark.parametrize(
    ("where", "text", "numbers"),
    [("payload", '"n":7', [7, *range(70, 80)]), ("header", "tenant=1", [*range(1, 120, 3)]), ("payload", "x<b>", [])],
)
def test_search_matches_payload_and_header(enter: Enter, queue: Queue, where: str, text: str, numbers: list[int]):
    queue.send_many([Outgoing({"n": n}, delay=60, id=f"m{n:03}", headers={"tenant": n % 3}) for n in range(120)])
    page = enter().get(MESSAGES, params={"state": "pending", "where": where, "text": text}).text
    assert rows(page) == [f"m{n:03}" for n in numbers]
    assert f"{len(numbers)} found, 120 of 120 searched" in words(page)


def test_search_matches_the_last_error(enter: Enter, queue: Queue):
    queue.send_many([Outgoing(n, id=f"m{n}") for n in range(3)])
    for message in queue.receive(3):
        message.nack(delay=60, error=f"HTTP 50{message.id[-1]}")
    page = enter().get(MESSAGES, params={"state": "retry", "where": "error", "text": "HTTP 502"}).text
    assert rows(page) == ["m2"]


def test_long_search_stops_and_continues(enter: Enter, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.web.pages.messages.SEARCH_SECONDS", 1e-9)  # one step, of 250 messages
    queue.send_many([Outgoing(n, delay=60 + n, id=f"m{n:03}") for n in range(600)])
    client = enter()
    asked = {"state": "pending", "where": "payload", "text": "00"}
    page = client.get(MESSAGES, params=asked).text
    found, looked = rows(page), []
    while further := re.findall('<tbody class="further" id="further" data-next="([^"]*)"', page):
        looked += re.findall(r"found, (\d+) of 600 searched", page)
        stopped = client.get(unescape(further[0]) + "&halt=1").text
        assert (rows(stopped), "Continue" in stopped) == ([], True)
        page = client.get(unescape(further[0])).text
        found += rows(page)
    assert found == ["m100", "m200", "m300", "m400", "m500"]
    assert looked == sorted(set(looked))
    assert "5 found, 600 of 600 searched" in words(f"<main{page}")


def test_search_continues_by_links_without_scripts(enter: Enter, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.web.pages.messages.SEARCH_SECONDS", 1e-9)
    queue.send_many([Outgoing(n, delay=60 + n, id=f"m{n:03}") for n in range(300)])
    client = enter()
    stopped = client.get(link(client.get(MESSAGES, params={"where": "payload", "text": "29"}).text, "Stop")).text
    page: Any = client.get(link(stopped, "Continue")).text
    assert rows(page) == [f"m{n}" for n in range(290, 300)]


def test_header_without_a_value_is_refused(enter: Enter, queue: Queue):
    queue.pause()
    answer = enter().get(MESSAGES, params={"where": "header", "text": "tenant"})
    assert (answer.status_code, "is not a name and a value, such as tenant=acme" in words(answer.text)) == (400, True)


def test_large_payload_is_not_read_for_a_list(enter: Enter, queue: Queue):
    queue.send(b"x" * 100_000, id="m", delay=60)
    client = enter()
    assert "97.7 KiB: open the message to see it" in words(client.get(MESSAGES).text)
    assert "xxxx" in client.get(f"{MESSAGES}/m").text


def test_filter_of_dead_letters_counts_and_lists_its_matches(enter: Enter, queue: Queue):
    for message_id in ("a", "b", "c"):
        queue.send("x", id=message_id)
        queue.receive(1)[0].reject("no luck", error=f"HTTP 503: {message_id}")
    client = enter()
    for path in ("dead", "dead/matches"):
        page = client.get(f"/main/queues/emails/{path}", params={"error": "503: b"}).text
        part = page.partition('id="matches"')[2].partition("</div>")[0]
        assert "1 matches" in part
        assert '<input type="hidden" name="error" value="503: b">' in part
        assert rows(client.get(link(part, "Show them")).text) == ["b"]
    assert "3 match" in client.get("/main/queues/emails/dead").text


def test_causes_show_deaths_of_the_last_hour_latest_first(enter: Enter, queue: Queue):
    for reason in ("old", "old", "new"):
        queue.send("x")
        queue.receive(1)[0].reject(reason)
        # the next one must die later
        assert eventually(lambda: queue.stats().at > max(each.died_at for each in queue.dead.list() if each.died_at))
    page = words(enter().get("/main/queues/emails/dead").text)
    assert "new 1 ↑ more: 1 0" in page
    assert page.index("old 2 ↑ more: 2 0") > page.index("new 1")


def test_filters_are_combined(enter: Enter, queue: Queue):
    start = queue.stats().at.replace(microsecond=0) + dt.timedelta(days=1)
    queue.send_many(
        Outgoing({"n": n}, at=start + dt.timedelta(minutes=n), id=f"{'ab'[n % 2]}{n:02}", headers={"tenant": n % 3})
        for n in range(60)
    )
    since = (start + dt.timedelta(minutes=10)).isoformat()
    client, asked = enter(), {"since": since, "until": "+2d", "prefix": "a", "header": "tenant=1"}
    page = client.get(MESSAGES, params=asked).text
    assert sorted(rows(page)) == [f"a{n:02}" for n in range(10, 60) if n % 2 == 0 and n % 3 == 1]
    assert client.get(MESSAGES, params={"since": "soon"}).status_code == 400
    assert "'2h' has no sign: write +2h or -2h" in words(client.get(MESSAGES, params={"until": "2h"}).text)
    for name in ("since", "until"):  # the year -713
        answer = client.get(MESSAGES, params={name: "-999999d"})
        assert (answer.status_code, "'-999999d' is not between 1970" in words(answer.text)) == (400, True)


def test_long_id_is_shortened_but_copied_whole(enter: Enter, queue: Queue):
    message_id = f"order-{'0' * 40}-end"
    queue.send("x", id=message_id, delay=60)
    page = enter().get(MESSAGES).text
    assert f'title="{message_id}">order-{"0" * 11}…{"0" * 14}-end</a>' in page
    assert f'data-copy="{message_id}"' in page


def test_timeline_shows_the_time_between_events(enter: Enter, queue: Queue):
    queue.configure(events=True)
    queue.send("x", id="m", delay=60)
    queue.reschedule("m", delay=90)
    page = words(enter().get(f"{MESSAGES}/m").text)
    assert re.search(r"rescheduled .* after sent sent ", page)


def test_traceback_shows_its_last_line_first_and_the_rest_on_request(enter: Enter, queue: Queue):
    queue.send("x", id="m")
    queue.receive(1)[0].reject("no luck", error="Traceback\n  File x\nValueError: three")
    page = enter().get(f"{MESSAGES}/m").text
    assert '<pre class="block">ValueError: three</pre>' in page
    assert "<summary>All 3 lines</summary>" in page


@pytest.mark.parametrize(("payload", "kind"), [({"n": 1.5}, "json"), (b"\xff<script>", "bin")])
def test_payload_file_has_a_type_that_no_browser_runs(enter: Enter, queue: Queue, payload: Any, kind: str):
    queue.send(payload, id="a/b", delay=60)
    client = enter()
    answer = client.get(link(client.get(f"{MESSAGES}/a%252Fb").text, "Download"))
    assert answer.content == (payload if isinstance(payload, bytes) else b'{"n":1.5}')
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == f'attachment; filename="a_b-c14cddc0.{kind}"'
    assert client.get(f"{MESSAGES}/gone/payload").status_code == 404


def test_payload_is_copied_without_escapes(enter: Enter, queue: Queue):
    queue.send("a\xa0b", id="escaped", delay=60)
    queue.send(b"a\r\nb", id="lines", delay=60)
    queue.send("ab", id="plain", delay=60)
    client = enter()
    assert 'data-copy="&#34;a\xa0b&#34;"' in client.get(f"{MESSAGES}/escaped").text
    assert 'data-copy="a&#13;\nb"' in client.get(f"{MESSAGES}/lines").text
    assert 'data-copy-of="payload"' in client.get(f"{MESSAGES}/plain").text


def test_reason_that_is_a_sentence_ends_with_one_period(enter: Enter, queue: Queue):
    queue.send("x", id="m")
    queue.receive(1)[0].reject("The price is missing.")
    assert "with the reason: The price is missing. died" in words(enter().get(f"{MESSAGES}/m").text)


def test_all_dead_letters_are_deleted_by_a_purge_only(enter: Enter, queue: Queue):
    queue.send("x", id="m")
    queue.receive(1)[0].reject("no")
    page = enter().get(f"{MESSAGES}?state=dead").text
    on_all, on_selected = page.partition('class="chosen"')[::2]
    assert ("Purge…" in on_all, "Delete…" in on_all) == (True, False)
    assert ("Purge…" in on_selected, "Delete…" in on_selected) == (False, True)


def test_large_payload_is_shown_whole_on_request(enter: Enter, queue: Queue):
    queue.send("x" * 300_000 + "end", id="m", delay=60)
    client = enter()
    page = client.get(f"{MESSAGES}/m").text
    assert "xend" not in page
    assert "xend" in client.get(f"{MESSAGES}/m{link(page, 'Show all')}").text


def test_message_shows_its_attempts_and_used_retries(enter: Enter, queue: Queue):
    queue.send("x", id="a", max_retries=5)
    for counts in (False, False, False, True):
        (message,) = queue.receive(wait=5)
        queue.settle(message, of_error(RetryAfter(0, counts=counts), message))
    assert "attempts 4 retries used 1 of 5" in words(enter().get(f"{MESSAGES}/a").text)
