"""Time `draftproof check` on a recording, installed from the wheel, as a whole process.

    python benchmarks/check.py              builds the wheel, installs it in a fresh environment of its own
    python benchmarks/check.py --here       uses the draftproof of this environment

Against `python -c pass` of the same interpreter, and against `import huggingface_hub.hf_api`, which this environment
must have. Exits with 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import interleaved, verdict

ROOT = Path(__file__).resolve().parents[1]
PAIR = "kimi-k2-eagle3"
CODE = 4  # its tensor tables are derived: could not be judged


def fresh(folder: Path) -> Path:
    """Install the wheel alone in a fresh environment; returns the folder of its programs."""

    def python(*words: str | Path) -> None:
        done = subprocess.run([sys.executable, "-m", *map(str, words)], check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)

    python("build", "--no-isolation", "--wheel", "-o", folder, ROOT)
    python("venv", "--without-pip", folder / "venv")
    bin = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    python("pip", "--python", bin / "python", "install", "--no-deps", "--no-index", next(folder.glob("*.whl")))
    return bin


def main() -> int:
    """Print the medians and ratios; returns the exit code."""
    parser = argparse.ArgumentParser(description="Time `draftproof check` on a recording.")
    parser.add_argument("--here", action="store_true", help="use the draftproof of this environment")
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        bin = Path(sys.executable).parent if args.here else fresh(Path(made))
        empty = Path(made, "empty")
        empty.mkdir()
        jobs = {
            "pass": ([str(bin / "python"), "-c", "pass"], 0),
            "check": ([str(bin / "draftproof"), "check", PAIR, "--hub", "recordings"], CODE),
            "hf_api": ([sys.executable, "-c", "import huggingface_hub.hf_api"], 0),
        }
        medians = interleaved(jobs, args.rounds, empty)
    missed = verdict("draftproof check / python -c pass", medians["check"] / medians["pass"], 8)
    missed += verdict("draftproof check / import huggingface_hub.hf_api", medians["check"] / medians["hf_api"], 0.5)
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
