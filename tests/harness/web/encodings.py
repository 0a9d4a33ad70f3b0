"""A secret behind the name of a hidden field, written and encoded in every way that the tests of redaction try."""

from __future__ import annotations

import base64
import codecs
import html
import json
import quopri
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

SECRET = "hunter2"
NAMES = ["Password", "x-token", "straße"]

SPELLED: dict[str, Callable[[str], str]] = {
    "as named": lambda name: name,
    "in capitals": str.upper,
    "casefolded": str.casefold,
    "fullwidth": lambda name: "".join(chr(ord(each) + 0xFEE0) if "!" <= each <= "~" else each for each in name),
    "mathematical": lambda name: re.sub("[a-z]", lambda match: chr(0x1D41A + ord(match[0]) - 97), name),
    "with a zero-width space": lambda name: f"{name[:4]}\u200b{name[4:]}",
    "ending in a zero-width space": lambda name: f"{name}\u200b",
    "with a soft hyphen": lambda name: f"{name[:3]}\xad{name[3:]}",
    "with a combining grapheme joiner": lambda name: f"{name[:2]}\u034f{name[2:]}",
    "with an accent": lambda name: f"{name[:2]}\u0301{name[2:]}",
    "with a filler": lambda name: f"{name[:2]}\u3164{name[2:]}",
    "with a null": lambda name: f"{name[:2]}\0{name[2:]}",
    "ending in a paragraph separator": lambda name: f"{name}\u2029",
    "with a tag": lambda name: f"{name[:2]}\U000e0041{name[2:]}",
    "from right to left": lambda name: f"\u202e{name}\u202c",
    "after a byte order mark": lambda name: f"\ufeff{name}",
    "between spaces": lambda name: f" {name}\t",
    "with the name of its parent": lambda name: f"user.{name}",
}  # fmt: skip
"""Ways to write the same name, in a field and in a text."""

_LETTER = re.compile(r"[A-Za-z]")


def _each(form: str) -> Callable[[str], str]:
    """Return a function that writes the first letter of a name by its number."""
    return lambda name: _LETTER.sub(lambda match: form.format(ord(match[0])), name, count=1)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


ESCAPED: dict[str, Callable[[str], str]] = {
    "\\u": _each("\\u{:04x}"),
    "\\\\u": _each("\\\\u{:04x}"),
    "\\x": _each("\\x{:02x}"),
    "\\U": _each("\\U{:08x}"),
    "octal": _each("\\{:03o}"),
    "\\u{}": _each("\\u{{{:x}}}"),
    "\\N": lambda name: f"\\N{{LATIN SMALL LETTER {name[0].upper()}}}{name[1:]}",
    "percent": _each("%{:02x}"),
    "percent twice": _each("%25{:02x}"),
    "percent unicode": _each("%u{:04x}"),
    "entity": _each("&#{};"),
    "hexadecimal entity": _each("&#x{:x};"),
    "quoted-printable": _each("={:02X}"),
    "line break of quoted-printable": lambda name: f"{name[:3]}=\n{name[3:]}",
    "UTF-7": lambda name: f"+{base64.b64encode(name[0].encode('utf-16-be')).decode().rstrip('=')}-{name[1:]}",
    "backslash": lambda name: f"{name[:3]}\\{name[3:]}",
    "backslash at the line end": lambda name: f"{name[:3]}\\\n{name[3:]}",
    "color": lambda name: f"{name[:3]}\x1b[31;1m{name[3:]}",
    "mixed up": lambda name: f"a=ac%{ord(name[0]):02x}{name[1:]}",
    "base64 alone": _base64,
    "base64 for URLs alone": lambda name: base64.urlsafe_b64encode(name.encode()).decode().rstrip("="),
    "hex alone": lambda name: name.encode().hex(),
}  # fmt: skip
"""Ways to write a name in a text."""

TEXTS: dict[str, Callable[[str, str], str]] = {
    "logfmt": lambda name, value: f"at=1 {name}={value} b=2",
    "line": lambda name, value: f"login failed\n{name}: {value}\nnext",
    "next line": lambda name, value: f"{name}:\n{value}\n",
    "block": lambda name, value: f"a: 1\n{name}: |\n  first\n  {value}\n",
    "key in PEM": lambda name, value: f"{name}=-----BEGIN KEY-----\nMIIE\n{value}\n-----END KEY-----",
    "quoted lines": lambda name, value: f'{name} = """\nfirst\n{value}\n"""',
    "after a space": lambda name, value: f"--{name} {value}",
    "arrow": lambda name, value: f":{name} => {value}",
    "form": lambda name, value: f"user=ann&{quote_plus(name)}={value}",
    "percent-encoded form": lambda name, value: quote(f"user=ann&{name}={value}", safe=""),
    "connection string": lambda name, value: f"Server=db;{name}={value};Timeout=3",
    "element": lambda name, value: f"<user><{name}>{value}</{name}></user>",
    "attribute": lambda name, value: f'<user {name}="{value}"/>',
    "escaped element": lambda name, value: html.escape(f'<user {name}="{value}"/>'),
    "repr of a dict": lambda name, value: repr({"user": "ann", name: value}),
    "repr of bytes": lambda name, value: repr(json.dumps({name: value}, ensure_ascii=False).encode()),
    "repr of an object": lambda name, value: f"User(id=1, {name}={value!r})",
    "repr of a pair": lambda name, value: repr((name, value)),
    "PHP": lambda name, value: f's:{len(name)}:"{name}";s:{len(value)}:"{value}";',
    "multipart": lambda name, value: f'form-data; name="{name}"\r\n\r\n{value}\r\n--end',
    "CSV": lambda name, value: f"user,{name}\nann,{value}",
    "SQL": lambda name, value: f"INSERT INTO users (id, {name}) VALUES (1, '{value}')",
    "unique key": lambda name, value: f"Key ({name})=({value}) already exists",
    "validation": lambda name, value: f"1 error for User\n{name}\n  too short [input_value='{value}']",
    "cut JSON": lambda name, value: json.dumps({"a": 1, name: value}, ensure_ascii=False)[:-2],
    "end of JSON": lambda name, value: json.dumps({"a": 1, name: value}, ensure_ascii=False)[3:],
    "JSON and more": lambda name, value: json.dumps({name: value}) + " trailing",
    "JSON with a comment": lambda name, value: f'{{/* a */ "{name}": "{value}"}}',
    "lines of JSON": lambda name, value: f'{{"a":1}}\n{json.dumps({name: value})}',
    "JSON in a log line": lambda name, value: f"payload was {json.dumps(json.dumps({name: value}))}",
    "base64": lambda name, value: f"body {_base64(json.dumps({name: value}))}",
    "base64 for URLs": lambda name, value: f"https://a/x{base64.urlsafe_b64encode(f'{name}={value}??>'.encode()).decode()}",
    "base64 of base64": lambda name, value: _base64(_base64(json.dumps({name: value}))),
    "base64 of MessagePack": lambda name, value: base64.b64encode(msgspec.msgpack.encode({name: value})).decode(),
    "base64 of UTF-16": lambda name, value: base64.b64encode(json.dumps({name: value}).encode("utf-16")).decode(),
    "base64 in lines": lambda name, value: base64.encodebytes(f"{'x' * 52}{name}={value}".encode()).decode(),
    "base64 of zlib": lambda name, value: base64.b64encode(codecs.encode(f"{name}={value}".encode(), "zlib")).decode(),
    "hex": lambda name, value: f"\\x{json.dumps({name: value}).encode().hex()}",
    "quoted-printable": lambda name, value: quopri.encodestring(f"{name}={value}".encode()).decode(),
    "UTF-7": lambda name, value: f"{{{name}={value}}}".encode("utf-7").decode(),
}  # fmt: skip
"""Texts with a name and its value."""


def nested(value: Any, times: int) -> Any:
    """Return JSON within JSON."""
    for _ in range(times):
        value = {"in": json.dumps(value)}
    return value


VALUES: dict[str, Callable[[str, str], Any]] = {
    "field": lambda name, value: {name: value},
    "field of a list": lambda name, value: [[{"a": [{name: [value]}]}]],
    "object as value": lambda name, value: {name: {"x": {"y": [value]}}},
    "pair": lambda name, value: {"args": [name, value]},
    "option": lambda name, value: ["login", f"--{name}", value],
    "name and value": lambda name, value: {"fields": [{"value": value, "name": name}]},
    "text as name": lambda name, value: {f"{name}={value}": 1},
    "JSON as name": lambda name, value: {json.dumps({name: value}): 1},
    "JSON in JSON": lambda name, value: nested({name: value}, 1),
    "JSON in JSON, twice": lambda name, value: nested({name: value}, 2),
    "JSON in JSON, 3 times": lambda name, value: nested({name: value}, 3),
    "JSON in JSON, 9 times": lambda name, value: nested({name: value}, 9),
    "JSON of a text, 4 times": lambda name, value: json.dumps(json.dumps(json.dumps(json.dumps({name: value})))),
    "JSON in a list in JSON": lambda name, value: {"in": json.dumps([json.dumps([json.dumps({name: value})])])},
}  # fmt: skip
"""JSON with a name and its value."""


def cases(name: str) -> Iterator[tuple[str, Any]]:
    """Yield what is tried with a name, with labels: each kind of text and of JSON, with each way to write the name."""
    for kinds in (VALUES, TEXTS):
        for spelled, write in SPELLED.items():
            for label, make in kinds.items():
                yield f"{label}, {name} {spelled}", make(write(name), SECRET)
    for escaped, write in ESCAPED.items():
        for label, make in (VALUES | TEXTS).items():
            yield f"{label}, {name} in {escaped}", make(write(name.casefold()), SECRET)


def shows_secret(text: str) -> bool:
    """Whether a text has the secret, also within base64 or hex."""
    return any(each in text for each in _NEEDLES) or SECRET in html.unescape(text)


_DATA = SECRET.encode()
_NEEDLES = [
    SECRET,
    _DATA.hex(),
    *(base64.b64encode(b"\0" * shift + _DATA).decode().rstrip("=")[shift + 1 : -1] for shift in range(3)),
    base64.b64encode(SECRET.encode("utf-16-le")).decode()[:-4],
]
