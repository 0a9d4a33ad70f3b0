"""What an error in the middle of a long call says of its progress."""

from __future__ import annotations

import pytest

from delayq.errors import InvalidInput, ServerError, ServerNotReady, ServerUnreachable
from delayq.model.progress import Progress
from delayq.protocol.late_reply import Silent, Unanswered


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ServerNotReady("busy"), ServerNotReady),
        (Silent("node"), ServerUnreachable),
        (Unanswered("node"), ServerUnreachable),
    ],
)
def test_error_keeps_its_public_kind_and_says_the_count_once(error: ServerError, kind: type[ServerError]):
    progress = Progress("of 9 are stored")
    progress.note([[1, 2], [3]], [True, error])
    with pytest.raises(ServerError) as raised, progress.explained(": try again"):
        raise error
    assert type(raised.value) is kind
    assert str(raised.value) == f"{error}; {progress}: try again"
    assert str(progress) == "at least 2 of 9 are stored"


def test_other_errors_are_left_alone():
    refused = InvalidInput("wrong")
    with pytest.raises(InvalidInput) as raised, Progress("of 9 are stored").explained():
        raise refused
    assert raised.value is refused
