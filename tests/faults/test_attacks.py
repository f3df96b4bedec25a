"""What makes reading a Hub hard, and what a hostile repo, mirror or neighbour may try, row by row."""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import builder as b
from draftproof import remote, transport
from draftproof.cache import Cache
from draftproof.checkpoint import Checkpoint
from draftproof.findings import Finding
from draftproof.hub import Source, open_folder
from draftproof.remote import FIRST, Hub
from draftproof.render import report_text
from draftproof.rules import RULES
from draftproof.transport import NetError, Transport
from faults.test_path import COMMIT, DRAFTER, TARGET, env
from faults.world import FAST, SLACK, TOKEN, World, fault
from hub import server as s

REPO_AT_FAULT = ("STF", "IDX", "CFG", "TEN", "DIM")


def container(header: Any, data: int = 0) -> bytes:
    """Return a safetensors file of a header, as JSON or as bytes, and of zeros."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(data)


def grown(world: World, repo: str, role: str = "drafter") -> tuple[set[str], float, float]:
    """Read a repo in a process of its own; returns the codes, and what it took in MiB of memory and in seconds."""
    code = f"""
import json, resource, sys, time
from pathlib import Path
from draftproof.cache import Cache
from draftproof.checkpoint import Checkpoint
from draftproof.hub import Source, open_model
from draftproof.remote import Hub
from draftproof.transport import Limits

def read(repo, role):
    hub = Hub("live", cache=Cache(None), limits=Limits(0.5, 4.0, 0.01), token=False)
    opened = open_model(repo, (), remote=hub, role=role)
    if not isinstance(opened, Source):
        return [opened.code]
    one = Checkpoint(opened, role)
    one.config, one.table()
    return [f.code for f in one.findings]

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

read("org/usual", "drafter")
before, began = peak(), time.monotonic()
codes = read({repo!r}, {role!r})
print(json.dumps([codes, peak() - before, time.monotonic() - began]))
"""
    b.write(world.folder / "root" / "org" / "usual", b.dense_config(), b.dense())
    world.again("org/usual")
    out = subprocess.run(
        [sys.executable, "-c", code], check=False, env=env(world), capture_output=True, text=True, timeout=60
    )
    assert out.returncode == 0, out.stderr
    codes, memory, seconds = json.loads(out.stdout)
    world.found += [Finding(code, repo, RULES[code].severity, "") for code in codes]
    return set(codes), memory, seconds


# --- what makes it hard -------------------------------------------------------------------------------------------


@fault("G01", "a range and Accept-Encoding: gzip give 200 and the whole file", "SRC108")
def test_g01_range_and_gzip(world: World) -> None:
    """Every range is asked for as it is; where the whole comes all the same, its first bytes serve."""
    world.server.rule(side="cdn", what=s.ignores_range())
    report = world.check()
    assert report.verdict == "pass"
    assert all(seen.headers["accept-encoding"] == "identity" for seen in world.server.log if seen.side == "cdn")


@fault("G02", "302 to another host, 307 to the same", "")
def test_g02_token_on_the_same_host(world: World) -> None:
    """Followed by hand: the token goes along on the endpoint's own origin, and nowhere else."""
    world.server.tokens.add(TOKEN)
    assert isinstance(world.open(token=TOKEN), Source)
    assert {(seen.side, seen.token) for seen in world.server.log} == {("hub", TOKEN), ("cdn", "")}
    assert "/api/resolve-cache/" in " ".join(world.asked)


@fault("G03", "a signed address has expired, or refuses ranges", "SRC107")
@pytest.mark.parametrize("when", ["first", "second"])
def test_g03_expired_address(world: World, when: str) -> None:
    """It is resolved again, once; a CDN that goes on refusing is no matter of tokens."""
    if when == "second":
        world.put("model.safetensors", padded(world, FIRST + 5000))
    world.server.rule(side="cdn", skip=int(when == "second"), times=1, what=s.says(403, "", "invalid range"))
    assert world.check().verdict == "pass"
    world.cache = Cache(world.folder / "cache" / "two")
    world.server.rules = [s.Rule(side="cdn", **s.says(403, "GatedRepo", "expired"))]
    world.server.reset()
    found = world.fails()
    assert "HTTP 403 from 127.0.0.1" in found.observed
    assert sum(world.server.told(world.drafter / "model.safetensors")[0] in path for path in world.asked) == 2


def padded(world: World, length: int) -> bytes:
    """Return the drafter's file with a header of so many bytes."""
    raw = (world.drafter / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    assert size <= length
    return length.to_bytes(8, "little") + raw[8 : 8 + size] + b" " * (length - size) + raw[8 + size :]


@fault("G04", "commit, etag and size stand in the headers of a redirect", "")
def test_g04_no_request_more(world: World) -> None:
    """They are taken from there: config and header of a drafter are four requests, at one commit."""
    opened = world.open()
    assert isinstance(opened, Source)
    assert len(Checkpoint(opened, "drafter").table().tensors) == len(b.dense())
    assert opened.revision == world.commits[DRAFTER]
    assert world.server.requests == 4


@fault("G05", "a header ends just before or behind the end of a read", "")
@pytest.mark.parametrize("length", [*range(FIRST - 10, FIRST + 3, 2), 99_992, 99_994, 100_000, 100_008])
def test_g05_header_at_the_border(world: World, length: int) -> None:
    """It is read whole, with one more request at most."""
    world.put("model.safetensors", padded(world, length))
    assert world.read() == []
    assert {n: (t.dtype, t.shape) for n, t in world.table.tensors.items()} == b.dense()
    assert len([seen for seen in world.server.log if seen.side == "cdn"]) == (1 if length + 8 <= FIRST else 2)


@fault("G06", "shards named model-1-of-3 or -of-000003, an index in no order", "")
@pytest.mark.parametrize("spelling", ["model-{}-of-3", "model-0000{}-of-000003", "weights_{}", "a-{:02}-of-03"])
def test_g06_spellings_of_shards(world: World, spelling: str) -> None:
    """The index decides; a layout is never derived from names."""
    path = world.target / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    names = {f"model-0000{n}-of-00003.safetensors": spelling.format(n) + ".safetensors" for n in (1, 2, 3)}
    for old, new in names.items():
        (world.target / old).rename(world.target / new)
    index["weight_map"] = {n: names[file] for n, file in sorted(index["weight_map"].items(), reverse=True)}
    path.write_text(json.dumps(index))
    world.again(TARGET)
    assert world.check().verdict == "pass"


@fault("G07", "an index beside a stale single file, consolidated files, an adapter", "IDX308 IDX309")
def test_g07_ambiguous_layout(world: World) -> None:
    """The list is read first; what does not belong is named, and the index is believed."""
    (world.target / "model.safetensors").write_bytes(b.safetensors({"lm_head.weight": ("BF16", (1, 1))}))
    for name in ("consolidated.safetensors", "model-00001-of-00002.safetensors", "adapter_model.safetensors"):
        (world.target / name).write_bytes(b.safetensors({"x": ("BF16", (1,))}))
    (world.target / "old").mkdir()
    (world.target / "old" / "model.safetensors").write_bytes(b"")
    world.again(TARGET)
    found = world.read(TARGET, role="target")
    assert {n: (t.dtype, t.shape) for n, t in world.table.tensors.items()} == b.target()
    stray = world.one("IDX308", found).observed
    assert all(name in stray for name in ("consolidated", "-of-00002", "adapter_model"))
    assert world.one("IDX309", found).subject == "model.safetensors"


@fault("G08", "only a pytorch_model.bin, with a call of os.system in it", "SRC121")
def test_g08_bin_is_never_run(world: World) -> None:
    """Its pickle is read by a machine that knows tensors alone; the payload is named and not run."""
    import io
    import pickle
    import zipfile

    class Evil:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {world.folder}/here/run",)

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps({"w": Evil()}, protocol=2))
    world.drop("model.safetensors")
    world.put("pytorch_model.bin", out.getvalue())
    assert "system" in repr(world.one("SRC121", world.read()))
    assert not (world.folder / "here" / "run").exists()


@fault("G09", "an LFS pointer: its first eight bytes are a length of 2.3e18", "STF202")
def test_g09_lfs_pointer(world: World) -> None:
    """No such length is asked for; the pointer is named."""
    world.put("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    assert "git-lfs pointer" in world.one("STF202", world.read()).note
    assert len([seen for seen in world.server.log if seen.side == "cdn"]) == 1


@fault("G10", "gated, private and missing repos", "SRC101 SRC102")
def test_g10_no_access_is_an_outcome_of_its_own(world: World) -> None:
    """Never a fault of the repo: could not judge."""
    world.server.repos[TARGET].access = "gated"
    assert world.fails(TARGET, role="target").code == "SRC102"
    world.server.repos[TARGET].access = "private"
    assert world.fails(TARGET, role="target").code == "SRC101"
    assert world.fails("org/absent").code == "SRC101"


WAYS: dict[str, dict[str, Any]] = {
    "portal": s.page(), "portal as bytes": s.with_headers(Content_Type="text/html"), "another range": s.another_range(),
    "halved": s.halved(), "no commit": s.with_headers(X_Repo_Commit=None),
    "empty": {"answer": lambda request: s.Reply(200)}, "204": {"answer": lambda request: s.Reply(204)},
    "206": s.sent(status=206), "304": {"answer": lambda request: s.Reply(304)},
    "JSON": s.body(b'{"ok": true}'), "zeros": s.body(bytes(20_000)), "XML": s.body(b"<?xml version='1.0'?><Error/>"),
}  # fmt: skip


@fault("G11", "a portal, a wrong range, a cut body, an answer that is none", "SRC105|SRC107")
@pytest.mark.parametrize("side", ["hub", "cdn"])
@pytest.mark.parametrize("way", WAYS)
def test_g11_never_blames_the_repo(world: World, way: str, side: str) -> None:
    """What the network does is never found against the repo, and never a pass."""
    if side == "cdn" and way in ("no commit", "206"):
        way = "halved"  # nothing strange from a CDN
    world.server.rule(side=side, what=WAYS[way])
    report = world.check()
    assert report.verdict == "unknown"
    assert [f for f in report.findings if f.code in ("SRC105", "SRC107")]
    assert not [f for f in report.findings if f.level == "error" and f.code.startswith(REPO_AT_FAULT)]


@fault("G12", "the endpoint is down", "SRC107")
def test_g12_endpoint_down(world: World) -> None:
    """Said within seconds, also with the limits of every day; the cause is one line."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    usual = transport.Limits()
    found = world.fails(endpoint=f"http://127.0.0.1:{port}", limits=replace(usual, pause=0.1))
    assert time.monotonic() - began < 3.0
    assert "refused" in found.observed
    most = sum(usual.pause * 2**n * 1.5 for n in range(transport.TRIES - 1))
    assert most < 6.0, "seconds of waiting in all"


@fault("G13", "a dtype that is newer than this reader", "STF210")
def test_g13_new_dtype(world: World) -> None:
    """The dtype is named; known are those of the format as it was."""
    world.put("model.safetensors", container({"w": {"dtype": "F2_E1M0", "shape": [4], "data_offsets": [0, 1]}}, 1))
    assert "F2_E1M0" in world.one("STF210", world.read()).observed


@fault("G14", "weights packed as int4: the stored shape is not the logical one", "")
def test_g14_packed(world: World) -> None:
    """The table says what is stored; values are no part of a header, and none is read."""
    rows: dict[str, Any] = {
        "a.weight_packed": ("I32", (64, 8)),
        "a.weight_shape": ("I64", (2,)),
        "z": ("U8", (1 << 20,)),
    }
    world.put("model.safetensors", b.safetensors(rows))
    world.read()
    assert {n: (t.dtype, t.shape) for n, t in world.table.tensors.items()} == rows
    assert sum(seen.sent for seen in world.server.log if seen.side == "cdn") == FIRST


@fault("G15", "a range is ignored on a file of 400 MB", "SRC108")
def test_g15_memory_of_an_ignored_range(world: World) -> None:
    """In a process of its own: a few MB of memory, not 400."""
    size = 400 << 20
    path = world.drafter / "model.safetensors"
    head = container({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}})
    path.write_bytes(head)
    os.truncate(path, len(head) + size)
    world.again()
    world.server.rule(f"*{DRAFTER}/*", side="cdn", what=s.ignores_range())
    codes, memory, seconds = grown(world, DRAFTER)
    assert codes == {"SRC108"}
    assert memory < 20
    assert seconds < 4
    world.read()


# --- a hostile repo -----------------------------------------------------------------------------------------------

HEADERS: dict[str, tuple[bytes, str]] = {
    "A01 length 2^62": ((1 << 62).to_bytes(8, "little") + b"{}", "STF202"),
    "A01 length 24.9 MB in 1 kB": ((24_900_000).to_bytes(8, "little") + bytes(1000), "STF203"),
    "A02 text in a shape": (
        container({"w": {"dtype": "F32", "shape": ["A" * 1000, 1_500_000], "data_offsets": [0, 4]}}, 4), "STF2",
    ),
    "A03 product of giants": (
        container(b'{"w":{"dtype":"F32","shape":[%s],"data_offsets":[0,4]}}' % (b"1" + b"0" * 300 + b",1" * 4000), 4),
        "STF2",
    ),
    "A04 wraps 64 bits": (
        container({"w": {"dtype": "F32", "shape": [4194305, 4194305, 211106198978564], "data_offsets": [0, 16]}}, 16),
        "STF2",
    ),
    "A04 negative": (container({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, 4), "STF2"),
    "A04 NaN": (container(b'{"w":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', 4), "STF2"),
    "A04 null": (container({"w": {"dtype": "F32", "shape": None, "data_offsets": [0, 4]}}, 4), "STF2"),
    "A04 overlap": (
        container({n: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for n in ("v", "w")} | {
            "x": {"dtype": "F32", "shape": [1], "data_offsets": [2, 6]}}, 6), "STF2",
    ),
    "A04 UTF-8": (container(b'{"\xff":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4), "STF2"),
    "A05 two million brackets": (container(b"[" * 2_000_000), "STF2"),
    "A05 two million tables": (container(b'{"a":' * 400_000), "STF2"),
    "A06 a name twice": (
        container(b"{%s,%s}" % ((b'"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}',) * 2), 4),
        "STF207",
    ),
    "A07 a list": (container([1, 2]), "STF2"),
    "A07 a number": (container(7), "STF2"),
}  # fmt: skip


def hostile(world: World, row: str) -> None:
    """Read each hostile header of a row: a finding of the container, in bounded time, and nothing else is read."""
    for kind in (one for one in HEADERS if one.startswith(row)):
        raw, code = HEADERS[kind]
        world.put("model.safetensors", raw)
        hub = world.hub(limits=replace(FAST, total=5.0))
        began = time.monotonic()
        found = world.read(hub=hub)
        assert time.monotonic() - began < 3.0, kind
        assert [f for f in found if f.level == "error" and f.code.startswith(code)], (kind, found)
        assert hub.moved.bytes <= len(raw) + 10_000, kind


@fault("A01", "a header length of 2^62, or of 24.9 MB in a file of 1 kB", "STF202 STF203")
def test_a01_header_length(world: World) -> None:
    """Refused by the size of the file, before a byte of it is asked for."""
    hostile(world, "A01")


@fault("A02", "a shape that holds text: str times int", "STF211")
def test_a02_text_in_a_shape(world: World) -> None:
    """Sizes are whole numbers and nothing else; no product is taken before that is known."""
    hostile(world, "A02")


@fault("A03", "a shape of 4000 sizes, the first of 300 digits", "STF211")
def test_a03_product_of_giants(world: World) -> None:
    """The product stops where no file could hold it: no seconds are lost."""
    hostile(world, "A03")


@fault(
    "A04",
    "a shape that wraps 64 bits, is negative, NaN or null; overlaps; no UTF-8",
    "STF204 STF205 STF211 STF212 STF214",
)
def test_a04_impossible_tables(world: World) -> None:
    """Each is a finding of the container; the table is not believed."""
    hostile(world, "A04")


@fault("A05", "millions of brackets", "STF204")
def test_a05_depth(world: World) -> None:
    """Depth is counted before it is parsed: no recursion, no exception."""
    hostile(world, "A05")


@fault("A06", "a tensor named twice in one header", "STF207")
def test_a06_duplicates(world: World) -> None:
    """Refused: two readers may take two different ones."""
    hostile(world, "A06")


@fault("A07", "a header that is a list or a number", "STF206")
def test_a07_no_object(world: World) -> None:
    """A finding that says what it is."""
    hostile(world, "A07")


@fault("A02b", "a header of 1 kB that asks for a gigabyte, one of two million brackets", "STF204|STF211")
@pytest.mark.parametrize("kind", ["A02 text in a shape", "A05 two million brackets"])
def test_a02_memory(world: World, kind: str) -> None:
    """In a process of its own: memory stays near the size of the header."""
    world.put("model.safetensors", HEADERS[kind][0])
    codes, memory, seconds = grown(world, DRAFTER)
    assert any(code.startswith("STF2") for code in codes)
    assert memory < 30
    assert seconds < 4


@fault("A08", "a weight_map that steers a request: ../../../../api/models/x", "IDX307")
def test_a08_steered_request(world: World) -> None:
    """No address is made of it: the token is not carried where the repo wants it."""
    world.server.tokens.add(TOKEN)
    index = json.loads((world.target / "model.safetensors.index.json").read_text())
    index["weight_map"] |= {"x": "../../../../api/models/x", "y": "../../../../api/models/y.safetensors"}
    world.put("model.safetensors.index.json", index, TARGET)
    world.read(TARGET, role="target", token=TOKEN)
    assert all(f"/{TARGET}/" in seen.path for seen in world.server.log if seen.side == "hub")


@fault("A09", "a weight_map of absolute paths, addresses and escapes, in a downloaded folder", "IDX307")
@pytest.mark.parametrize("name", ["/etc/passwd", "../../secret.safetensors", "https://evil.example/x.safetensors"])
def test_a09_local_folder(world: World, name: str) -> None:
    """Nothing outside the folder is opened."""
    secret = world.folder / "root" / "secret.safetensors"
    secret.write_bytes(b.safetensors({"secret": ("BF16", (1,))}))
    path = world.target / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["secret"] = name
    path.write_text(json.dumps(index))
    one = Checkpoint(open_folder(world.target, "target"), "target")
    assert "secret" not in one.table().tensors
    world.found += one.findings


@fault("A10", "100,000 names of shards, or many spellings of one", "IDX306")
def test_a10_many_shards(world: World) -> None:
    """An index of more than 4096 shards is refused; none of them is asked for."""
    names = {f"t{n}": f"m-{n}.safetensors" for n in range(100_000)}
    world.put("model.safetensors.index.json", {"weight_map": names}, TARGET)
    found = world.read(TARGET, role="target", limits=replace(FAST, total=5.0))
    assert "4096" in repr(world.one("IDX306", found))
    assert not any("m-" in path for path in world.asked)


@fault("A10b", "4000 shards that are there", "")
def test_a10_few_threads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read by sixteen at once, not by a thread each."""
    import threading

    most, start = [0], threading.Thread.start

    def counted(self: threading.Thread) -> None:
        start(self)
        most[0] = max(most[0], sum(t.name == "draftproof-read" for t in threading.enumerate()))

    monkeypatch.setattr(threading.Thread, "start", counted)
    for n in range(200):
        row = {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}
        (world.target / f"m-{n}.safetensors").write_bytes(container({f"w{n}": row}, 1))
    world.put(
        "model.safetensors.index.json", {"weight_map": {f"w{n}": f"m-{n}.safetensors" for n in range(200)}}, TARGET
    )
    world.read(TARGET, role="target", limits=replace(FAST, total=20.0))
    assert len(world.table.tensors) == 200
    assert most[0] <= 2 * remote.AT_ONCE + 4


@fault("A11", "a mirror whose etag, commit or file names are paths", "")
@pytest.mark.parametrize("what", ["etag", "commit", "name"])
def test_a11_paths_from_a_mirror(world: World, what: str) -> None:
    """No word of a server becomes a path: names of our cache are hashes."""
    evil = "../../../../evil"
    world.server.rule(what={
        "etag": s.with_headers(ETag=f'"{evil}"', X_Linked_ETag=f'"{evil}"'),
        "commit": s.with_headers(X_Repo_Commit=evil),
        "name": s.with_headers(Content_Disposition=f'attachment; filename="{evil}"'),
    }[what])  # fmt: skip
    report = world.check()
    assert report.verdict == ("pass" if what == "name" else "unknown")
    kept = [p for p in (world.folder / "cache").rglob("*") if p.is_file() and p.suffix != ".lock"]
    assert all(re.fullmatch(r"[0-9a-f]{62}", p.name) and re.fullmatch(r"[0-9a-f]{2}", p.parent.name) for p in kept)


def bomb(request: s.Request) -> s.Reply:
    """Answer with a gigabyte of zeros in a megabyte."""
    headers = {"X-Repo-Commit": COMMIT, "Content-Encoding": "gzip", "Content-Type": "application/json"}
    return s.Reply(200, headers, BOMB)


BOMB = gzip.compress(bytes(16 << 20), 9) * 1


@fault("A12", "a config of 17 MB", "CFG311")
def test_a12_huge_config(world: World) -> None:
    """Refused by its size, before a byte of it is read."""
    world.put("config.json", b'{"a": "' + b"x" * (17 << 20) + b'"}')
    hub = world.hub()
    found = world.open(hub=hub)
    assert isinstance(found, Finding)
    assert found.code == "CFG311"
    assert hub.moved.bytes < 100_000


@fault("A12b", "a compressed bomb, or a body without an end, in place of JSON", "SRC107|SRC109")
@pytest.mark.parametrize("kind", ["bomb", "endless", "trailing"])
def test_a12_bombs(world: World, kind: str) -> None:
    """Decoded bytes are counted, and cut at the limit: memory stays near it, and the repo is not blamed."""

    def endless(request: s.Request) -> s.Reply:
        def parts() -> Iterator[bytes]:
            yield b"HTTP/1.1 200 OK\r\nX-Repo-Commit: " + COMMIT.encode() + b"\r\n"
            yield b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"{}") if kind == "trailing" else b"\r\n"
            yield from (bytes(1 << 20) for _ in range(200))

        return s.Reply(200, raw=parts())

    repeated = gzip.compress(bytes(200 << 20), 9) if kind == "bomb" else b""
    headers = {"X-Repo-Commit": COMMIT, "Content-Encoding": "gzip"}
    answers: Any = {"bomb": lambda request: s.Reply(200, headers, repeated), "endless": endless, "trailing": endless}
    world.server.rule(f"*{DRAFTER}*config.json", what={"answer": answers[kind]})
    codes, memory, seconds = grown(world, DRAFTER)
    assert not {code for code in codes if code.startswith(("STF", "IDX"))}
    assert memory < 120
    assert seconds < 5.5


@fault("A13", "a config that names code of its own: auto_map", "")
def test_a13_auto_map(world: World) -> None:
    """It is data: no file of code is asked for, and none is imported."""
    world.put("evil.py", b"open('run', 'w')")
    world.put("config.json", b.dense_config() | {"auto_map": {"AutoModel": "evil.Evil"}})
    world.check()
    assert not any(path.endswith(".py") for path in world.asked)
    assert "evil" not in sys.modules


@fault("A14", "a pickle: .pt of the old format, with a call in it", "SRC121")
def test_a14_pickle(world: World) -> None:
    """Never unpickled: it is said to be not readable safely."""
    import pickle

    class Evil:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {world.folder}/here/run",)

    world.drop("model.safetensors")
    world.put("weights.pt", pickle.dumps({"w": Evil()}, protocol=2))
    assert world.one("SRC121", world.read()).level == "unknown"
    assert not (world.folder / "here" / "run").exists()


@fault("A15", "an entry planted in our cache, a folder that others may enter", "")
def test_a15_planted_cache(world: World) -> None:
    """The folder is ours alone; an entry of another user, or of another key, is as if it were not there."""
    assert world.check().verdict == "pass"
    folder = world.folder / "cache"
    assert (folder.stat().st_mode & 0o777) == 0o700
    assert all((p.stat().st_mode & 0o077) == 0 for p in folder.rglob("*") if p.suffix != ".lock")
    kept = [p for p in folder.rglob("*") if p.is_file() and p.suffix != ".lock"]
    if os.getuid() == 0:
        for path in kept:
            os.chown(path, 12345, 12345)
        world.server.reset()
        assert world.check().verdict == "pass"
        assert world.server.requests > 6


@fault("A15b", "a link in place of a folder of our cache", "")
def test_a15_linked_shelf(world: World) -> None:
    """Nothing is written through it."""
    elsewhere = world.folder / "root" / "elsewhere"
    elsewhere.mkdir()
    (world.folder / "cache").mkdir()
    for n in range(256):
        (world.folder / "cache" / f"{n:02x}").symlink_to(elsewhere)
    assert world.check().verdict == "pass"
    assert [p for p in elsewhere.iterdir() if p.suffix != ".lock"] == []


@fault("A16", "a token, and a server that repeats it", "")
@pytest.mark.parametrize("how", ["header", "body", "request id", "reason", "redirect"])
def test_a16_token_is_never_shown(world: World, how: str) -> None:
    """It goes to the endpoint's origin alone, and no message shows it."""
    tell = f"you sent Bearer {TOKEN}"
    answers: dict[str, Any] = {
        "header": s.says(403, "", tell), "body": {"answer": lambda r: s.as_json({"error": tell}, {}, 403)},
        "request id": s.says(500, "", X_Request_Id=TOKEN), "reason": s.with_headers(Content_Encoding=TOKEN),
        "redirect": s.redirects(f"ftp://{TOKEN}@x/"),
    }  # fmt: skip
    world.server.tokens.add(TOKEN)
    world.server.rule(what=answers[how])
    found = world.fails(token=TOKEN)
    assert TOKEN not in repr(found)


@fault("A16b", "a token that no header can hold, a password in the endpoint's address", "SRC107")
@pytest.mark.parametrize("token", [f"{TOKEN}\nX-Evil: 1", f"{TOKEN}é", f"{TOKEN} x"])
def test_a16_odd_token(world: World, token: str) -> None:
    """Refused before it is sent; neither token nor password is shown."""
    found = world.fails(token=token)
    assert "token" in found.observed
    assert world.server.requests == 0
    hub = Hub("live", endpoint=world.server.hub.replace("//", f"//user:{TOKEN}@"), limits=FAST, cache=Cache(None))
    world.server.rule(what=s.says(500))
    assert TOKEN not in repr(world.fails(hub=hub))


@fault("A17", "names of tensors that write to the terminal", "TEN402")
def test_a17_terminal(world: World) -> None:
    """Control, direction and escape characters are written out, and names are cut."""
    evil = {f"a\x1b]0;owned\x07{n}\u202e" + "x" * 5000: ("BF16", (1,)) for n in range(3)}
    world.put("model.safetensors", b.safetensors(b.dense() | evil))
    text = report_text(world.check(), level="pass")
    assert "owned" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", text)
    assert max(map(len, text.splitlines())) < 3000


# --- beyond -------------------------------------------------------------------------------------------------------


@fault("X01", "a name server that never answers", "SRC107")
def test_x01_slow_dns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The read ends at its deadline all the same."""

    def slow(*_: Any, **__: Any) -> Any:
        time.sleep(FAST.total + 0.7)
        raise socket.gaierror(-3, "try again")

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    began = time.monotonic()
    world.fails(endpoint="http://slow.example")
    assert time.monotonic() - began < FAST.total + SLACK


@fault("X02", "redirects and errors with bodies that do not end", "SRC105|SRC107")
@pytest.mark.parametrize("status", [302, 500])
def test_x02_endless_bodies(world: World, status: int) -> None:
    """A few kB of an error are read, and nothing of a redirect that does not tell its length."""

    def parts() -> Iterator[bytes]:
        yield f"HTTP/1.1 {status} X\r\nLocation: /again\r\n\r\n".encode()
        yield from (bytes(1 << 16) for _ in range(2000))

    world.server.rule(what={"answer": lambda request: s.Reply(status, raw=parts())})
    hub = world.hub()
    found = world.open(hub=hub)
    assert isinstance(found, Finding)
    assert hub.moved.bytes < 2 << 20


@fault("X03", "a Content-Length that lies, more bytes than were asked for", "SRC107")
@pytest.mark.parametrize("length", ["1", "14001", "-1", "x"])
def test_x03_content_length(world: World, length: str) -> None:
    """No byte beyond the range is taken; an answer that contradicts itself is refused."""
    world.server.rule(side="cdn", what=s.with_headers(Content_Length=length))
    found = world.fails()
    assert "Traceback" not in found.observed


@fault("X04", "a commit that is none: a path, two commits, upper case", "SRC107")
@pytest.mark.parametrize("commit", ["../../etc", "0" * 39, "A" * 40, f"{COMMIT}, {COMMIT}", ""])
def test_x04_commits(world: World, commit: str) -> None:
    """An answer without a commit is not of a Hub, and no verdict comes of it."""
    world.server.rule(what=s.with_headers(X_Repo_Commit=commit))
    world.fails()


def listing(world: World, siblings: Any, **more: Any) -> None:
    """Answer each question for the target's file list with this one."""
    data = {"sha": world.commits[TARGET], "siblings": siblings, **more}
    world.server.rule("/api/models/*", what={"answer": lambda request: s.as_json(data)})


@fault("X05", "a file list with paths, NULs, names of 10 MB, no names at all", "")
def test_x05_names_in_a_listing(world: World) -> None:
    """They are left out; nothing of them is asked for, or becomes a path."""
    evil = [
        "../x.safetensors",
        "a/b.safetensors",
        "a\0.safetensors",
        "x" * 10_000_000 + ".safetensors",
        "..",
        "",
        "C:x.bin",
    ]
    true = [{"rfilename": p.name, "size": p.stat().st_size} for p in sorted(world.target.iterdir())]
    listing(world, [*true, *({"rfilename": n, "size": 1} for n in evil), {"rfilename": 7}, None, [], {"size": "x"}])
    assert world.check(limits=replace(FAST, total=5.0)).verdict == "pass"
    assert not any(".." in path or "C:" in path or len(path) > 400 for path in world.asked)


@fault("X06", "a file list of ten million files", "SRC107")
@pytest.mark.parametrize("row", [b"{},", b"[],"])
def test_x06_endless_listing(world: World, row: bytes) -> None:
    """Refused by count, before it becomes objects: memory stays near the size of the answer."""
    text = gzip.compress(b'{"sha": "' + COMMIT.encode() + b'", "siblings": [' + row * 10_000_000 + b"{}]}", 1)
    headers = {"Content-Encoding": "gzip"}
    world.server.rule(f"/api/models/{TARGET}*", what={"answer": lambda request: s.Reply(200, headers, text)})
    codes, memory, seconds = grown(world, TARGET, "target")
    assert codes == {"SRC107"}
    assert memory < 250
    assert seconds < 5.5


@fault("X07", "a list that gives a file the digest, or the size, of another", "SRC107")
@pytest.mark.parametrize("what", ["digest", "size"])
def test_x07_poisoned_list(world: World, what: str) -> None:
    """What comes is held to the list: no header is kept under a digest that is not its own."""
    victim = world.server.told(world.drafter / "model.safetensors")[0]
    rows = [
        {"rfilename": p.name, "size": p.stat().st_size + (p.suffix == ".safetensors" and what == "size")}
        | ({"lfs": {"sha256": victim}} if p.suffix == ".safetensors" and what == "digest" else {})
        for p in sorted(world.target.iterdir())
    ]
    listing(world, rows)
    report = world.check()
    assert report.verdict == "unknown"
    assert "its list says" in repr(report.findings)
    world.server.rules.clear()
    assert world.check(drafter=f"{DRAFTER}@{world.commits[DRAFTER]}", target=None).findings is not None
    assert {n: (t.dtype, t.shape) for n, t in world_table(world).items()} == b.dense()


def world_table(world: World) -> Any:
    world.read()
    return world.table.tensors


@fault("X08", "the length of a header changes between two reads", "SRC107")
def test_x08_header_changes(world: World) -> None:
    """The file is of another size then, or of another etag: refused, never put together of two."""
    world.put("model.safetensors", padded(world, FIRST + 8000))
    other = padded(world, FIRST + 9000)
    world.server.rule(side="cdn", skip=1, what=s.body(other))
    found = world.read()
    assert "changed while it was read" in repr(found)


@fault("X09", "an error whose body is deep, long, or no text", "SRC105")
@pytest.mark.parametrize(
    "raw", [b"[" * 4096, b'{"error": ' * 400, b"\xff" * 9000, b'{"error": 7}', b'{"error": "' + b"x" * 9000]
)
def test_x09_error_bodies(world: World, raw: bytes) -> None:
    """Its first 4 kB are looked at; what is no message is none."""
    world.server.rule(what={"answer": lambda request: s.Reply(500, {}, raw)})
    assert world.fails().code == "SRC105"


@fault("X10", "a machine that gives no more threads", "SRC107")
def test_x10_no_threads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said; nothing waits for a read that never began."""
    import threading

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    began = time.monotonic()
    found = world.fails()
    assert "no thread" in found.observed
    assert time.monotonic() - began < FAST.total


@fault("X11", "another process holds the lock of a read, and hangs", "")
def test_x11_held_lock(world: World) -> None:
    """It is waited for half of the time that the read has; then the read goes on without the lock."""
    other = Cache(world.cache.folder)
    parts = ("open", world.server.hub, DRAFTER, "main")
    with other.lock(*parts):
        began = time.monotonic()
        opened = world.open(limits=FAST)
        assert time.monotonic() - began < FAST.total + SLACK
        assert isinstance(opened, Source)
        assert len(Checkpoint(opened, "drafter").table().tensors) == len(b.dense())


@fault("X12", "headers of all shards from one answer of a hostile endpoint", "")
@pytest.mark.parametrize("data", [
    b'{"headers": {"%s": {"w": {"data_offsets": [0, 1e999]}}}}', b'{"headers": []}', b"[" * 100_000,
    b'{"headers": {"%s": 7}}',
    b'{"headers": {"../x": {}}}', b"",
])  # fmt: skip
def test_x12_one_answer_for_all(world: World, data: bytes) -> None:
    """What does not prove itself is not used: each header is then read from its file."""
    folder = b.write(world.folder / "root" / "org" / "wide", b.target_config(), b.target(), shards=9)
    world.again("org/wide")
    name = sorted(p.name for p in folder.glob("*.safetensors"))[0].encode()
    world.server.rule(
        "*/safetensors-metadata/*", what={"answer": lambda r: s.Reply(200, {}, data.replace(b"%s", name))}
    )
    world.read("org/wide", role="target")
    assert {n: (t.dtype, t.shape) for n, t in world.table.tensors.items()} == b.target()


def test_errors_of_a_transport_say_what_they_are() -> None:
    one = Transport("http://127.0.0.1:9", lambda: None, limits=FAST)
    with pytest.raises(NetError) as failed:
        one.get("http://127.0.0.1:9/x", 10, one.until())
    assert failed.value.kind == "unreachable"
