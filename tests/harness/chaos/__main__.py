"""`python -m tests.harness.chaos`."""

from tests.harness.chaos.runner import main

main()
