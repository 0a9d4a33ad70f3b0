from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from delayq.errors import InvalidName
from delayq.model.credentials import is_unfit_id, is_unfit_name
from delayq.model.validation import (
    MAX_ID_BYTES,
    MAX_NAME_BYTES,
    check_group_name,
    check_id,
    check_prefix,
    check_queue_name,
    check_schedule_name,
)

CHECKS: list[tuple[Callable[[Any], str], str, int]] = [
    (check_queue_name, "queue name", MAX_NAME_BYTES),
    (check_prefix, "prefix", MAX_NAME_BYTES),
    (check_id, "message id", MAX_ID_BYTES),
    (check_schedule_name, "schedule name", MAX_ID_BYTES - 32),
    (check_group_name, "group name", MAX_ID_BYTES),
]
each_check = pytest.mark.parametrize(("check", "what", "most"), CHECKS, ids=[what for _, what, _ in CHECKS])


@each_check
@pytest.mark.parametrize("name", ["a", "emails", "a b", "a:b/c*?[x]", "été", "☃", "-", "0", "x\xa0y", "日本語"])
def test_printable_text_is_a_name(check: Callable[[Any], str], what: str, most: int, name: str):  # noqa: ARG001
    assert check(name) == name


@each_check
def test_name_may_have_the_maximum_length_but_not_more(check: Callable[[Any], str], what: str, most: int):
    assert check("x" * most) == "x" * most
    assert check("é" * (most // 2)) == "é" * (most // 2)
    for long in ("x" * (most + 1), "é" * (most // 2) + "x"):
        with pytest.raises(InvalidName, match=rf"{what} '{long[:32]}'… is {most + 1} bytes long: at most {most}"):
            check(long)


@each_check
@pytest.mark.parametrize("name", ["", " ", " \u2003"])
def test_empty_name_is_refused(check: Callable[[Any], str], what: str, most: int, name: str):  # noqa: ARG001
    with pytest.raises(InvalidName, match=rf"a {what} must not be empty: give it at least one character"):
        check(name)


@each_check
@pytest.mark.parametrize("char", ["\n", "\x00", "\x7f", "\x85", "\u2028", "\u2029", "\ud800"])
def test_control_character_is_refused_and_named(check: Callable[[Any], str], what: str, most: int, char: str):  # noqa: ARG001
    with pytest.raises(InvalidName, match=rf"{what} .* contains {re.escape(repr(char))}: control characters"):
        check(f"a{char}b")


@each_check
@pytest.mark.parametrize(
    ("name", "shown"),
    [(None, "None"), (5, "5"), (b":secret@host", "of type bytes"), ([":secret@host"], "of type list")],
)
def test_name_that_is_not_a_string_is_refused(
    check: Callable[[Any], str],
    what: str,
    most: int,  # noqa: ARG001
    name: Any,
    shown: str,
):
    with pytest.raises(InvalidName, match=rf"{what} {shown} is not a string"):
        check(name)


@pytest.mark.parametrize("check", [check_queue_name, check_prefix])
@pytest.mark.parametrize("char", ["{", "}", "#"])
def test_characters_that_could_form_the_key_of_another_queue_are_refused(check: Callable[[Any], str], char: str):
    with pytest.raises(InvalidName, match=rf"'a\{char}b' contains '\{char}': use other characters than {{ }} #"):
        check(f"a{char}b")


def test_message_id_may_contain_braces():
    assert check_id("{order}#42") == "{order}#42"


LOGINS = {
    "redis://user:secret@host": "ids",
    "rediss://:secret@host:6380/0": "ids",
    "REDIS://:secret@host": "ids",
    "redis://:se/cr@et@host": "ids",
    "redis%3A%2F%2F%3Asecret%40host": "ids",
    "redis://host": "ids",
    "- REDIS_URL=redis://:secret@host": "ids",
    "postgres://user:secret@host/database": "ids",
    "https://user:secret@host/page": "ids",
    "host:6380,password=secret,ssl=True": "ids",
    "server=host;password = secret": "ids",
    '{"password": "secret"}': "ids",
    "redis-cli -a secret": "ids",
    "redis-cli\t-a\tsecret": "ids",
    "-a secret": "ids",
    "user:secret@host:6379": "names",
    ":secret@host": "names",
    "user%3Asecret%40host": "names",
    "https://example.org/@user": "names",
    "welcome:ann@example.org": "names",
    "reset-password:42": "",
    "ann@example.org:welcome": "",
    "a:b:c": "",
}
"""Texts, and whether they are refused in the place of an id, too, of a name only, or of neither."""


@each_check
@pytest.mark.parametrize("text", LOGINS)
def test_text_that_may_hold_a_password_is_refused_unseen(
    check: Callable[[Any], str],
    what: str,
    most: int,  # noqa: ARG001
    text: str,
):
    strict = {"names", "ids"} if what in {"queue name", "prefix", "schedule name"} else {"ids"}
    if LOGINS[text] not in strict:
        assert check(text) == text
        return
    for long in (text, text + " " * 300, text + "\n"):
        with pytest.raises(InvalidName, match=f"the {what} is a URL or has a password") as refused:
            check(long)
        assert "secret" not in str(refused.value)


def test_looking_for_a_password_takes_no_longer_for_long_texts():
    for text in (":" * 4_000_000, "%3a%2f%2f" * 400_000, "password " * 400_000, "%25" * 1_000_000):
        for check in (is_unfit_name, is_unfit_id):
            began = time.process_time()
            check(text)
            assert time.process_time() - began < 0.5
