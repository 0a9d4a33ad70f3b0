from __future__ import annotations

from tests.harness.lua.raw import NOW

GIVEN = {
    "groups": {"team": f"w 2 1 0 {NOW} 0 +0 last"},
    "rosters": {"team": "a\nb"},
    "members": {"b": "team"},
    "held": {"last": NOW},
    "messages": {"last": "{}"},
    "stats": {"sent": 1},
}


def test_message_that_waits_is_cancelled_and_members_are_listed(queue):
    queue.given(**GIVEN)
    assert queue.cancel_group("team") == (1, ["b"], False)
    assert queue.state() == {name: value for name, value in GIVEN.items() if name != "held"} | {
        "groups": {"team": f"x 2 1 0 {NOW} 0 +0 last"},
        "garbage": {"last": NOW},
        "stats": {"sent": 1, "cancelled": 1},
    }


def test_call_may_be_repeated(queue):
    queue.given(**GIVEN)
    queue.cancel_group("team")
    before = queue.state()
    assert queue.cancel_group("team") == (0, ["b"], False)
    assert queue.state() == before


def test_group_whose_list_of_members_is_lost_says_so(queue):
    queue.given(**{name: value for name, value in GIVEN.items() if name != "rosters"})
    assert queue.cancel_group("team") == (1, [], True)


def test_unknown_group_is_none(queue):
    assert queue.cancel_group("team") is None
    assert queue.state() == {}
