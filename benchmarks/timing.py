"""What the whole-process benchmarks share: interleaved runs, medians, and a ratio against its target."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

Job = tuple[Sequence[str], int]  # the command, and the exit code it must have


def spent() -> float:
    """Return the processor seconds, user and system, of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def interleaved(jobs: Mapping[str, Job], rounds: int, folder: Path, cpu: bool = False) -> dict[str, float]:
    """Run the jobs in turn in a folder, after one round that does not count; print and return median seconds.

    With cpu they are those that the processor spent, user and system, which tell more where a machine is loaded.
    """
    clock = spent if cpu else time.perf_counter
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # byte code is kept, as by a user
    taken: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(rounds + 1):
        for name, (command, code) in jobs.items():  # in turn, so that a slow spell of the machine hits all of them
            start = clock()
            done = subprocess.run(command, check=False, cwd=folder, env=env, capture_output=True, text=True)
            seconds = clock() - start
            if done.returncode != code:
                raise SystemExit(f"{' '.join(command)}: exit {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
            if number:
                taken[name].append(seconds)
    medians = {name: statistics.median(rows) for name, rows in taken.items()}
    print(f"medians of {rounds} interleaved rounds, {'user and system CPU' if cpu else 'wall clock'}, whole processes")
    for name, rows in taken.items():
        print(f"{name:10} {medians[name] * 1000:7.1f} ms   (min {min(rows) * 1000:.1f})")
    return medians


def verdict(what: str, ratio: float, target: float) -> int:
    """Print a ratio with its target; returns 1 if it is missed."""
    print(f"{what}: {ratio:.2f}x, target at most {target}x: {'missed' if ratio > target else 'met'}")
    return int(ratio > target)
