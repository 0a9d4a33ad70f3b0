"""Every minute of ten years, in five time zones: `python -m tests.harness.decade`, some minutes."""

from __future__ import annotations

import sys

from delayq.model.cron_expression import recurrence
from tests.model.test_cron_expression import YEARS, ZONES, ms


def main() -> None:
    for zone in sys.argv[1:] or ZONES:
        found, slot, count = recurrence("* * * * *", zone), ms(YEARS[0]), 0
        while slot < ms(YEARS[1]):
            following = found.after(slot)
            if following != slot + 60_000:
                sys.exit(f"{zone}: {slot} is followed by {following}")
            slot, count = following, count + 1
        print(f"{zone}: {count} slots, each once")  # noqa: T201  # its output


if __name__ == "__main__":
    main()
