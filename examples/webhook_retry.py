#!/usr/bin/env python3
"""Deliver webhooks to receivers that fail, time out, ask you to wait, or no longer exist.

The receiver's answer decides what happens to the message:

    2xx                         done
    429 or 503 with Retry-After retried when the receiver asks for it (RetryAfter)
    404 or 410                  a dead letter at once, because a retry would also fail (Reject)
    anything else, or no answer retried with the queue's backoff; a dead letter when no retry is left

A message may be delivered twice, so each request sends the message's id as its Idempotency-Key, and the receiver can
recognise a duplicate.

    python examples/webhook_retry.py

The receiver is a real HTTP server, in a thread of this program. The queue is on the Redis server that DELAYQ_URL names,
or in a temporary embedded store. The exit code is 0 if every webhook ended as expected.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from email.message import Message as Headers
from email.utils import parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError

from delayq import Consumer, Message, Queue, Reject, RetryAfter, backoff

TIMEOUT = 30  # seconds for a receiver to answer
TIMEOUTS = {"/slow": 1}  # for receivers that get less time
BEGIN = time.monotonic()

http = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy: the receiver is on this machine
webhooks = Queue("example-webhooks", max_retries=3, backoff=backoff.exponential(base=0.2, factor=2, maximum=60))

# -- the dispatcher ----------------------------------------------------------------------------------------------------


@webhooks.handler
def dispatch(message: Message) -> None:
    hook = message.payload
    request = urllib.request.Request(
        hook["url"],
        data=json.dumps(hook["event"]).encode(),
        headers={"Content-Type": "application/json", "Idempotency-Key": message.id},
    )
    try:
        http.open(request, timeout=hook["timeout"]).close()
    except HTTPError as error:
        if error.code in (404, 410):
            raise Reject(f"{error.code} {error.reason}") from error
        if error.code in (429, 503) and "Retry-After" in error.headers:
            raise RetryAfter(patience(error.headers), f"{error.code} {error.reason}") from error
        raise


def patience(headers: Headers) -> float:
    """Return how many seconds to wait; Retry-After is a number of seconds or a date."""
    asked = headers["Retry-After"]
    if asked.isdigit():
        return float(asked)
    return max(0.0, (parsedate_to_datetime(asked) - dt.datetime.now(dt.UTC)).total_seconds())


# -- the receiver ------------------------------------------------------------------------------------------------------

ANSWERS: dict[str, Sequence[int | None]] = {  # the answers in order; the last one repeats; None: no answer in time
    "/fine": [200],
    "/flaky": [500, 500, 200],
    "/slow": [None, 200],
    "/busy": [429, 200],
    "/gone": [410],
    "/broken": [500],
}
requests: Counter[str] = Counter()


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        requests[self.path] += 1
        status = ANSWERS[self.path][: requests[self.path]][-1]
        say(f"{self.path:8} request {requests[self.path]}: {status or 'no answer'}")
        if status is None:
            time.sleep(2 * TIMEOUTS[self.path])
            return
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "1")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing: `say` prints the requests."""


# -- the demonstration -------------------------------------------------------------------------------------------------


def deliver(paths: Sequence[str], receiver: str) -> dict[str, str]:
    """Send a webhook to each path, wait until no retry is left, and return how each ended."""
    event = {"paid": "order-42"}
    hooks = {path: {"url": receiver + path, "event": event, "timeout": TIMEOUTS.get(path, TIMEOUT)} for path in paths}
    sent = {path: webhooks.send(hook).id for path, hook in hooks.items()}
    consumer = Consumer(webhooks, concurrency=4)
    consumer.start()
    while any((known := webhooks.get(id)) and known.state != "dead" for id in sent.values()):
        time.sleep(0.05)
    consumer.stop()
    return {path: ending(id) for path, id in sent.items()}


def ending(id: str) -> str:
    known = webhooks.get(id)
    return "delivered" if known is None else f"dead: {known.reason}"


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGIN:5.2f}s  {text}\n", end="", flush=True)  # one write, because several threads print


def main() -> int:
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server,
    ):
        os.environ["DELAYQ_HOME"] = folder
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with webhooks:
            endings = deliver(list(ANSWERS), f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    for path, end in endings.items():
        print(f"{path:8} {end}, {requests[path]} request{'s' * (requests[path] > 1)}")
    delivered = dict.fromkeys(("/fine", "/flaky", "/slow", "/busy"), "delivered")
    expected = delivered | {"/gone": "dead: 410 Gone", "/broken": "dead: retries-exhausted"}
    return int(endings != expected)


if __name__ == "__main__":
    raise SystemExit(main())
