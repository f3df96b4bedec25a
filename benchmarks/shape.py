"""Time `pytest -m shape` over all shipped pairs as a whole process, against as many empty tests without draftproof.

    python benchmarks/shape.py

Once without engines and once with all. Both runs have the same other plugins and options. What counts is the time that
the processor spends, user and system. Exits with 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import Job, interleaved, verdict

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
INI = "[pytest]\naddopts = --strict-markers --strict-config\nfilterwarnings = error\n"  # as in pyproject.toml


def tests_of(command: list[str]) -> tuple[int, int]:
    """Run the tests once; returns how many there are, and the exit code: engines may refuse what is shipped."""
    first = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    found = re.findall(r"(\d+) (?:passed|skipped|failed)", first.stdout.rstrip().rpartition("\n")[2])
    if first.returncode not in (0, 1) or not found:
        raise SystemExit(first.stdout + first.stderr)
    return sum(map(int, found)), first.returncode  # a test that can decide nothing skips, with the reason


def main() -> int:
    """Print the medians and the ratios; returns the exit code."""
    parser = argparse.ArgumentParser(description="Time `pytest -m shape` over all shipped pairs.")
    parser.add_argument("--rounds", type=int, default=11)
    args = parser.parse_args()
    shape = [*PYTEST, "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), "-m", "shape"]
    jobs: dict[str, Job] = {}
    with tempfile.TemporaryDirectory() as made:
        for name, command in {"shape": shape, "engines": [*shape, "--engine", "all"]}.items():
            count, code = tests_of(command)
            folder = Path(made, name)
            folder.mkdir()
            (folder / "pytest.ini").write_text(INI)
            tests = "\n\n".join(f"def test_{n}():\n    pass" for n in range(count))
            (folder / "test_empty.py").write_text(tests + "\n")
            jobs |= {f"{count} empty": ([*PYTEST, "-p", "no:draftproof", str(folder)], 0), name: (command, code)}
        medians = interleaved(jobs, args.rounds, ROOT, cpu=True)
    empty, plain, more, engines = medians.values()
    missed = verdict("pytest -m shape / as many empty tests", plain / empty, 2)
    missed += verdict("pytest -m shape --engine all / as many empty tests", engines / more, 2)
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
