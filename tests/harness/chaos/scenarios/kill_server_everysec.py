"""Like kill_server, but the server answers before data are on disk (appendfsync everysec), and the disk is slow.

The scenario measures what is lost, which must be the latest messages.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tests.harness.chaos import history
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.history import Event
from tests.harness.chaos.slow_disk import slow_disk
from tests.harness.chaos.traffic import Traffic
from tests.harness.chaos.world import Broken, World
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

# Redis holds data back for up to 2 s during an fsync, and then writes anyway.
WINDOW_SECONDS = 3.0
HOLD_SECONDS = 5.0


def run(world: World) -> Verdict:
    """Kill the server while its disk is slow: everything acknowledged before the last seconds is there."""
    server = world.server(config={"appendfsync": "everysec"})
    traffic = Traffic(world, server, seconds=world.pick(3, 180))
    kills: list[tuple[float, float, float]] = []
    back = 0.0
    has_lost = False
    while traffic.lasts(has_lost):
        time.sleep(world.dice.uniform(0.3, world.pick(0.6, 6)))
        with world.trouble("SIGKILL of the server, its disk being slow"):
            with slow_disk(server.pid):
                hold_back(server, world.dice.uniform(10_000, world.pick(100_000, 270_000)))
                acknowledged = traffic.queue.stats().sent
                os.kill(server.pid, signal.SIGKILL)
                killed = time.monotonic()
            server.kill()
            time.sleep(world.dice.uniform(0.5, 1))
            since, back = back, time.monotonic()
            server.start()
            has_lost |= traffic.queue.stats().sent < acknowledged
        kills.append((since, killed, back))
    verdict = traffic.end()
    events = history.read(world.folder)
    windows = [window for kill in kills if (window := Window(events, verdict.lost, *kill)).sends]
    most = max((len(window.sends) for window in windows), default=0)
    longest = max((window.seconds for window in windows), default=0.0)
    world.figures["kills"] = f"{len(kills)}, {len(windows)} with a loss"
    world.figures["acknowledged sends lost"] = f"{len(verdict.lost):,}, at most {most:,} and {longest * 1000:,.0f} ms"
    if not windows:
        raise Broken(f"none of {len(kills)} kills has lost anything: what is this scenario about? {verdict}")
    if later := [message_id for window in windows for message_id in window.later]:
        raise Broken(f"sends were lost, though later ones are there: {later[:5]}; {verdict}")
    if world.size == "long" and longest > WINDOW_SECONDS:
        raise Broken(f"a send was lost that had been acknowledged {longest:.2f} s before the kill; {verdict}")
    found = {event.id for window in windows for event in window.sends}
    return replace(verdict, lost=[message_id for message_id in verdict.lost if message_id not in found])


def hold_back(server: RedisServer, size: float) -> None:
    """Wait, a few seconds at most, until the server has answered this many bytes of changes it has not yet written."""
    with server.client() as client:
        eventually(lambda: client.info("persistence")["aof_buffer_length"] >= size, HOLD_SECONDS)


class Window:
    """What a kill has lost.

    Args:
        lost: the ids of all lost messages.
        since: when the server was started after the previous kill.
        killed, back: when it was killed and restarted; events noted in between happened before.

    Attributes:
        sends: the sends that this kill has lost.
        seconds: from the first of them to the kill.
        later: ids acknowledged after the first lost one that were there after the restart.
    """

    def __init__(self, events: Sequence[Event], lost: Iterable[str], since: float, killed: float, back: float) -> None:
        gone = set(lost)
        sent = [event for event in events if event.kind == "sent" and since < event.at < back]
        self.sends = [event for event in sent if event.id in gone]
        first = self.sends[0].at if self.sends else back
        self.seconds = max(0.0, killed - first)
        handed_out = {event.id for event in events if event.kind == "delivered" and event.at < back}
        self.later = [each.id for each in sent if each.at > first and each.id not in gone | handed_out]
