"""``python -m delayq.cli``."""

from _delayq_command import main

if __name__ == "__main__":
    main(prog_name="delayq")
