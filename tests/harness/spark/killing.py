"""A process that is killed between two steps: the rest of its work does not happen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import pytest

Steps = Iterable[tuple[ModuleType, str]]


class Killed(Exception):
    """Stands for SIGKILL; the code under test only catches its own errors."""


class Killing:
    """Kills before step number `at`, counted from 0; `look` is called before each step.

    Args:
        steps: functions, by the modules that call them.
    """

    def __init__(self, steps: Steps, at: int, look: Callable[[], None] = lambda: None) -> None:
        self.passed = 0
        self._steps = list(steps)
        self._at = at
        self._look = look

    def run(self, work: Callable[[], Any]) -> bool:
        """Run some work; return whether it was killed."""
        with pytest.MonkeyPatch.context() as patch:
            for module, name in self._steps:
                patch.setattr(module, name, self._step(getattr(module, name)))
            try:
                work()
            except Killed:
                return True
            return False

    def _step(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any) -> Any:
            self._look()
            if self.passed == self._at:
                raise Killed
            self.passed += 1
            return function(*args)

        return step
