from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from delayq.errors import InvalidName
from delayq.model.validation import MAX_ID_BYTES, MAX_NAME_BYTES, check_id, check_prefix, check_queue_name

CHECKS: list[tuple[Callable[[Any], str], str, int]] = [
    (check_queue_name, "queue name", MAX_NAME_BYTES),
    (check_prefix, "prefix", MAX_NAME_BYTES),
    (check_id, "message id", MAX_ID_BYTES),
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
@pytest.mark.parametrize("name", [None, 5, b"emails", ["emails"]])
def test_name_that_is_not_a_string_is_refused(check: Callable[[Any], str], what: str, most: int, name: Any):  # noqa: ARG001
    with pytest.raises(InvalidName, match=rf"{what} {re.escape(repr(name))} is not a string"):
        check(name)


@pytest.mark.parametrize("check", [check_queue_name, check_prefix])
@pytest.mark.parametrize("char", ["{", "}", "#"])
def test_characters_that_could_form_the_key_of_another_queue_are_refused(check: Callable[[Any], str], char: str):
    with pytest.raises(InvalidName, match=rf"'a\{char}b' contains '\{char}': use other characters than {{ }} #"):
        check(f"a{char}b")


def test_message_id_may_contain_braces():
    assert check_id("{order}#42") == "{order}#42"
