"""Time `pytest -m shape` over all shipped pairs as a whole process, against as many empty tests without draftproof.

    python benchmarks/shape.py              builds the wheel, installs it in a fresh environment of its own
    python benchmarks/shape.py --here       uses the draftproof of this environment

Once without engines and once with all, pytest and its kin being those of this environment. Both runs have the same
other plugins and options. What counts is the time that the processor spends, user and system. Exits with 1 if a target
is missed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from check import fresh
from timing import Job, interleaved, verdict

ROOT = Path(__file__).resolve().parents[1]
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"
INI = "[pytest]\naddopts = --strict-markers --strict-config\nfilterwarnings = error\n"  # as in pyproject.toml


def with_kin(folder: Path) -> Path:
    """Install the wheel in a fresh environment that sees this one's packages; returns its interpreter."""
    python = fresh(folder) / "python"
    site = subprocess.run([python, "-c", SITE], check=True, capture_output=True, text=True).stdout.strip()
    kin = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    Path(site, "kin.pth").write_text("\n".join(kin) + "\n", encoding="utf-8")
    return python


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
    parser.add_argument("--here", action="store_true", help="use the draftproof of this environment")
    parser.add_argument("--rounds", type=int, default=11)
    args = parser.parse_args()
    jobs: dict[str, Job] = {}
    with tempfile.TemporaryDirectory() as made:
        pytest = [sys.executable if args.here else str(with_kin(Path(made))), *PYTEST]
        shape = [*pytest, "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), "-m", "shape"]
        for name, command in {"shape": shape, "engines": [*shape, "--engine", "all"]}.items():
            count, code = tests_of(command)
            folder = Path(made, name)
            folder.mkdir()
            (folder / "pytest.ini").write_text(INI)
            tests = "\n\n".join(f"def test_{n}():\n    pass" for n in range(count))
            (folder / "test_empty.py").write_text(tests + "\n")
            jobs |= {f"{count} empty": ([*pytest, "-p", "no:draftproof", str(folder)], 0), name: (command, code)}
        medians = interleaved(jobs, args.rounds, ROOT, cpu=True)
    empty, plain, more, engines = medians.values()
    missed = verdict("pytest -m shape / as many empty tests", plain / empty, 2)
    missed += verdict("pytest -m shape --engine all / as many empty tests", engines / more, 2)
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
