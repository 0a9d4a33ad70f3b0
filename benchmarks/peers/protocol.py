"""The protocol between the runner and the peers' programs; it uses only the standard library, as do its imports.

    PROGRAM VERB --url redis://HOST:PORT/DB [--messages N] [--delay S] …

ends with one JSON object on the last line of stdout. All other output of a program and its imports goes to stderr.
Runner, programs and server share one clock.

    describe    peer, version, language; throughput and latency: the settings, and where they come from; bulk; note;
                keeps
    send-one    sends one after another, each confirmed: seconds and messages, after a warm-up
    send-bulk   the same with the bulk call; {"unsupported": why} if there is none
    fill        sends in the fastest way, due in --delay; not timed
    trickle     the same, due evenly over --over seconds, the first one in --after
    consume     prints a line "ready", and the counts of `Tally` once all have arrived

With --results, fill and consume keep what the handler returns, the payload, for that many seconds; see `keeps`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import warnings
from typing import Any

from messages import Stopwatch, batched, due_in, spread
from peer import Peer, Run, Verb
from tally import Tally, say

WARM_UP = 200  # messages sent before the clock starts

Answer = dict[str, Any]


def main(kind: type[Peer]) -> None:
    """Run a peer's program.

    Args:
        kind: the peer's class.
    """
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    warnings.simplefilter("ignore")  # they are for authors of programs, and some appear with each message
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of frameworks must not mix with the JSON
    options = _parse(kind)
    peer = kind(Run(options.url, options.setting, options.results, Tally(out, options.messages, options.wait)))
    verbs = _verbs(peer)
    if options.verb not in verbs:
        raise SystemExit(f"unknown verb {options.verb}; expected one of {', '.join(verbs)}")
    say(out, json.dumps(verbs[options.verb](options)))


def _verbs(peer: Peer) -> dict[str, Verb]:
    return {
        "describe": lambda _: _describe(type(peer)),
        "send-one": lambda options: _send_one(peer, options),
        "send-bulk": lambda options: _send_bulk(peer, options),
        "fill": lambda options: _fill(peer, options),
        "trickle": lambda options: _trickle(peer, options),
        "consume": lambda _: _consume(peer),
        **peer.verbs(),
    }


def _parse(kind: type[Peer]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"Measures {kind.name}.")
    parser.add_argument("verb")
    parser.add_argument("--url", default="redis://127.0.0.1:6379/0")
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--size", type=int, default=100, help="bytes per payload, at least 13")
    parser.add_argument("--delay", type=float, default=60, help="seconds")
    parser.add_argument("--over", type=float, default=10, help="seconds")
    parser.add_argument("--after", type=float, default=5, help="seconds")
    parser.add_argument("--setting", choices=["throughput", "latency"], default="throughput")
    parser.add_argument("--results", type=int, default=0, help="seconds for which results are kept")
    parser.add_argument(
        "--wait", type=float, default=120, help="seconds without a message after which consume gives up"
    )
    for name, default in kind.options.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def _describe(kind: type[Peer]) -> Answer:
    return {
        "peer": kind.name,
        "version": kind.version,
        "language": "Python",
        "throughput": kind.throughput,
        "latency": kind.latency,
        "bulk": not kind.no_bulk,
        "note": kind.note,
        "keeps": kind.keeps,
    }


def _send_one(peer: Peer, options: argparse.Namespace) -> Answer:
    watch = Stopwatch()
    warm_up = due_in(WARM_UP, options.delay, options.size)
    peer.send_each(watch.run(warm_up, due_in(options.messages, options.delay, options.size)))
    return {"seconds": watch.seconds, "messages": options.messages}


def _send_bulk(peer: Peer, options: argparse.Namespace) -> Answer:
    if peer.no_bulk:
        return {"unsupported": peer.no_bulk}
    watch = Stopwatch()
    warm_up = batched(due_in(WARM_UP, options.delay, options.size), peer.bulk_size)
    measured = batched(due_in(options.messages, options.delay, options.size), peer.bulk_size)
    peer.send_bulk(watch.run(warm_up, measured))
    return {"seconds": watch.seconds, "messages": options.messages}


def _fill(peer: Peer, options: argparse.Namespace) -> Answer:
    peer.fill(due_in(options.messages, options.delay, options.size))
    return {"messages": options.messages}


def _trickle(peer: Peer, options: argparse.Namespace) -> Answer:
    peer.fill(spread(options.messages, options.over, options.after, options.size))
    return {"messages": options.messages}


def _consume(peer: Peer) -> Answer:
    peer.consume()
    raise SystemExit("the consumer ended before all messages arrived")
