"""Live parts: changed rows are sent alone, and the whole part if its structure changes."""

from __future__ import annotations

from delayq.web.live_part import LivePart
from delayq.web.sse import events

SEEN = "event: seen\ndata: queues#main\n\n"


def row(name: str, pending: int) -> str:
    return f'<tr role="row" id="queue#main#{name}"><td>{pending}</td></tr>'


def table(*rows: str, summary: str = "none in trouble", is_fresh: bool = True) -> LivePart:
    inside = f'<p class="sum" id="sum#main">{summary}</p><table>{"".join(rows)}</table>'
    return LivePart.of("queues#main", f'<div id="queues#main">{inside}</div>', is_fresh)


def sent(now: LivePart, before: LivePart | None) -> str:
    return events(now, before).decode()


def test_whole_part_is_sent_first():
    now = table(row("emails", 1))
    assert sent(now, None) == f"data: {now.html}\n\n{SEEN}"


def test_unchanged_part_is_only_reported_as_seen():
    assert sent(table(row("emails", 1)), table(row("emails", 1))) == SEEN


def test_changed_rows_and_sentences_are_sent_as_one_event_each():
    before = table(row("emails", 1), row("invoices", 1), row("orders", 1))
    now = table(row("emails", 2), row("invoices", 1), row("orders", 3), summary="1 in trouble")
    sentence = 'data: <p class="sum" id="sum#main">1 in trouble</p>\n\n'
    assert sent(now, before) == f"{sentence}data: {row('emails', 2)}\n\ndata: {row('orders', 3)}\n\n{SEEN}"


def test_added_removed_or_moved_row_sends_the_whole_part():
    a, b = row("a", 1), row("b", 1)
    for now, before in ((table(a, b), table(a)), (table(a), table(a, b)), (table(b, a), table(a, b))):
        assert sent(now, before) == f"data: {now.html}\n\n{SEEN}"


def test_line_ends_and_other_separators_arrive_unchanged():
    value = "a\u2028b\u0085c\x0bd\re"
    part = LivePart.of("job", f'<div id="job">\n<input value="{value}">\n</div>')
    escaped = value.replace("\r", "&#13;")
    assert sent(part, part.of("job", "")).startswith(
        f'data: <div id="job">\ndata: <input value="{escaped}">\ndata: </div>\n\n'
    )


def test_part_with_an_error_is_not_reported_as_seen():
    assert "event: seen" not in sent(table(is_fresh=False), table(row("emails", 1)))
