"""What a payload on the command line means."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from delayq.errors import PayloadNotSerializable

Kind = Literal["auto", "json", "text", "raw"]


def payload_of(body: bytes, kind: Kind) -> Any:
    """Return what to send.

    Args:
        kind: "json": JSON, kept as it is written; "text": a string; "raw": bytes as they are; "auto": JSON when it is
            JSON, else a string.

    Raises:
        PayloadNotSerializable: the bytes are not of that kind.
    """
    if kind == "raw":
        return body
    if kind != "text":
        try:
            return checked_json(body)
        except PayloadNotSerializable:
            if kind == "json":
                raise
    try:
        return body.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise PayloadNotSerializable("the payload is no UTF-8 text: give --as raw to send bytes as they are") from error


def checked_json(body: bytes) -> msgspec.Raw:
    """Return JSON that is sent as it is written, its numbers to the last digit.

    Raises:
        PayloadNotSerializable: the bytes are no JSON.
    """
    try:
        msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadNotSerializable(f"the payload is no JSON: {error}") from error
    return msgspec.Raw(body.strip())
