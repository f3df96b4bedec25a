"""Time `pytest -m shape` over all shipped pairs as a whole process, against as many empty tests without draftproof.

    python benchmarks/shape.py

Both runs have the same other plugins and options. Exits with 1 if the target is missed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import interleaved, verdict

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
INI = "[pytest]\naddopts = --strict-markers --strict-config\nfilterwarnings = error\n"  # as in pyproject.toml


def main() -> int:
    """Print the medians and the ratio; returns the exit code."""
    parser = argparse.ArgumentParser(description="Time `pytest -m shape` over all shipped pairs.")
    parser.add_argument("--rounds", type=int, default=11)
    args = parser.parse_args()
    shape = [*PYTEST, "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), "-m", "shape"]
    first = subprocess.run(shape, check=False, cwd=ROOT, capture_output=True, text=True)
    found = re.search(r"^(\d+) passed(?:, (\d+) skipped)?", first.stdout, re.MULTILINE)
    if first.returncode or not found:
        raise SystemExit(first.stdout + first.stderr)
    count = int(found[1]) + int(found[2] or 0)  # a test that can decide nothing skips, with the reason
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "pytest.ini").write_text(INI)
        tests = "\n\n".join(f"def test_{n}():\n    pass" for n in range(count))
        (folder / "test_empty.py").write_text(tests + "\n")
        empty = [*PYTEST, "-p", "no:draftproof", str(folder)]
        print(f"{count} tests each")
        medians = interleaved({"empty": (empty, 0), "shape": (shape, 0)}, args.rounds, ROOT)
    return verdict("pytest -m shape / as many empty tests", medians["shape"] / medians["empty"], 2)


if __name__ == "__main__":
    sys.exit(main())
