#!/usr/bin/env python3
"""Share consumers fairly between tenants.

One tenant sends a hundred jobs at once, another ten, a third only one. At most two jobs of each tenant run at a time,
and the others wait in the queue. So the small tenants finish long before the big one.

    python examples/tenants.py

The queue is on the Redis server that DELAYQ_URL names, or in a temporary embedded store. The exit code is 0 if the
small tenants were served first, and no tenant ever had more than its share.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import Counter

from delayq import Consumer, Message, Outgoing, Queue

SHARE = 2
JOBS = {"big": 100, "middle": 10, "small": 1}

jobs = Queue("example-tenants", concurrency_key=lambda message: message.headers["tenant"], concurrency_per_key=SHARE)

lock = threading.Lock()
running: Counter[str] = Counter()
most: Counter[str] = Counter()
done: list[str] = []


@jobs.handler
def work(message: Message) -> None:
    tenant = message.headers["tenant"]
    with lock:
        running[tenant] += 1
        most[tenant] = max(most[tenant], running[tenant])
    time.sleep(0.01)
    with lock:
        running[tenant] -= 1
        done.append(tenant)


def main() -> int:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["DELAYQ_HOME"] = folder
        with jobs:
            for tenant, count in JOBS.items():
                jobs.send_many([Outgoing(number, headers={"tenant": tenant}) for number in range(count)])
            Consumer(jobs, concurrency=8).drain()
    for tenant, count in JOBS.items():
        last = len(done) - done[::-1].index(tenant)
        print(f"{tenant:6} {count:3} jobs, at most {most[tenant]} at a time; the last one finished as number {last}")
    served_first = set(done[-50:]) == {"big"}
    return int(not (Counter(done) == JOBS and max(most.values()) == SHARE and served_first))


if __name__ == "__main__":
    raise SystemExit(main())
