"""Hypothesis beside the threads of a test process."""

from __future__ import annotations

import random
import threading
import time

from hypothesis import given
from hypothesis import strategies as st


class Lots(threading.Thread):
    """Draws random numbers all the time, as redis-py does between two attempts."""

    def __init__(self) -> None:
        super().__init__()
        self.is_over = False

    def run(self) -> None:
        while not self.is_over:
            random.random()  # not a secret
            time.sleep(0)


def test_thread_that_draws_random_numbers_beside_a_strategy_fails_no_test():
    drawing = Lots()

    def meanwhile(number: int) -> int:
        time.sleep(0.001)
        return number

    @given(st.integers().map(meanwhile))
    def property_holds(_: object) -> None:
        assert drawing.is_alive()

    drawing.start()
    try:
        property_holds()
    finally:
        drawing.is_over = True
        drawing.join()
