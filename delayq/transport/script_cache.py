"""Which scripts the servers know, and which calls to repeat if one does not; shared by both APIs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from redis import exceptions

from delayq.protocol.command import Command

_STRANGERS = (
    exceptions.NoScriptError,
    exceptions.ReadOnlyError,
    exceptions.ConnectionError,
    exceptions.TimeoutError,
)
"""Errors after which another server, which does not know the scripts, may have taken over."""


class ScriptCache:
    """Which scripts a client has sent as text, to the server of which key.

    A server that does not know a script refuses its call but runs the calls after it; if sent again, the script runs
    after them. So in a trip of several calls, whose order may matter, a script that is not known yet is sent as text.

    A server may forget scripts: all of them in a restart or by SCRIPT FLUSH, or the least recently used one (Redis 7.4
    and newer keep 500 of those sent as text). They are sent again after a call was refused or lost. Until then, a trip
    may run in another order, so a claim checks whether it ran before the promotion.
    """

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()

    def complete(self, calls: Sequence[Command[Any]]) -> Sequence[Command[Any]]:
        """Return the calls of a trip, with the text of scripts that the server does not know."""
        if len(calls) == 1:
            return calls
        known, completed, new = self._known, list(calls), set()
        for i, call in enumerate(calls):
            if call.script is not None and (pair := (call.script.sha, call.key)) not in known and pair not in new:
                completed[i] = replace(call, whole=True)
                new.add(pair)
        return completed if new else calls

    def note(self, calls: Sequence[Command[Any]], replies: Sequence[Any]) -> None:
        """Note the replies of a trip; a server may not have kept the scripts of refused calls."""
        for call, reply in zip(calls, replies, strict=True):
            if isinstance(reply, exceptions.ClusterDownError):  # other nodes still know theirs
                self._known = {pair for pair in self._known if pair[1] != call.key}
                continue
            if isinstance(reply, _STRANGERS):
                self.forget()
                return
            if call.whole and call.script is not None and not isinstance(reply, Exception):
                self._known.add((call.script.sha, call.key))

    def forget(self) -> None:
        """Note that a server was lost or did not know a script; the next one may know none."""
        self._known.clear()


def missing_scripts(calls: Sequence[Command[Any]], results: Sequence[Any]) -> list[int]:
    """Return which calls of a trip to send again: those whose script the server does not know.

    Calls that go along with these are included, as they were answered before those ran.
    """
    refused = [isinstance(result, exceptions.NoScriptError) for result in results]
    if True not in refused:
        return []
    first = refused.index(True)
    return [i for i, call in enumerate(calls) if refused[i] or (i > first and call.goes_along)]
