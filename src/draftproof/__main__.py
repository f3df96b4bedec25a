"""``python -m draftproof``: the command, where no script of it is on the path."""

from draftproof.cli import run

if __name__ == "__main__":
    run()
