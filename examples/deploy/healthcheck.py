#!/usr/bin/env python3
"""Succeed if the consumer, the exporter or the dashboard in this container answers."""

import sys
import urllib.request

PAGES = ["http://127.0.0.1:8702/healthz", "http://127.0.0.1:8701/healthz", "http://127.0.0.1:8700/login"]


def is_healthy(page: str) -> bool:
    """Whether a page answers; a refusal, such as of a consumer that has stalled, is none."""
    try:
        urllib.request.urlopen(page, timeout=5).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(not any(map(is_healthy, PAGES)))
