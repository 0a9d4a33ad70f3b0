"""`python -m tests.faults`."""

from tests.faults.runner import main

main()
