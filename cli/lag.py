"""What waits in an outbox: as a sentence, and as samples for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from delayq.model.show import plural, show_duration

if TYPE_CHECKING:
    from delayq.outbox.lag import Lag

STATES = ("new", "held", "sent", "refused")
HELP = {
    "delayq_outbox_rows": "Rows of the outbox by state; of each, at most 10,000 are counted.",
    "delayq_outbox_lag_seconds": "Time since the insert of the oldest row that is not sent yet.",
    "delayq_outbox_sent_seconds": "Time since the send of the oldest row that is not safe yet.",
}


def condition(lag: Lag) -> str:
    """Return what waits in an outbox as a sentence."""
    oldest = f", the oldest for {show_duration(lag.seconds)}" if lag.unsent else ""
    held = f", {lag.held} of them held" if lag.held else ""
    return f"{plural(lag.unsent, 'row')} to send{oldest}{held}; {lag.sent} sent but not yet safe; {lag.refused} refused"


def samples(lag: Lag) -> dict[str, dict[str, float]]:
    """Return what waits in an outbox by the name of the metric and the state, "" if it has none."""
    by_state = {state: getattr(lag, state) for state in STATES}
    return dict(zip(HELP, (by_state, {"": lag.seconds}, {"": lag.sent_seconds}), strict=True))


def exposed(lag: Lag) -> Iterable[str]:
    """Yield what waits in an outbox as lines in the text format of Prometheus."""
    for name, values in samples(lag).items():
        yield f"# HELP {name} {HELP[name]}"
        yield f"# TYPE {name} gauge"
        for state, value in values.items():
            yield f'{name}{{state="{state}"}} {value}' if state else f"{name} {value}"
