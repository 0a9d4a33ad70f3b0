"""Everything Redis holds for a queue, to compare with what it holds later."""

from __future__ import annotations

from typing import Any

from delayq import Queue

# The timer, the list of consumers, and the samples of each minute: idle consumers write these all the time.
PASSING = (b":timer", b":watch", b":bell", b":consumers", b":crew", b":samples:minute", b":samples:ten")
READERS = {
    b"string": lambda client, key: client.get(key),
    b"hash": lambda client, key: client.hgetall(key),
    b"set": lambda client, key: client.smembers(key),
    b"list": lambda client, key: client.lrange(key, 0, -1),
    b"stream": lambda client, key: client.xrange(key),
    b"zset": lambda client, key: client.zrange(key, 0, -1, withscores=True),
}


def contents(queue: Queue) -> dict[bytes, Any]:
    """Return the keys of a queue and their contents, except what consumers write about themselves."""
    client: Any = queue._executor.client
    found: dict[bytes, Any] = {}
    for keys in (scripts.keys for scripts in queue._context.shards):
        for key in client.scan_iter(keys.meta.removesuffix("meta") + "*", count=1000):
            if not key.endswith(PASSING) and b":claim:" not in key:
                found[key] = READERS[client.type(key)](client, key)
    stats = {key: held for key, held in found.items() if key.endswith(b":stats")}
    return found | {key: {name: held[name] for name in held if name[:5] != b"took:"} for key, held in stats.items()}
