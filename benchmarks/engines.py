"""Time what `draftproof check --engine` adds to a check, as a whole process, in one run.

    python benchmarks/engines.py            builds the wheel, installs it in a fresh environment of its own
    python benchmarks/engines.py --here     uses the draftproof of this environment

What counts is the time that the processor spends, user and system. Exits with 1 if a target is missed: one engine, the
slowest, may add 20 %, and all of them 60 %.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from check import CODE, fresh
from timing import Job, interleaved, verdict

KNOWN = "from draftproof.library import Library; print(*Library().files('profile'))"
PAIR = "kimi-k2-eagle3"


def asked(command: list[str], folder: Path) -> Job:
    """Return a job with the exit code that its question has: what an engine does with the pair is not judged here."""
    code = subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode
    if code not in (0, 1, 4):  # it holds, does not, or could not be judged
        raise SystemExit(f"{' '.join(command)}: exit {code}")
    return command, code


def main() -> int:
    """Print the medians and ratios; returns the exit code."""
    parser = argparse.ArgumentParser(description="Time what engines add to `draftproof check`.")
    parser.add_argument("--here", action="store_true", help="use the draftproof of this environment")
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        bin = Path(sys.executable).parent if args.here else fresh(Path(made))
        empty = Path(made, "empty")
        empty.mkdir()
        check = [str(bin / "draftproof"), "check", PAIR, "--hub", "recordings"]
        jobs: dict[str, Job] = {"check": (check, CODE)}
        engines = subprocess.run(
            [bin / "python", "-c", KNOWN], check=True, capture_output=True, text=True
        ).stdout.split()
        jobs |= {one: asked([*check, "--engine", one], empty) for one in (*engines, "all")}
        medians = interleaved(jobs, args.rounds, empty, cpu=True)
    most = max(medians[one] for one in engines)
    missed = verdict("check --engine ONE / check", most / medians["check"], 1.2)
    missed += verdict("check --engine all / check", medians["all"] / medians["check"], 1.6)
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
