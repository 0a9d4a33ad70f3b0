"""Runs the requests of tests, each in a fork of this process, which has imported all: otherwise each takes a second.

A request is a line of JSON on stdin: the words of manage.py, or Python to run, and the file for the output. The answer
is a line with the exit code.
"""

import importlib
import json
import os
import sys
import traceback

import django
from django.core.management import execute_from_command_line


def run(request):
    """Run a request as a process of its own would; return the exit code."""
    try:
        if "code" in request:
            exec(request["code"], {"__name__": "__main__"})
        else:
            sys.argv = [os.path.join(sys.path[0], "manage.py"), *request["words"]]
            execute_from_command_line(sys.argv)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        sys.stderr.write(f"{ended.code}\n")
        return 1
    except Exception:  # noqa: BLE001  # it is the test's
        traceback.print_exc()
        return 1
    return 0


def main():
    """Answer requests until stdin ends."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
    django.setup()
    for name in ("shop.tasks", "delayq.django.management.commands.delayq", "delayq.cli.consume.command"):
        importlib.import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for here, there in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
                os.dup2(here, there)
            code = 1
            try:
                code = run(request)
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
