"""What a browser is sent of a part that changes: the rows that have changed, and all of it when its shape has."""

from __future__ import annotations

from delayq.web.live_part import LivePart
from delayq.web.sse import events

SEEN = "event: seen\ndata: queues#main\n\n"


def row(name: str, pending: int) -> str:
    return f'<tr role="row" id="queue#main#{name}"><td>{pending}</td></tr>'


def table(*rows: str, told: str = "none in trouble", is_fresh: bool = True) -> LivePart:
    inside = f'<p class="sum" id="sum#main">{told}</p><table>{"".join(rows)}</table>'
    return LivePart.of("queues#main", f'<div id="queues#main">{inside}</div>', is_fresh)


def sent(now: LivePart, before: LivePart | None) -> str:
    return events(now, before).decode()


def test_whole_part_is_sent_first():
    now = table(row("emails", 1))
    assert sent(now, None) == f"data: {now.html}\n\n{SEEN}"


def test_part_that_has_not_changed_is_only_told_to_have_been_seen():
    assert sent(table(row("emails", 1)), table(row("emails", 1))) == SEEN


def test_rows_and_sentences_that_have_changed_are_sent_alone_and_each_as_an_event():
    before = table(row("emails", 1), row("invoices", 1), row("orders", 1))
    now = table(row("emails", 2), row("invoices", 1), row("orders", 3), told="1 in trouble")
    sentence = 'data: <p class="sum" id="sum#main">1 in trouble</p>\n\n'
    assert sent(now, before) == f"{sentence}data: {row('emails', 2)}\n\ndata: {row('orders', 3)}\n\n{SEEN}"


def test_row_that_comes_goes_or_moves_changes_the_whole_part():
    a, b = row("a", 1), row("b", 1)
    for now, before in ((table(a, b), table(a)), (table(a), table(a, b)), (table(b, a), table(a, b))):
        assert sent(now, before) == f"data: {now.html}\n\n{SEEN}"


def test_ends_of_lines_that_a_browser_would_change_and_other_separators_arrive_as_they_are():
    value = "a\u2028b\u0085c\x0bd\re"
    part = LivePart.of("task", f'<div id="task">\n<input value="{value}">\n</div>')
    escaped = value.replace("\r", "&#13;")
    assert sent(part, part.of("task", "")).startswith(
        f'data: <div id="task">\ndata: <input value="{escaped}">\ndata: </div>\n\n'
    )


def test_part_that_tells_why_nothing_was_seen_is_not_told_to_have_been():
    assert "event: seen" not in sent(table(is_fresh=False), table(row("emails", 1)))
