"""A hostile Hub: each request meets a random fault, or none. Reads must end in time, raise nothing, and judge truly.

    python tests/faults/fuzz.py [--runs 2000] [--seed N]     prints the seed of each run that goes wrong; exit code 1

A run checks one pair, right or broken, through a cache that earlier runs have filled. Its verdict is that of the true
bytes, or unknown; a pass from other bytes, or a failure of a right pair, is wrong. Of what a header's own bytes say no
reader can tell a consistent lie: the faults here break, cut, delay and mix up answers, they do not forge a file.
"""

from __future__ import annotations

import argparse
import gzip
import random
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import builder as b
from draftproof import api
from draftproof.cache import Cache
from draftproof.library import Library
from draftproof.remote import Hub
from draftproof.transport import Limits, Transport
from hub.server import Reply, Request, Rule, Server, error

LIMITS = Limits(step=0.2, total=0.5, pause=0.005)  # seconds
SLACK = 1.5  # seconds that a busy machine may add to one read
READS = 12  # reads that may follow one another in a check
AT_ONCE = 8
BROKEN = "org/broken"

Fault = Callable[[random.Random, Request, Reply], Reply]


def _whole(reply: Reply) -> bytes:
    if reply.file is None:
        return reply.body
    with open(reply.file[0], "rb") as file:
        file.seek(reply.file[1])
        return file.read(reply.file[2])


def _raw(reply: Reply, headers: dict[str, str], *parts: bytes) -> Reply:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return replace(reply, raw=[f"HTTP/1.1 {reply.status} X\r\n{lines}\r\n".encode("latin-1"), *parts])


def _flipped(rng: random.Random, request: Request, reply: Reply) -> Reply:
    """Change one byte of a small file; what has no digest is cut."""
    raw = bytearray(_whole(reply))
    if not raw or request.side == "cdn" or "/resolve" not in request.path or "Content-Encoding" in reply.headers:
        return replace(reply, cut=len(raw) // 2)
    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(7)
    return replace(reply, body=bytes(raw), file=None)


def _dripped(rng: random.Random, request: Request, reply: Reply) -> Reply:
    raw = _whole(reply)[:400]
    return replace(_raw(reply, reply.headers, *(raw[i : i + 1] for i in range(len(raw)))), pace=0.02)


def _dripped_head(rng: random.Random, request: Request, reply: Reply) -> Reply:
    def parts() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nX-Drip: "
        yield from [b"x"] * 60

    return replace(reply, raw=parts(), pace=0.02)


def _without_length(rng: random.Random, request: Request, reply: Reply) -> Reply:
    raw = _whole(reply)
    kept = {k: v for k, v in reply.headers.items() if k not in ("Transfer-Encoding", "Content-Length")}
    return _raw(reply, kept, raw[: rng.randrange(len(raw) + 1)])


def _endless(rng: random.Random, request: Request, reply: Reply) -> Reply:
    kept = {k: v for k, v in reply.headers.items() if k not in ("Transfer-Encoding", "Content-Length")}
    return _raw(reply, kept, _whole(reply), *(bytes(1 << 16) for _ in range(40)))


def _headers(rng: random.Random, request: Request, reply: Reply) -> Reply:
    """Spoil one header, or take it away."""
    named = {
        "Content-Range": ["bytes 0-1/2", "bytes */7", "x", "bytes 99-100/101"], "ETag": ['"../../x"', '"0"'],
        "X-Repo-Commit": ["../x", "f" * 40, ""], "X-Linked-Size": ["7", "x", "-1", "9" * 30], "X-Linked-ETag": ['"x"'],
        "Content-Encoding": ["gzip", "br", "deflate"], "Content-Length": ["0", "1", "999999", "x"],
        "Location": ["/", "http://[", "file:///etc/passwd", "http://169.254.169.254/", "ftp://x/", request.path],
    }  # fmt: skip
    name = rng.choice([n for n in named if n in reply.headers] or ["Content-Encoding"])
    kept = {k: v for k, v in reply.headers.items() if k != name}
    return replace(reply, headers=kept if rng.random() < 0.3 else kept | {name: rng.choice(named[name])})


def _another_part(rng: random.Random, request: Request, reply: Reply) -> Reply:
    if reply.file is None or reply.file[2] < 2:
        return replace(reply, status=206)
    path, start, length = reply.file
    told = f"bytes {start + 1}-{start + length - 1}/{path.stat().st_size}"
    return replace(
        reply, status=206, file=(path, start + 1, length - 1), headers=reply.headers | {"Content-Range": told}
    )


def _says(rng: random.Random, request: Request, reply: Reply) -> Reply:
    codes = ["", "RepoNotFound", "RevisionNotFound", "GatedRepo", "Odd\x7f"]
    more = rng.choice([{}, {"Retry-After": "0"}, {"Retry-After": "7"}, {"Retry-After": "x"}, {"RateLimit": "r=0;t=9"}])
    status = rng.choice([400, 401, 403, 404, 408, 410, 416, 418, 429, 500, 502, 503, 504, 599])
    return error(status, rng.choice(codes), rng.choice(["", "no \x1b[31m", "x" * 5000]), more)


def _other_body(rng: random.Random, request: Request, reply: Reply) -> Reply:
    bodies = [
        b"",
        b"{}",
        b"[",
        b"[" * 5000,
        b"<html>",
        bytes(20_000),
        b"\x1f\x8b",
        gzip.compress(bytes(1 << 20)),
        b"null",
    ]
    return replace(reply, body=rng.choice(bodies), file=None)


FAULTS: dict[str, Fault] = {
    "flipped": _flipped, "drip": _dripped, "header drip": _dripped_head, "no length": _without_length,
    "endless": _endless, "headers": _headers, "another part": _another_part, "says": _says, "other body": _other_body,
    "cut": lambda rng, request, reply: replace(reply, cut=rng.randrange(reply.length + 1)),
    "drop": lambda rng, request, reply: replace(reply, drop=True),
    "hang": lambda rng, request, reply: replace(reply, hang=3.0),
    "status": lambda rng, request, reply: replace(reply, status=rng.choice([200, 201, 204, 206, 300, 304])),
    "page": lambda rng, request, reply: Reply(200, {"Content-Type": "text/html"}, b"<html>Log in</html>"),
    "loop": lambda rng, request, reply: Reply(302, {"Location": request.path}),
    "garbage": lambda rng, request, reply: replace(reply, raw=[rng.randbytes(rng.randrange(400))]),
}  # fmt: skip


def write(root: Path) -> None:
    """Write the repos: a drafter and its target, and a drafter with one tensor of a wrong shape."""
    b.write(root / b.DRAFTER, b.dense_config(), b.dense())
    b.write(root / b.TARGET, b.target_config(), b.target(), shards=3)
    table = b.dense()
    name = next(n for n, (_, shape) in table.items() if len(shape) == 2)
    b.write(root / BROKEN, b.dense_config(), table | {name: (table[name][0], (3, 5))})


class Runner:
    """Run seeds against a Hub of its own."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.rng = random.Random()
        self.odds = 0.0
        self.slowest = 0.0
        self.hits: Counter[str] = Counter()
        server.rules = [Rule(after=self._after)]

    def _after(self, request: Request, reply: Reply) -> Reply:
        if self.rng.random() >= self.odds:
            return reply
        name = self.rng.choice(list(FAULTS))
        self.hits[name] += 1
        return FAULTS[name](self.rng, request, reply)

    def run(self, seed: int) -> list[str]:
        """Check a pair with the faults of a seed; returns what went wrong."""
        self.rng.seed(seed)
        self.odds = self.rng.choice([0.1, 0.3, 0.6, 1.0])
        wrong = self._check(seed)
        if seed % 10 == 0:  # what the faults left in the cache
            self.odds = 0.0
            wrong += [f"later, without faults: {one}" for one in self._check(seed, sure=True)]
        return wrong

    def _check(self, seed: int, *, sure: bool = False) -> list[str]:
        drafter, truth = (b.DRAFTER, "pass") if seed % 2 else (BROKEN, "fail")
        limits = replace(LIMITS, step=5.0, total=20.0) if sure else LIMITS
        folder = self.folder / str(seed // 20)
        hub = Hub("live", endpoint=self.server.hub, limits=limits, cache=Cache(folder), token=False)
        began = time.monotonic()
        try:
            case = api.examine(drafter, b.TARGET, Library(hub=hub), facts=b.FACTS, repos=(b.DRAFTER, b.TARGET))
            report = api.report(case, "a pair")
        except BaseException:
            return [f"raised:\n{traceback.format_exc()}"]
        took = time.monotonic() - began
        self.slowest = max(self.slowest, took)
        wrong = []
        if not sure and took > READS * LIMITS.total + SLACK:
            wrong.append(f"took {took:.1f} s")
        if report.verdict not in ((truth,) if sure else (truth, "unknown")):
            said = [(f.code, f.subject, f.observed) for f in report.findings if f.level in ("error", "unknown")]
            wrong.append(f"{report.verdict}, and the truth is {truth}: {said[:4]}")
        return wrong


def fuzz(runs: int, first: int, folder: Path) -> tuple[list[str], float, Counter[str]]:
    """Run so many seeds from the first; returns what went wrong, by how much a read was late, and the faults met."""
    root = folder / "root"
    write(root)
    seeds, lock = iter(range(first, first + runs)), threading.Lock()
    wrong: list[str] = []
    hits: Counter[str] = Counter()
    late = 0.0
    plain = Transport.get

    def timed(self: Transport, url: str, limit: int, until: float, **more: Any) -> Any:
        nonlocal late
        try:
            return plain(self, url, limit, until, **more)
        finally:
            late = max(late, time.monotonic() - until)

    def work(number: int) -> None:
        with Server(root) as server:
            one = Runner(server, folder / "cache" / str(number))
            while True:
                with lock:
                    seed = next(seeds, None)
                if seed is None:
                    break
                wrong.extend(f"seed {seed}: {text}" for text in one.run(seed))
            hits.update(one.hits)

    Transport.get = timed  # type: ignore[method-assign, assignment]
    try:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(min(AT_ONCE, runs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        Transport.get = plain  # type: ignore[method-assign]
    return wrong, late, hits


def main() -> int:
    """Run, and print what went wrong."""
    parser = argparse.ArgumentParser(description="A hostile Hub.")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), help="of the first run")
    args = parser.parse_args()
    sys.stdout.write(f"runs {args.runs}, first seed {args.seed}\n")
    sys.stdout.flush()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as made:
        wrong, late, hits = fuzz(args.runs, args.seed, Path(made))
    told = ", ".join(f"{name} {count}" for name, count in hits.most_common())
    text = f"{sum(hits.values())} faults: {told}\nlatest end of a read: {late:.2f} s after its deadline\n"
    sys.stdout.write("\n".join([*wrong, ""]) + text + f"{len(wrong)} wrong, {time.monotonic() - began:.0f} s\n")
    return int(bool(wrong) or late > SLACK)


if __name__ == "__main__":
    sys.exit(main())
