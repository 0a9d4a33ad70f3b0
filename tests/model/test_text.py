"""Ids and other texts as people read them: with no invisible characters, and none that change how others look."""

from __future__ import annotations

import re
import sys
import unicodedata

import pytest

from delayq.model.text import printable

ENGLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gnp.\u202efdp", r"gnp.\u202efdp"),
        ("\u200b", r"\u200b"),
        ("a\u00a0b\u3000c", r"a\xa0b\u3000c"),
        ("tab\tline\n\x1b[2J", r"tab\tline\n\x1b[2J"),
        ("\ue000\U000e0041\u0378", r"\ue000\U000e0041\u0378"),
        ("\ud800 \udcff", r"\ud800 \xff"),
        ("\u3164 \u2800 \ufe01", r"\u3164 \u2800 \ufe01"),
        ("\U0001d159 \U00016fe4", r"\U0001d159 \U00016fe4"),
    ],
)
def test_invisible_characters_are_shown_escaped(text: str, shown: str):
    assert printable(text) == shown


@pytest.mark.parametrize("text", ["order-42 (a)", "grün 注文 заказ हिन्दी عربي 한글 e\u0301", "→ ½ € ©"])
def test_letters_and_symbols_are_unchanged(text: str):
    assert printable(text) == text


@pytest.mark.parametrize(
    "emoji",
    [
        "\U0001f469\U0001f3fd\u200d\U0001f4bb",
        "\u2764\ufe0f\u200d\U0001f525",
        "1\ufe0f\u20e3",
        "\U0001f1e9\U0001f1ea",
        ENGLAND,
    ],
)
def test_emoji_of_several_characters_are_unchanged(emoji: str):
    assert printable(f"a{emoji}b") == f"a{emoji}b"


@pytest.mark.parametrize(
    "text",
    [
        ENGLAND[1:],
        ENGLAND[:-1],
        ENGLAND[0] + "\U000e007f",
        "a" + ENGLAND[1:],
        ENGLAND[0] + "\U000e0067" * 40 + "\U000e007f",
    ],
)
def test_tags_outside_of_flags_are_escaped(text: str):
    assert not re.search("[\U000e0000-\U000e007f]", printable(text))


def test_joiners_and_selectors_outside_of_emoji_are_escaped():
    assert printable("a\u200db\ufe0f \u200d\U0001f525") == "a\\u200db\\ufe0f \\u200d\U0001f525"


def test_line_ends_can_be_kept():
    assert printable("a\n\tb\r\u200b", keep="\n\t") == "a\n\tb\\r\\u200b"


def test_no_control_format_private_or_unassigned_characters_or_odd_spaces_remain():
    hidden = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
    text = "".join(chr(code) for code in range(sys.maxunicode + 1) if chr(code) != " ")
    assert {char for char in set(printable(text)) if unicodedata.category(char) in hidden} <= {"\u200d"}
