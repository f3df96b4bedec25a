"""Time reads of the founding case from a Hub on the loopback, side by side with huggingface_hub's own calls.

    python benchmarks/hub.py            all of it, a few minutes
    python benchmarks/hub.py --rounds 1 --no-shape

The target has 208,547 tensors in 64 shards. Each read is a fresh process with empty caches, unless it says warm, and is
timed without its imports and without the making of the client, which a process does once; the server is this process.
Networks: the loopback, 40 ms more for each request, and a model of a distant one (40 ms for a request, 80 ms for a
connection, TCP's slow start, 100 Mb/s). Requests and bytes are counted at the server. The table gives medians. A ratio
to a floor is that of the fastest round, since other work on the machine only adds to what a read must take; a ratio of
two reads is that of their medians. Exits with 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(ROOT / "tests"), str(ROOT / "src")]  # in place of this folder, where `hub` is this file
INSIDE = "language_model."
WANTED = [  # the seven tensors: what a drafter borrows, and one layer's of those that it copies
    *(f"{INSIDE}model.{name}" for name in ("embed_tokens.weight", "norm.weight")),
    f"{INSIDE}lm_head.weight",
    *(
        f"{INSIDE}model.layers.2.{name}.weight"
        for name in ("input_layernorm", "post_attention_layernorm", "self_attn.o_proj", "mlp.gate")
    ),
]
# Floors, in ms at +40 ms and on the distant network: dependent round trips, the bytes that must move over the link,
# two handshakes and slow start. By ranges: index and headers, 53.4 MB, 4 round trips; at once: 2.3 MB, 1 round trip.
FLOORS = {"all by ranges": (160.0, 4700.0), "all at once": (40.0, 470.0)}


class Row(NamedTuple):
    """Hold what one read took: ms by network, median and fastest; bytes, requests, and the growth of memory in MB."""

    ms: dict[str, float]
    best: dict[str, float]
    requests: int
    kilobytes: float
    memory: float


# --- one read, in a process of its own ----------------------------------------------------------------------------


def ours(spec: str, role: str, wanted: list[str] | None) -> Callable[[], int]:
    """Return a read by draftproof: config, and the wanted tensors, or all."""
    import filelock  # noqa: F401

    from draftproof import api, remote  # noqa: F401
    from draftproof.checkpoint import Checkpoint
    from draftproof.hub import open_model

    def run() -> int:
        source = open_model(spec, (), None, api.Connection("live"), role)
        checkpoint = Checkpoint(source, role)  # type: ignore[arg-type]
        assert checkpoint.config("architectures")
        asked = frozenset(wanted) if wanted else None
        table = checkpoint.table(asked, (), lambda got: set(wanted or ()) <= set(got))
        assert not checkpoint.findings, checkpoint.findings
        return len(table.tensors)

    return run


def theirs(how: str, spec: str) -> Callable[[], int]:
    """Return a read by huggingface_hub: every shard in turn, all headers at once, or the index and then two shards."""
    from huggingface_hub import HfApi, hf_hub_download

    api = HfApi(endpoint=os.environ["HF_ENDPOINT"])
    name = "model.safetensors.index.json"

    def run() -> int:
        hf_hub_download(spec, "config.json")
        if how == "full":
            return len(api.get_safetensors_metadata(spec).weight_map)
        if how == "sharded":
            return len(api.get_sharded_safetensors_metadata(spec).weight_map)
        where = json.loads(Path(hf_hub_download(spec, name)).read_bytes())["weight_map"]
        shards = {where[tensor] for tensor in WANTED}
        heads = [api.parse_safetensors_file_metadata(spec, shard).tensors for shard in shards]
        return len([tensor for tensor in WANTED if any(tensor in head for head in heads)])

    return run


def peak(key: str) -> float:
    """Return a size of this process in MB, where the system tells it."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))


def measure(kind: str, spec: str, warm: bool) -> None:
    """Do one read; prints ms, the growth of memory, and how many tensors were read."""
    from huggingface_hub.utils import get_session, get_token  # noqa: F401

    who, _, how = kind.partition(" ")
    get_session()  # made once in a process, of TLS certificates that no loopback needs: no part of a read
    run = theirs(how, spec) if who == "hub" else ours(spec, "drafter" if how == "drafter" else "target",
                                                       WANTED if how == "seven" else None)  # fmt: skip
    if warm:
        run()
        for thread in threading.enumerate():  # what is read ahead, and was not waited for
            if thread.name.startswith("draftproof"):
                thread.join(5.0)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
    Path("/proc/self/clear_refs").write_text("5") if Path("/proc/self/clear_refs").exists() else None
    before, start = peak("VmRSS"), time.perf_counter()
    count = run()
    print(json.dumps([(time.perf_counter() - start) * 1000, peak("VmHWM") - before, count]))


# --- all of them --------------------------------------------------------------------------------------------------


def one(server: Any, kind: str, spec: str, *, warm: bool = False) -> tuple[float, float, int, int, int]:
    """Run one read against the server; returns ms, MB of memory, tensors, requests and bytes."""
    with tempfile.TemporaryDirectory() as home:
        env = os.environ | {
            "HF_HOME": home, "HF_ENDPOINT": server.hub, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }  # fmt: skip
        words = [sys.executable, __file__, "--one", kind, spec, *(["--warm"] if warm else [])]
        run = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert run.stdin is not None
        assert run.stdout is not None
        if warm:
            run.stdout.readline()
        server.reset()
        if warm:
            run.stdin.write("go\n")
        out, _ = run.communicate()
        if run.returncode:
            raise SystemExit(f"{kind}: exit {run.returncode}\n{out}")
        ms, memory, count = json.loads(out)
        return ms, memory, count, server.requests, server.bytes


def table(server: Any, rounds: int, nets: dict[str, Any]) -> dict[str, Row]:
    """Run all reads in turn on each network, and return their medians."""
    from hub import repos

    fixed = f"{repos.K25}@{server.repos[repos.K25].commit('fixed')}"  # the endpoint gives all headers of main alone
    drafter = f"{repos.DRAFTER}@{server.repos[repos.DRAFTER].commit('main')}"
    jobs: dict[str, tuple[str, str, bool, int]] = {
        "drafter": ("ours drafter", repos.DRAFTER, False, 15),
        "seven tensors": ("ours seven", repos.K25, False, 7),
        "all by ranges": ("ours all", fixed, False, 208_547),
        "all at once": ("ours all", repos.K25, False, 208_547),
        "warm, branch": ("ours seven", repos.K25, True, 7),
        "warm, pinned": ("ours drafter", drafter, True, 15),
        "get_safetensors_metadata": ("hub full", repos.K25, False, 208_547),
        "get_sharded_safetensors_metadata": ("hub sharded", repos.K25, False, 208_547),
        "index, then two shards": ("hub lazy", repos.K25, False, 7),
    }
    taken: dict[str, dict[str, list[tuple[float, float, int, int, int]]]] = {name: {} for name in jobs}
    for _ in range(rounds):
        for net, model in nets.items():
            server.net = model
            for name, (kind, spec, warm, count) in jobs.items():
                row = one(server, kind, spec, warm=warm)
                if row[2] != count:
                    raise SystemExit(f"{name}: {row[2]} tensors, not {count}")
                taken[name].setdefault(net, []).append(row)
    out = {}
    for name, by_net in taken.items():
        ms = {net: statistics.median(row[0] for row in rows) for net, rows in by_net.items()}
        best = {net: min(row[0] for row in rows) for net, rows in by_net.items()}
        every = [row for rows in by_net.values() for row in rows]
        out[name] = Row(ms, best, max(r[3] for r in every), max(r[4] for r in every) / 1000, max(r[1] for r in every))
    return out


def printed(rows: dict[str, Row]) -> None:
    """Print the table."""
    print("| read | loopback | +40 ms | distant | requests | kB | memory |\n|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        times = " | ".join(f"{ms:,.0f} ms" for ms in row.ms.values())
        print(f"| {name} | {times} | {row.requests} | {row.kilobytes:,.1f} | {row.memory:.0f} MB |")


def targets(rows: dict[str, Row]) -> int:
    """Print every figure that has a target against it; returns how many are missed."""
    full, seven, drafter = rows["get_safetensors_metadata"], rows["seven tensors"], rows["drafter"]
    most = {
        "drafter, cold: requests": (drafter.requests, 4),
        "drafter, cold: kB": (drafter.kilobytes, 20),
        "seven tensors, cold: requests": (seven.requests, 16),
        "seven tensors, cold: kB": (seven.kilobytes, 1000),
        "seven tensors, cold: MB of memory": (seven.memory, 40),
        "warm, branch: requests": (rows["warm, branch"].requests, 1),
        "warm, pinned: requests": (rows["warm, pinned"].requests, 0),
        "all by ranges, distant / floor": (rows["all by ranges"].best["distant"] / FLOORS["all by ranges"][1], 1.25),
        "all at once, distant / floor": (rows["all at once"].best["distant"] / FLOORS["all at once"][1], 1.6),
        "all by ranges, +40 ms / floor of round trips": (rows["all by ranges"].best["+40 ms"] / 160, 8),
    }
    least = {
        "get_safetensors_metadata / seven tensors, +40 ms": (full.ms["+40 ms"] / seven.ms["+40 ms"], 12),
        "get_safetensors_metadata / seven tensors, distant": (full.ms["distant"] / seven.ms["distant"], 9),
    }
    missed = 0
    for which, limits in (("at most", most), ("at least", least)):
        for what, (value, limit) in limits.items():
            bad = value > limit if which == "at most" else value < limit
            missed += bad
            print(f"{what}: {value:,.2f}, target {which} {limit}: {'missed' if bad else 'met'}")
    return missed


EMPTY = "import pytest\n\n\n@pytest.mark.parametrize('n', range(40))\ndef test_nothing(n):\n    pass\n"


def shape(server: Any, root: Path, rounds: int) -> None:
    """Time a whole `pytest -m shape` of 20 pairs on cold repos at +40 ms, alone and with four workers.

    Beside it as many empty tests: four workers are four interpreters, whose start costs more than it saves on a machine
    of two cores.
    """
    import builder as b
    from hub.server import DISTANT

    pairs = root / "project" / "contracts" / "pairs"
    pairs.mkdir(parents=True)
    (root / "project" / "pytest.ini").write_text("[pytest]\n")
    (root / "project" / "test_pairs.py").write_text("from draftproof.testing import TestShape\n")
    for n in range(20):
        name = f"bench/drafter-{n}", f"bench/target-{n}"
        server.add(name[0], b.write(root / "bench" / f"d{n}", b.dense_config(rms_norm_eps=1e-5 + n * 1e-9), b.dense()))
        server.add(
            name[1], b.write(root / "bench" / f"t{n}", b.target_config(rope_theta=5e5 + n), b.target(), shards=4)
        )
        text = f'schema = 1\nkind = "pair"\nid = "bench-{n}"\ntitle = "pair {n}"\n'
        text += f'drafter = {{ model = "{name[0]}" }}\ntarget = {{ model = "{name[1]}" }}\n'
        (pairs / f"bench-{n}.toml").write_text(text)
    (root / "project" / "test_empty.py").write_text(EMPTY)
    server.net = DISTANT
    plain = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:benchmark", "-p", "no:syrupy"]
    pytest = [sys.executable, "-m", "pytest", "-q", *plain, "--draftproof-hub", "live"]
    taken: dict[tuple[str, str], list[tuple[float, int, int]]] = {}
    for _ in range(rounds):
        for workers in ("0", "4"):
            for what, words in (("pairs", ["-m", "shape", "-k", "bench"]), ("empty", ["test_empty.py"])):
                with tempfile.TemporaryDirectory() as home:
                    env = os.environ | {"HF_HOME": home, "HF_ENDPOINT": server.hub, "HF_HUB_DISABLE_TELEMETRY": "1"}
                    server.reset()
                    start = time.perf_counter()
                    done = subprocess.run([*pytest, "-n", workers, *words], cwd=root / "project", env=env,
                                          capture_output=True, text=True, check=False)  # fmt: skip
                    seconds = time.perf_counter() - start
                if done.returncode:
                    raise SystemExit(done.stdout + done.stderr)
                taken.setdefault((workers, what), []).append((seconds, server.requests, server.bytes))
    for workers in ("0", "4"):
        rows, empty = taken[workers, "pairs"], taken[workers, "empty"]
        middle, low, high = (f([row[0] for row in rows]) for f in (statistics.median, min, max))
        print(f"pytest -m shape of 20 pairs, cold, +40 ms, -n {workers}: {middle:.1f} s ({low:.1f} to {high:.1f}); "
              f"{max(row[1] for row in rows)} requests, {max(row[2] for row in rows) / 1000:,.0f} kB; as many empty "
              f"tests: {statistics.median(row[0] for row in empty):.1f} s")  # fmt: skip


def main() -> int:
    """Print the table and the ratios; returns the exit code."""
    parser = argparse.ArgumentParser(description="Time reads from a Hub on the loopback.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-shape", action="store_true", help="leave out pytest -m shape")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        measure(*args.one, args.warm)
        return 0
    os.environ.pop("HF_HUB_OFFLINE", None)
    from hub import repos
    from hub.server import DISTANT, LOOPBACK, WAN, Server

    with tempfile.TemporaryDirectory() as made, Server() as server:
        root = Path(made)
        server.add(repos.DRAFTER, repos.drafter(root))
        server.add(repos.K25, folder := repos.kimi_k25(root), "fixed")
        server.add(repos.K25, folder, "main", commit="1" * 40)
        server.gather(repos.K25)
        rows = table(server, args.rounds, {"loopback": LOOPBACK, "+40 ms": DISTANT, "distant": WAN})
        printed(rows)
        print()
        missed = targets(rows)
        if not args.no_shape:
            print()
            shape(server, root, args.rounds)
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
