"""The command ``delayq``, and the first process of a container in which it is the command.

It imports nothing of delayq before it has to, since that takes a second. The first process gets no signal that it does
not handle, and inherits what others leave running. So there, this process passes signals on to another one that runs
the command, and takes note of all processes that end.
"""

import contextlib
import os
import signal
from typing import Any

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def main(**options: Any) -> None:
    """Run the command of `sys.argv`."""
    if os.getpid() == 1:
        run_apart()
    from delayq.cli import main as command  # noqa: PLC0415

    command(**options)


def run_apart() -> None:
    """Return in a child process. This process does not return: it exits as the child does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until there is a child to pass them on to
    child = os.fork()
    if child == 0:
        # A process group of its own: otherwise it would get Ctrl-C of a terminal twice.
        os.setpgid(0, 0)
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # it stops those who are not in the foreground
        with contextlib.suppress(OSError):  # there is no terminal
            os.tcsetpgrp(0, os.getpgrp())
        signal.signal(signal.SIGTTOU, before)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        return
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: _pass_on(child, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    ended, status = 0, 0
    while ended != child:
        ended, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    os._exit(128 - code if code < 0 else code)


def _pass_on(child: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)
