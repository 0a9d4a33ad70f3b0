"""Decodes a text: escapes, percent-encoding, entities, base64 and other encodings, several times over."""

from __future__ import annotations

import binascii
import contextlib
import html
import re
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

MOST_UNSEEN = 8
"""The length of what UTF-7 may stand for that has invisible characters: more of them come from other encodings."""

MOST_TIMES = 8
"""How many times over a text may be encoded."""


class Undecided(Exception):
    """A text is encoded too many times over, or packed, so nobody can say what it stands for."""


class _Decoder(NamedTuple):
    """An encoding.

    Attributes:
        sign: a character without which a text is not in this encoding.
        pattern: the encoded parts of a text. No pattern may backtrack: texts are up to a megabyte.
        decode: returns what an encoded part stands for.
    """

    sign: str
    pattern: re.Pattern[str]
    decode: Callable[[re.Match[str]], str]


_Decoders: TypeAlias = tuple[_Decoder, ...]


class Form(NamedTuple):
    """What a text stands for.

    Attributes:
        is_part: whether it is the content of base64 or hex without the text around that.
    """

    text: str
    is_part: bool


def forms(text: str, shortest: int, is_ascii: bool) -> Iterator[Form]:
    """Yield a text and what it stands for, decoded step by step until nothing changes; even a small one has many.

    Each encoding is decoded alone and together with the others: in ``a=ac%63ess``, ``=ac`` may be a character in
    quoted-printable or not.

    Args:
        shortest: the length of the shortest text of interest, in bytes; shorter base64 and hex are not decoded.
        is_ascii: whether only ASCII is of interest in bytes that are not text.

    Raises:
        Undecided: it is encoded too many times over, or something in it is compressed.
    """
    seen, runs = {text}, set[str]()
    todo: deque[tuple[str, _Decoders, int, bool]] = deque([(text, _ALL, 0, False)])
    while todo:
        form, decoders, times, is_part = todo.popleft()
        if times > MOST_TIMES:
            raise Undecided
        yield Form(form, is_part)
        new = _decoded(form, decoders)
        found: list[tuple[str, _Decoders]] = [(new, decoders)]
        if new == form and len(decoders) == 1:  # nothing is left of this encoding
            found = [(_decoded(form, _AFTER), _AFTER)]
        if decoders is _ALL:
            found += _alone(form)
        unpacked = len(found)
        if decoders in (_ALL, _AFTER, _TOGETHER):
            texts, others = _unpacked(form, shortest, runs)
            found += (texts, _ALL), (_ascii_of(others) if is_ascii else others.decode(errors="replace"), ())
            parts = "\n".join(each.decode() for each in _PART.findall(others))
            found += (parts, _TOGETHER), (parts.replace("\\", ""), ())
        for number, (new, how) in enumerate(found):
            if new and new not in seen:
                seen.add(new)
                todo.append((new, how, times + 1, is_part or number >= unpacked))


def _decoded(text: str, decoders: Iterable[_Decoder]) -> str:
    for each in decoders:
        if each.sign in text:
            text = each.pattern.sub(each.decode, text)
    return text


def _alone(text: str) -> Iterator[tuple[str, _Decoders]]:
    """Yield a text with one encoding decoded, and the decoders for the result."""
    active = [each for each in _ALL if each.sign in text]
    if len(active) > 1:
        yield from ((_decoded(text, (each,)), (each,)) for each in active)
    if _UTF7.sign in text:  # what looks like UTF-7 may be the spaces of a form
        yield _decoded(text, (_UTF7,)), _ALL
    if "\\" in text:  # in some languages, an escaped letter is that letter
        yield text.replace("\\", ""), ()


def _escaped(match: re.Match[str]) -> str:
    """Decode an escape of Python, JSON, JavaScript or a shell, with any number of backslashes."""
    if found := match["hex"] or match["octal"]:
        base = 16 if match["hex"] else 8
        return _text(bytes(int(each, base) for each in re.findall(r"[0-9A-Fa-f]+", found)))
    if found := match["units"]:
        units = b"".join(bytes.fromhex(each) for each in re.findall(r"[0-9A-Fa-f]{4}", found))
        return units.decode("utf-16-be", "replace")
    if found := match["point"] or match["braced"]:
        return _char(int(found, 16))
    if found := match["digits"]:
        return chr(int(found, 8))
    if found := match["name"]:
        with contextlib.suppress(KeyError):
            return unicodedata.lookup(found.replace("+", " "))
    if match["control"]:
        return "\n"
    return match["plain"] or ("" if match[0][-1].isspace() else "\\")


def _percented(match: re.Match[str]) -> str:
    if found := match["units"]:
        units = b"".join(bytes.fromhex(each) for each in re.findall(r"[0-9A-Fa-f]{4}", found))
        return units.decode("utf-16-be", "replace")
    return _text(bytes.fromhex(match[0].replace("%", "")))


def _quoted(match: re.Match[str]) -> str:
    return _text(bytes.fromhex("".join(match[0].replace("=", "").split())))


def _entity(match: re.Match[str]) -> str:
    return html.unescape(match[0])


def _utf7(match: re.Match[str]) -> str:
    data = _base64(match[1] or "ACs")  # a plus sign
    text = data[: len(data) & ~1].decode("utf-16-be", "replace")
    is_likely = text.isprintable() or len(text) <= MOST_UNSEEN
    return text if text and is_likely else match[0]


def _nothing(_: re.Match[str]) -> str:
    return ""


_X, _U, _O = "x[0-9A-Fa-f]{2}", "u[0-9A-Fa-f]{4}", "[0-3][0-7]{2}"
_ESCAPES = "|".join(
    [
        *(rf"(?P<{name}>{each}(?:\\++{each})*)" for name, each in (("hex", _X), ("units", _U), ("octal", _O))),
        r"U(?P<point>[0-9A-Fa-f]{8})",
        r"[ux]\{(?P<braced>[0-9A-Fa-f]{1,8})\}",
        r"N\{(?P<name>[A-Za-z0-9 +-]{1,90})\}",
        r"(?P<digits>[0-7]{1,2})",
        r"(?P<control>[abefnrtv])",
        r"(?P<plain>[\"'/])",
        r"\s++",  # a line that goes on, also if its end has become a space
        "",
    ]
)
_ALL: _Decoders = (
    _Decoder("\\", re.compile(rf"\\\\*+(?:{_ESCAPES})"), _escaped),
    _Decoder(
        "%",
        re.compile(r"%(?:[0-9A-Fa-f]{2}(?:%[0-9A-Fa-f]{2})*|(?P<units>[uU][0-9A-Fa-f]{4}(?:%[uU][0-9A-Fa-f]{4})*))"),
        _percented,
    ),
    _Decoder("&", re.compile(r"&(?:#[0-9]{1,8}|#[xX][0-9A-Fa-f]{1,8}|[A-Za-z][A-Za-z0-9]{1,31}(?=;));?"), _entity),
    _Decoder("=", re.compile(r"=(?:[0-9A-Fa-f]{2}(?:(?:=\s++)*=[0-9A-Fa-f]{2})*|\s++)"), _quoted),
    _Decoder("\x1b", re.compile(r"\x1b\[[0-9;]*+[A-Za-z]"), _nothing),  # the colors of a terminal
)

_UTF7 = _Decoder("+", re.compile(r"\+(?:-|([A-Za-z0-9+/]{2,}+)-?)"), _utf7)
_AFTER = _ALL[::-1]
_TOGETHER = (*_ALL, _UTF7)

_RUN = re.compile(r"[A-Za-z0-9+/_-]{6,}+")
_ONE_RUN = re.compile(rf"[^A-Za-z0-9+/_-]*+({_RUN.pattern})[^A-Za-z0-9+/_-]*+")
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2}){4,}")
_PART = re.compile(rb"[\t\n\r\x1b -~]{4,}+")
"""Text within bytes; it may be encoded once more."""

_WRAPPED = re.compile(r"\s(?<=[A-Za-z0-9+/_-]{60}\s)\s*+(?=[A-Za-z0-9+/_-])")
_PACKED = re.compile("H4sI|eJ[w-z]|eA[E-H]|eN[o-r]|eF[4-7]|Qlpo|KLUv|/Td6W")
"""The beginnings of base64 of gzip, zlib, bzip2, zstd and xz."""


def _unpacked(text: str, shortest: int, known: set[str]) -> tuple[str, bytes]:
    """Return what the base64 and the hex in a text stand for: all texts as one, and all bytes that are not text.

    Args:
        known: the base64 that was decoded before; it is left out, and the new one added.
    """
    found = list[bytes]()
    for run in _RUN.findall(_WRAPPED.sub("", text)):
        if len(run) * 3 < shortest * 4 or run in known:
            continue
        known.add(run)
        if _PACKED.match(run):
            raise Undecided
        if len(run) >= 2 * shortest:
            found += [bytes.fromhex(each) for part in (run, run[1:]) for each in _HEX.findall(part)]
        if not run.islower():  # base64 of words has capital letters
            found += [_base64(run[start:]) for start in range(4)]  # nobody says where in the run it begins
    texts, others = list[str](), list[bytes]()
    for data in found:
        each = _read(data)
        if each is None:
            others.append(data)
        else:
            texts.append(each)
    return "\n".join(texts), b"\n".join(others)


def contents(text: str) -> list[str]:
    """Return what a text stands for that is nothing but base64 or hex; nothing for any other text."""
    if (match := _ONE_RUN.fullmatch(text)) is None:
        return []
    run = match[1].lstrip("-")  # as in an option
    found = [_base64(run), *([bytes.fromhex(run)] if len(run) % 2 == 0 and _HEX.fullmatch(run) else [])]
    return [each for each in map(_read, found) if each is not None]


def _read(data: bytes) -> str | None:
    """Return the text in UTF-8 or UTF-16, whose end may be missing; None if it is neither."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or data.count(0) * 4 > len(data):
        big = data.startswith(b"\xfe\xff") or data[::2].count(0) > data[1::2].count(0)
        text = data[: len(data) & ~1].decode("utf-16-be" if big else "utf-16-le", "replace")
        return None if _NOT_OF_TEXT.search(text) else text
    if data.translate(None, _OF_TEXT):
        return None
    text = data.decode(errors="replace")
    return None if "\ufffd" in text[:-3] else text


def _ascii_of(data: bytes) -> str:
    return data.translate(_ONLY_ASCII).decode()


_ONLY_ASCII = bytes(each if 32 <= each < 127 else 10 for each in range(256))
_NOT_OF_TEXT = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\ufffd]")
_OF_TEXT = bytes([*b"\t\n\r\x1b", *range(32, 127), *range(128, 256)])


def _base64(text: str) -> bytes:
    """Decode base64 of both alphabets, without padding, as far as it goes."""
    text = text.replace("-", "+").replace("_", "/")
    if len(text) % 4 == 1:
        text = text[:-1]
    return binascii.a2b_base64(text + "=" * (-len(text) % 4))


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _char(point: int) -> str:
    return chr(point) if point <= 0x10FFFF else ""
