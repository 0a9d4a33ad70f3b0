"""What servers know of the scripts, and what is sent again when one does not; what both faces share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from redis import exceptions

from delayq.protocol.command import Command

_STRANGERS = (
    exceptions.NoScriptError,
    exceptions.ReadOnlyError,
    exceptions.ClusterDownError,
    exceptions.ConnectionError,
    exceptions.TimeoutError,
)
"""Errors behind which there may be a server that does not know what the one before it was told."""


class ScriptCache:
    """Which scripts a client has sent the text of, to the server of which key.

    A server that does not know a script refuses its call and runs the calls behind it; sent again, it comes after
    them. So in a trip of several calls, whose order may matter, a script that was not told yet brings its text.

    What a server has forgotten since is told again once a call was refused or lost: all of it in a restart or by SCRIPT
    FLUSH, or the script that was not used for longest (Redis 7.4 and newer keep 500 of those that came as texts). Until
    then, a trip may still run in another order: a claim looks whether it has come before the promotion.
    """

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()

    def complete(self, calls: Sequence[Command[Any]]) -> Sequence[Command[Any]]:
        """Return the calls of a trip, with the texts that are missing."""
        if len(calls) == 1:
            return calls
        known, completed, new = self._known, list(calls), set()
        for i, call in enumerate(calls):
            if call.script is not None and (pair := (call.script.sha, call.key)) not in known and pair not in new:
                completed[i] = replace(call, whole=True)
                new.add(pair)
        return completed if new else calls

    def note(self, calls: Sequence[Command[Any]], replies: Sequence[Any]) -> None:
        """Note what a trip was answered: what a server has refused, it may not have kept."""
        for call, reply in zip(calls, replies, strict=True):
            if isinstance(reply, _STRANGERS):
                self.forget()
                return
            if call.whole and call.script is not None and not isinstance(reply, Exception):
                self._known.add((call.script.sha, call.key))

    def forget(self) -> None:
        """Note that a server was lost, or did not know a script: the next one may know none."""
        self._known.clear()


def missing_scripts(calls: Sequence[Command[Any]], results: Sequence[Any]) -> list[int]:
    """Return which calls of a trip are to be sent again: those of scripts that the server does not know.

    And what goes along with these: it was answered before they have run.
    """
    refused = [isinstance(result, exceptions.NoScriptError) for result in results]
    if True not in refused:
        return []
    first = refused.index(True)
    return [i for i, call in enumerate(calls) if refused[i] or (i > first and call.goes_along)]
