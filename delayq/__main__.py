"""``python -m delayq``: the command line."""

from delayq.cli import main

if __name__ == "__main__":
    main(prog_name="delayq")
