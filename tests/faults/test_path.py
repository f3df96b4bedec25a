"""The way to the bytes: what the Hub, its CDN, proxies, caches and the machine do wrong, row by row."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

import builder as b
from draftproof import transport
from draftproof.cache import Cache
from draftproof.checkpoint import Checkpoint
from draftproof.findings import Finding
from draftproof.hub import Source, open_model
from draftproof.library import Library
from draftproof.remote import Hub
from draftproof.render import as_json, finding_text, report_text
from draftproof.transport import Limits, Transport
from faults.world import FAST, SLACK, TOKEN, World, fault
from hub import server as s

DRAFTER, TARGET = b.DRAFTER, b.TARGET
COMMIT = "1234567890" * 4


def said(found: Finding) -> str:
    return f"{found.message} | {found.expected} | {found.observed} | {found.help} | {found.where}"


# --- who may read -------------------------------------------------------------------------------------------------


@fault("P01", "401 without a token: the repo is private, or is not there", "SRC101")
@pytest.mark.parametrize("origin", ["none", "given", "HF_TOKEN", "file", "switched off"])
def test_p01_private_or_missing(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, origin: str) -> None:
    """Both are said, whether a token was sent and where it is from, and where access is asked for."""
    token: Any = TOKEN if origin == "given" else None
    world.server.tokens.add(TOKEN)
    if origin in ("HF_TOKEN", "switched off"):
        monkeypatch.setenv("HF_TOKEN", TOKEN)
    if origin == "file":
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "token").write_text(TOKEN)
    if origin == "switched off":
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True)
    world.server.repos[DRAFTER].access = "private"
    found = world.fails(token=token)
    words = {
        "none": "no token was sent: none was found", "given": "a token was sent (given)",
        "HF_TOKEN": "a token was sent (from HF_TOKEN)", "file": "a token was sent (from the token file)",
        "switched off": "no token was sent: HF_HUB_DISABLE_IMPLICIT_TOKEN is set",
    }  # fmt: skip
    assert found.code == "SRC101"
    assert "private, or is not there" in said(found)
    assert words[origin] in said(found)
    assert f"{world.server.hub}/{DRAFTER}" in found.help
    assert all(seen.token == (TOKEN if "a token" in words[origin] else "") for seen in world.server.log)
    missing = world.fails("org/absent", token=token)
    assert replace(missing, subject="", help="", observed="") == replace(found, subject="", help="", observed="")
    assert world.server.requests <= 4


@fault("P02", "401 or 403 with GatedRepo", "SRC102")
@pytest.mark.parametrize("status", [401, 403])
def test_p02_gated_target(world: World, status: int) -> None:
    """The page where access is asked for is named; the drafter is judged, the fit is unknown."""
    world.server.tokens.add(TOKEN)
    world.server.rule(f"*{TARGET}*", what=s.says(status, "GatedRepo", "Access to this model is restricted."))
    report = world.check(token=TOKEN)
    found = world.one("SRC102")
    assert f"ask for access at {world.server.hub}/{TARGET}" in found.help
    assert "a token was sent (given)" in found.observed
    assert report.verdict == "unknown"
    holds = [
        f for one in report.sections for f in one.findings if f.level == "pass" and f.subject.startswith("drafter")
    ]
    assert {"TEN403", "DIM402"} <= {f.code for f in holds}
    assert not [f for f in report.findings if f.level == "error"]


@fault("P03", "401, the token is not valid", "SRC103")
def test_p03_bad_token(world: World) -> None:
    """It is said that the token was refused and where it is from; nothing is read without it behind one's back."""
    found = world.fails(token=TOKEN)
    assert found.code == "SRC103"
    assert "a token was sent (given)" in found.observed
    assert all(seen.token == TOKEN for seen in world.server.log)


@fault("P04", "403, the token has not the scope", "SRC103")
def test_p04_token_scope(world: World) -> None:
    """The server's words are shown, escaped, and without the token that they may repeat."""
    words = f"fine-grained tokens need \x1b[31mread access, yours is {TOKEN}".replace("\x1b", "")
    world.server.rule(what=s.says(403, "", words))
    found = world.fails(token=TOKEN)
    assert found.code == "SRC103"
    assert "read access, yours is ***" in found.observed


@fault("P05", "404 for model.safetensors and its index", "SRC120")
def test_p05_no_weights(world: World) -> None:
    """The repo is listed; what is there is said, and nothing is guessed."""
    world.drop("model.safetensors")
    world.put("README.md", b"# a drafter")
    found = world.read()
    assert world.one("SRC120", found).observed == "README.md, config.json"
    assert world.table.basis == "there are no weights"


@fault("P05b", "404 for model.safetensors, beside a pytorch_model.bin", "")
def test_p05_bin_instead(world: World) -> None:
    """The torch file is read by ranges, and never unpickled."""
    torch = pytest.importorskip("torch")
    world.drop("model.safetensors")
    kinds = {"BF16": torch.bfloat16, "I64": torch.int64, "BOOL": torch.bool}
    tensors = {n: torch.zeros(shape, dtype=kinds[dtype]) for n, (dtype, shape) in b.dense().items()}
    path = world.folder / "root" / DRAFTER / "pytorch_model.bin"
    torch.save(tensors, path)
    world.again()
    world.read()
    assert {n: (t.dtype, t.shape) for n, t in world.table.tensors.items()} == b.dense()
    moved = [seen for seen in world.server.log if seen.side == "cdn"]
    assert len(moved) <= 4
    assert sum(seen.sent for seen in moved) < path.stat().st_size


@fault("P06", "the repo has no such revision", "SRC109")
@pytest.mark.parametrize("revision", ["no-such-branch", COMMIT, "..", "."])
def test_p06_no_such_revision(world: World, revision: str) -> None:
    """The revision is named; a step in an address is none."""
    found = world.fails(f"{DRAFTER}@{revision}")
    assert found.code == "SRC109"
    assert found.subject.startswith(f"{DRAFTER}@{revision}")
    assert all("/resolve/" in path or "/api/models/org/" in path for path in world.asked)


# --- a server in trouble ------------------------------------------------------------------------------------------


@fault("P07", "429, with Retry-After in seconds, as a date, or RateLimit", "SRC104")
@pytest.mark.parametrize("form", ["seconds", "date", "ratelimit"])
def test_p07_rate_limit(world: World, form: str) -> None:
    """It waits as long as it is asked to, within its deadline; then it says when requests are free again."""

    def headers(seconds: int) -> dict[str, str]:
        at = format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)
        rate = f'"resolvers";r=0;t={seconds}'
        return {
            "seconds": {"Retry_After": str(seconds)},
            "date": {"Retry_After": at},
            "ratelimit": {"RateLimit": rate},
        }[form]

    world.server.rule("*config.json", what=s.says(429, **headers(1)), times=1)
    began = time.monotonic()
    assert isinstance(world.open(limits=replace(FAST, total=5.0)), Source)
    assert form == "date" or time.monotonic() - began >= 0.9
    world.server.rules = [s.Rule("*config.json", **s.says(429, **headers(500)))]
    began = time.monotonic()
    found = world.fails()
    assert found.code == "SRC104"
    assert re.search(r"free again in (499|500) s", found.observed)
    assert time.monotonic() - began < 0.5, "a wait beyond the deadline is not begun"


@fault("P08", "408, 500, 502, 503, 504", "SRC105")
@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
def test_p08_server_errors(world: World, status: int) -> None:
    """Tried four times in all, with growing pauses; then the request's number is named. One failure costs nothing."""
    world.server.rule("*config.json", what=s.says(status, X_Request_Id="Root=1-abc", RateLimit="r=2999;t=300"))
    found = world.fails()
    assert found.code == "SRC105"
    assert "request Root=1-abc" in found.observed
    assert f"HTTP {status}" in found.observed
    assert sum(path.endswith("/resolve/main/config.json") for path in world.asked) == transport.TRIES
    world.server.rules = [s.Rule("*config.json", times=1, **s.says(status, RateLimit="r=2999;t=300"))]
    assert isinstance(world.open(), Source)


@fault("P09", "no such host, connection refused, no TLS, a proxy that is not there", "SRC107")
@pytest.mark.parametrize("what", ["refused", "dns", "tls", "proxy"])
def test_p09_no_connection(world: World, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """One line with the cause, no traceback, within the deadline."""
    from huggingface_hub.utils import close_session

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    endpoint = {
        "refused": f"http://127.0.0.1:{port}", "dns": "http://no-such-host.invalid",
        "tls": world.server.hub.replace("http:", "https:"), "proxy": "http://example.invalid",
    }[what]  # fmt: skip
    if what == "proxy":
        monkeypatch.setenv("HTTP_PROXY", f"http://user:{TOKEN}@127.0.0.1:{port}")
        close_session()
    began = time.monotonic()
    found = world.fails(endpoint=endpoint)
    if what == "proxy":
        monkeypatch.delenv("HTTP_PROXY")
        close_session()
    assert found.code == "SRC107"
    assert "\n" not in found.observed
    assert "Error: " in found.observed or "in time" in found.observed or "before the deadline" in found.observed
    assert time.monotonic() - began < FAST.total + SLACK
    assert world.server.requests == 0


@fault("P10", "silence, one byte a second, in the body or in the headers", "SRC107")
@pytest.mark.parametrize("where", ["connect", "silence", "body", "headers", "cdn"])
def test_p10_timeouts(world: World, where: str) -> None:
    """Each wait for bytes has a limit, and each read a deadline, whatever trickles in."""

    def drip(first: bytes) -> Any:
        def parts() -> Any:
            yield first
            yield from [b"x"] * 30

        return {"answer": lambda request: s.Reply(200, raw=parts(), pace=0.05)}

    endpoint = ""
    held: list[socket.socket] = []
    if where == "connect":  # a listener whose queue is full answers nothing
        held = [socket.socket() for _ in range(3)]
        held[0].bind(("127.0.0.1", 0))
        held[0].listen(0)
        endpoint = f"http://127.0.0.1:{held[0].getsockname()[1]}"
        for one in held[1:]:
            one.setblocking(False)
            one.connect_ex(held[0].getsockname())
    head = b"HTTP/1.1 200 OK\r\nX-Repo-Commit: " + COMMIT.encode() + b"\r\nContent-Length: 400\r\n"
    size = (world.drafter / "model.safetensors").stat().st_size
    part = b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-13999/%d\r\nContent-Length: 14000\r\n" % size
    faults: dict[str, Any] = {
        "silence": s.sent(hang=3600.0), "body": drip(head + b"\r\n"), "headers": drip(head + b"X-More: "),
        "cdn": drip(part + b"\r\n"),
    }  # fmt: skip
    if where in faults:
        world.server.rule(side="cdn" if where == "cdn" else "hub", what=faults[where])
    began = time.monotonic()
    found = world.fails(endpoint=endpoint)
    assert found.code == "SRC107"
    assert time.monotonic() - began < FAST.total + SLACK
    assert re.search(r"in time|deadline", found.observed)
    for one in held:
        one.close()


@fault("P10b", "a request without a timeout", "")
def test_p10_every_request_has_a_timeout(world: World) -> None:
    """There is one place that sends; each request of a whole check has a timeout of at most its step."""
    from huggingface_hub.utils import get_session

    seen: list[Any] = []

    class Watched:
        def stream(self, *args: Any, **more: Any) -> Any:
            seen.append(more.get("timeout"))
            return get_session().stream(*args, **more)

    hub = Hub("live", endpoint=world.server.hub, limits=FAST, cache=world.cache, session=Watched, token=False)
    assert world.check(hub).verdict == "pass"
    assert len(seen) == world.server.requests
    assert all(isinstance(timeout, float) and 0 < timeout <= FAST.step for timeout in seen)
    source = Path(transport.__file__).parent
    sends = [p.name for p in source.glob("*.py") if re.search(r"\.(stream|request|urlopen|send)\(", p.read_text())]
    assert sends == ["transport.py"]
    assert len(re.findall(r"\.stream\(", Path(transport.__file__).read_text())) == 1


@fault("P11", "the connection is cut in the middle of a body", "SRC107")
@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("how", ["halved", "dropped", "short"])
def test_p11_cut(world: World, file: str, how: str) -> None:
    """Tried again; a body that stays short is no file of the repo, and no verdict comes of it."""

    def short(request: s.Request, reply: s.Reply) -> s.Reply:  # without Content-Length: the end is where it is cut
        raw = s._part(reply, 0, 300)
        head = {**reply.headers, "Connection": "close"}
        lines = "".join(f"{k}: {v}\r\n" for k, v in head.items() if k not in ("Transfer-Encoding", "Content-Encoding"))
        return replace(reply, raw=[f"HTTP/1.1 {reply.status} OK\r\n{lines}\r\n".encode("latin-1"), raw])

    world.server.gzip = how == "dropped"
    faults: dict[str, Any] = {"halved": s.halved(), "dropped": s.sent(drop=True), "short": {"after": short}}
    match = "/api/resolve-cache/*config.json" if file == "config.json" else f"*{DRAFTER}/{file}"
    side = "cdn" if file != "config.json" else "hub"
    world.server.rule(match, side=side, times=1, what=faults[how])
    assert world.check().verdict == "pass"
    world.cache = Cache(world.folder / "cache" / "two")
    world.server.rules = [s.Rule(match, side=side, **faults[how])]
    report = world.check()
    assert report.verdict == "unknown"
    assert "SRC107" in {f.code for f in report.findings if f.level == "unknown"}


@fault("P12", "200 and the whole file, where a range was asked for", "SRC108")
def test_p12_range_ignored(world: World) -> None:
    """It is streamed and cut: of 64 MB little is moved. It is noted, and breaks nothing."""
    with open(world.drafter / "model.safetensors", "r+b") as file:  # a tensor of 64 MB, as a hole
        head = json.loads(
            file.read()[8 : 8 + int.from_bytes((world.drafter / "model.safetensors").read_bytes()[:8], "little")]
        )
    last = max(row["data_offsets"][1] for name, row in head.items() if name != "__metadata__")
    head["blob"] = {"dtype": "U8", "shape": [64 << 20], "data_offsets": [last, last + (64 << 20)]}
    text = json.dumps(head).encode()
    path = world.drafter / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + last + (64 << 20))
    world.again()
    world.server.rule(side="cdn", what=s.ignores_range())
    hub = world.hub()
    found = world.read(hub=hub)
    assert world.one("SRC108", found).level == "info"
    assert [f.code for f in found if f.level in ("error", "unknown")] == []
    assert len(world.table.tensors) == len(b.dense()) + 1
    assert hub.moved.bytes < 1 << 20
    time.sleep(0.1)
    assert world.server.bytes < 16 << 20, "what stands in the buffers of the sockets"


@fault("P13", "206 with another range, none, another size or another etag than before", "SRC107")
@pytest.mark.parametrize("how", ["another", "none", "bad", "size", "more", "etag"])
def test_p13_wrong_range(world: World, how: str) -> None:
    """Refused, and begun again once; then it is said that the server is at fault, not the repo."""
    faults: dict[str, Any] = {
        "another": s.another_range(), "none": s.with_headers(Content_Range=None),
        "bad": s.with_headers(Content_Range="bytes 0-/*"), "size": s.with_headers(Content_Range="bytes 0-13999/14001"),
        "more": s.with_headers(Content_Range="bytes 0-99/100"),
    }  # fmt: skip
    if how == "etag":  # the header ends in a second read, whose address had to be resolved again
        padded = world.drafter / "model.safetensors"
        raw = padded.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        padded.write_bytes((size + 20_000).to_bytes(8, "little") + raw[8 : 8 + size] + b" " * 20_000 + raw[8 + size :])
        world.again()
        turn = iter(range(10))

        def expired(request: s.Request) -> s.Reply:
            return s.error(403) if next(turn) % 2 else world.server.answer(request)

        world.server.rule(side="cdn", what={"answer": expired})
        world.server.rule("*/resolve/*model.safetensors", skip=1, what=s.with_headers(X_Linked_ETag='"other"'))
    else:
        world.server.rule(side="cdn", what=faults[how])
    found = world.read()
    assert [f.code for f in found if f.level in ("error", "unknown")] == ["SRC107"]
    assert len([seen for seen in world.server.log if seen.side == "cdn"]) <= 5


# --- redirects ----------------------------------------------------------------------------------------------------


@fault("P14", "302 to a CDN on another host", "")
def test_p14_redirect_to_the_cdn(world: World) -> None:
    """Followed with the range, without the token; on the way back to the endpoint there is no token either."""
    world.server.tokens.add(TOKEN)
    assert isinstance(world.open(token=TOKEN), Source)
    hub, cdn = ([seen for seen in world.server.log if seen.side == side] for side in ("hub", "cdn"))
    assert all(seen.token == TOKEN for seen in hub)
    assert [seen.range for seen in cdn] == ["bytes=0-13999"]
    assert not any("authorization" in seen.headers or "cookie" in seen.headers for seen in cdn)
    world.server.reset()
    world.server.rule(side="cdn", what=s.redirects(f"{world.server.hub}/api/models/secret/steered"))
    world.cache = Cache(world.folder / "cache" / "two")
    found = world.open(token=TOKEN)
    steered = [seen for seen in world.server.log if seen.path.endswith("/steered")]
    assert steered
    assert all(seen.token == "" for seen in steered)
    assert isinstance(found, Finding)


@fault("P15", "a loop of redirects; to http, to another scheme, into a private network", "SRC107")
@pytest.mark.parametrize(
    "to", ["", "ftp://127.0.0.1/x", "file:///etc/passwd", "http://169.254.169.254/latest/meta-data", "//[", "http://"]
)
def test_p15_redirects_are_bounded(world: World, to: str) -> None:
    """At most five hops, http or https alone, never to an address of the link."""
    world.server.rule("*config.json", what=s.redirects(to))
    found = world.fails()
    assert found.code == "SRC107"
    assert "redirect" in found.observed
    assert sum("config.json" in path for path in world.asked) <= transport.HOPS + 1


@fault("P15b", "a redirect from https to http, or nearer than the endpoint is", "")
@pytest.mark.parametrize(
    ("endpoint", "to", "goes"),
    [
        ("https://hub.example", "https://cdn.example/x", True),
        ("https://hub.example", "http://cdn.example/x", False),
        ("https://hub.example", "https://127.0.0.1/x", False),
        ("https://hub.example", "https://2130706433/x", False),
        ("https://hub.example", "https://0x7f.1/x", False),
        ("https://hub.example", "https://[::ffff:10.0.0.1]/x", False),
        ("https://hub.example", "https://localhost./x", False),
        ("https://hub.example", "https://①②⑦.0.0.1/x", False),
        ("https://hub.example", "https://metadata.google.internal/x", False),
        ("https://hub.example", "https://0.0.0.0/x", False),
        ("http://10.0.0.1", "http://10.0.0.2/x", True),
        ("http://10.0.0.1", "http://127.0.0.1/x", False),
        ("http://10.0.0.1", "http://[fe80::1]/x", False),
        ("http://127.0.0.1:1", "http://127.0.0.1:2/x", True),
        ("http://127.0.0.1:1", "http://169.254.169.254/x", False),
    ],
)  # fmt: skip
def test_p15_where_a_redirect_may_lead(world: World, endpoint: str, to: str, goes: bool) -> None:
    """Refused by the words of the address, in every spelling of it, before a socket is opened."""
    one = Transport(endpoint, lambda: None)
    if goes:
        assert one._next(f"{endpoint}/a", to) == to
    else:
        with pytest.raises(transport.NetError) as refused:
            one._next(f"{endpoint}/a", to)
        assert refused.value.kind == "refused"


@fault("P16", "a captive portal: 200 and a web page", "SRC107")
@pytest.mark.parametrize("side", ["hub", "cdn"])
@pytest.mark.parametrize("honest", [True, False], ids=["as HTML", "as bytes"])
def test_p16_captive_portal(world: World, side: str, honest: bool) -> None:
    """The network is named, not the repo: what came is not the file that the Hub tells of."""
    kind = "text/html" if honest else "application/octet-stream"
    text = b"<html><body>Log in</body></html>"
    world.server.rule(side=side, what={"answer": lambda request: s.Reply(200, {"Content-Type": kind}, text)})
    found = world.fails()
    assert found.code == "SRC107"
    assert not honest or "HTML" in found.observed


@fault("P17", "a ranged answer that is compressed", "SRC107")
@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip"])
def test_p17_compressed_range(world: World, encoding: str) -> None:
    """Plain bytes are asked for with every range; others are refused."""
    world.server.rule(side="cdn", what=s.with_headers(Content_Encoding=encoding))
    found = world.fails()
    assert found.code == "SRC107"
    assert encoding in found.observed
    assert {seen.headers["accept-encoding"] for seen in world.server.log if seen.range} == {"identity"}


@fault("P18", "the branch moves between two requests", "")
def test_p18_branch_moves(world: World) -> None:
    """Everything is read at one commit: all again where the first two answers differ, by commit from then on."""
    old = world.commits[TARGET]
    other = b.write(
        world.folder / "root" / "moved" / "target", b.target_config(hidden_size=128), b.target(hidden=128), shards=3
    )

    def move() -> None:
        world.server.add(TARGET, other)

    world.server.rule("/api/models/*", times=1, what=s.calls(move))
    opened = world.open(TARGET, role="target")
    assert isinstance(opened, Source)
    new = world.server.repos[TARGET].refs["main"]
    assert opened.revision in (old, new)
    checkpoint = Checkpoint(opened, "target")
    width = checkpoint.config.data["hidden_size"]
    assert {t.shape[-1] for t in checkpoint.table().tensors.values()} >= {width}
    assert width == {old: 64, new: 128}[str(opened.revision)]
    later = [path for path in world.asked if "/resolve/" in path and "/main/" not in path]
    assert later
    assert all(f"/resolve/{opened.revision}/" in path for path in later)


@fault("P18b", "the server answers for another commit than was asked for", "SRC107")
def test_p18_pinned_commit(world: World) -> None:
    """A pin is a pin: the answer is refused, and no verdict comes of it."""
    world.server.rule(what=s.with_headers(X_Repo_Commit=COMMIT))
    found = world.fails(f"{DRAFTER}@{world.commits[DRAFTER]}")
    assert found.code == "SRC107"
    assert COMMIT[:7] in found.observed


# --- offline and caches -------------------------------------------------------------------------------------------


@fault("P19", "offline, with a snapshot in the Hub's cache, or with what was read before", "")
@pytest.mark.parametrize("switch", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "mode"])
@pytest.mark.parametrize("kept", ["ours", "snapshot"])
def test_p19_offline_cached(
    world: World, monkeypatch: pytest.MonkeyPatch, no_socket: Callable[[], None], switch: str, kept: str
) -> None:
    """It is read from there, and no socket is opened."""
    if kept == "ours":
        assert world.check().verdict == "pass"
    else:
        for repo in (DRAFTER, TARGET):
            world.snapshot(repo)
    world.server.reset()
    no_socket()
    if switch != "mode":
        monkeypatch.setenv(switch, "1")
    report = world.check(world.hub("offline" if switch == "mode" else "auto"))
    assert report.verdict == "pass"
    assert world.server.connections == 0


@fault("P20", "offline, and not at hand", "SRC106")
def test_p20_offline_not_cached(world: World, no_socket: Callable[[], None]) -> None:
    """It is said, with the command that fetches what is needed; no socket is opened."""
    no_socket()
    found = world.fails(hub=world.hub("offline"))
    assert found.code == "SRC106"
    assert f"hf download {DRAFTER} --include 'config.json' '*.safetensors'" in found.help
    assert world.server.connections == 0


@fault("P21", "the cache cannot be written, or the disk is full", "")
@pytest.mark.parametrize("how", ["a file in its place", "full", "broken link"])
def test_p21_cache_cannot_be_written(world: World, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """The check goes on without it; no half entry is left."""
    folder = world.folder / "cache" / "no"
    folder.parent.mkdir()
    if how == "a file in its place":
        folder.write_bytes(b"")
    elif how == "broken link":
        folder.symlink_to(world.folder / "cache" / "nowhere" / "at" / "all")
    else:
        import draftproof.cache as module

        def full(*_: object, **__: object) -> Any:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(module.os, "replace", full)
    world.cache = Cache(folder)
    assert world.check().verdict == "pass"
    assert not [p for p in (world.folder / "cache").rglob("*") if p.is_file() and p.suffix != ".lock" and p != folder]


@fault("P21b", "a disk on which no file may grow", "")
def test_p21_no_byte_can_be_written(world: World) -> None:
    """In a process that may write no byte the verdict is the same."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "from draftproof.remote import Hub\nfrom draftproof.cache import Cache\nfrom pathlib import Path\n"
        "from draftproof.hub import open_model, Source\n"
        f"s = open_model({DRAFTER!r}, (), remote=Hub('live', cache=Cache(Path({str(world.folder / 'cache')!r}))))\n"
        "sys.exit(0 if isinstance(s, Source) else 3)"
    )
    words = [sys.executable, "-c", code]
    out = subprocess.run(words, check=False, env=env(world), capture_output=True, text=True, timeout=30)
    assert out.returncode == 0, out.stderr
    assert not [p for p in (world.folder / "cache").rglob("*") if p.is_file() and p.stat().st_size]


@fault("P21c", "two processes ask for the same at once", "")
def test_p21_two_processes(world: World) -> None:
    """They fetch it once, and both read it whole."""
    code = (
        "import sys\nfrom draftproof.remote import Hub\nfrom draftproof.checkpoint import Checkpoint\n"
        f"from draftproof.hub import open_model\ns = open_model({DRAFTER!r}, (), remote=Hub('live'))\n"
        "print(len(Checkpoint(s, 'drafter').table().tensors))"
    )
    world.server.net = s.Net(latency=0.05)
    run = [subprocess.Popen([sys.executable, "-c", code], env=env(world), stdout=subprocess.PIPE) for _ in range(2)]
    out = [one.communicate(timeout=30)[0] for one in run]
    assert out == [b"%d\n" % len(b.dense())] * 2
    cdn = [seen for seen in world.server.log if seen.side == "cdn"]
    assert len(cdn) == 1


@fault("P22", "an entry of the cache is damaged, cut, or stands under another's key", "")
@pytest.mark.parametrize("how", ["flipped", "cut", "swapped", "linked"])
def test_p22_damaged_cache(world: World, how: str) -> None:
    """It is as if it were not there: read again from the Hub, never believed."""
    assert world.check().verdict == "pass"
    entries = sorted(p for p in (world.folder / "cache").rglob("*") if p.is_file() and p.suffix != ".lock")
    assert len(entries) > 4
    raws = [p.read_bytes() for p in entries]
    for i, path in enumerate(entries):
        path.unlink()
        if how == "flipped":
            path.write_bytes(raws[i][:-2] + bytes([raws[i][-2] ^ 1]) + raws[i][-1:])
        elif how == "cut":
            path.write_bytes(raws[i][: len(raws[i]) // 2])
        elif how == "swapped":
            path.write_bytes(raws[i - 1])
        else:
            (world.folder / "root" / f"real-{i}").write_bytes(raws[i])
            path.symlink_to(world.folder / "root" / f"real-{i}")
    world.server.reset()
    assert world.check().verdict == "pass"
    assert world.server.requests > 6, "all was fetched again"


@fault("P22b", "a blob of the Hub's cache is damaged", "SRC107")
def test_p22_damaged_blob(world: World) -> None:
    """A small file whose digest is not its name's is no file of the repo: the cache is named, not the repo."""
    blob = (world.snapshot() / "config.json").resolve()
    blob.write_bytes(blob.read_bytes().replace(b"64", b"65", 1))
    found = world.read(f"{DRAFTER}@{world.commits[DRAFTER]}", hub=world.hub("offline"))
    assert world.one("SRC107", found).level == "unknown"
    assert "CFG302" not in {f.code for f in found}


@fault("P23", "a link of a snapshot leads out of the cache, nowhere, or in a circle", "SRC110")
@pytest.mark.parametrize("how", ["out", "up", "loop", "folder"])
def test_p23_links_stay_inside(world: World, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """It is not followed: another path could show any file of this machine."""
    commit = world.commits[DRAFTER]
    home = world.folder / "home" / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(home))
    folder = home / f"models--{DRAFTER.replace('/', '--')}" / "snapshots" / commit
    if how == "folder":
        folder.parent.mkdir(parents=True)
        folder.symlink_to(world.drafter)
    else:
        folder.mkdir(parents=True)
        secret = world.drafter / "config.json"
        link = folder / "config.json"
        to = {"out": str(secret), "up": os.path.relpath(secret, folder), "loop": "config.json"}[how]
        link.symlink_to(to)
    found = world.fails(f"{DRAFTER}@{commit}", hub=world.hub("offline"))
    assert found.code == "SRC110"
    assert "hidden_size" not in repr(found)


@fault("P23b", "a link of a snapshot leads nowhere", "SRC113")
def test_p23_dangling(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is named, and cannot be read; nothing is guessed of it."""
    commit = world.commits[DRAFTER]
    home = world.folder / "home" / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(home))
    repo = home / f"models--{DRAFTER.replace('/', '--')}"
    (repo / "snapshots" / commit).mkdir(parents=True)
    (repo / "snapshots" / commit / "config.json").symlink_to("../../blobs/gone")
    found = world.read(f"{DRAFTER}@{commit}", hub=world.hub("offline"))
    assert world.one("SRC113", found).subject == "config.json"


# --- what the repo says -------------------------------------------------------------------------------------------

SHARDS = [
    *("../x.safetensors", "/etc/x.safetensors", "C:\\x.safetensors", "\\\\host\\x.safetensors", "a\0.safetensors", ""),
    *("x/../model-00001-of-00003.safetensors", "%2e%2e/x.safetensors", "a" * 300 + ".safetensors", 7, None),
]


@fault(
    "P24",
    "an index names ../x, an absolute or a Windows path, a NUL, nothing, a number",
    "IDX304|IDX306|IDX307",
)
@pytest.mark.parametrize("name", SHARDS, ids=[repr(x)[:24] for x in SHARDS])
def test_p24_shard_names(world: World, name: Any) -> None:
    """Each is a finding, and is never asked for."""
    index = json.loads((world.target / "model.safetensors.index.json").read_text())
    index["weight_map"]["evil"] = name
    world.put("model.safetensors.index.json", index, TARGET)
    found = world.read(TARGET, role="target")
    codes = {f.code for f in found if f.level == "error"}
    assert codes
    assert codes <= {"IDX304", "IDX306", "IDX307"}
    assert all(
        f"/{TARGET}/" in path or path == f"/api/models/{TARGET}/revision/main" or path.startswith("/repos/")
        for path in world.asked
    )
    assert not any(".." in path or "passwd" in path or path.endswith("/x.safetensors") for path in world.asked)


@fault("P25", "an index that is no JSON, has a key twice, no weight_map, or another kind of one", "IDX306")
@pytest.mark.parametrize(
    "text", [b"{", b"[]", b"{}", b'{"weight_map": []}', b'{"weight_map": {"a": "m.safetensors", "a": "n.safetensors"}}',
             b"\xff\xfe", b"[" * 100_000]
)  # fmt: skip
def test_p25_bad_index(world: World, text: bytes) -> None:
    """The index is named, from the bytes that the Hub vouches for."""
    world.put("model.safetensors.index.json", text, TARGET)
    found = world.read(TARGET, role="target")
    assert world.one("IDX306", found).level == "error"


@fault("P25b", "an index beyond 256 MB", "IDX306")
def test_p25_huge_index(world: World) -> None:
    """It is refused by its size, before a byte of it is read."""
    path = world.target / "model.safetensors.index.json"
    path.write_bytes(b"{")
    os.truncate(path, (256 << 20) + 1)
    world.server.told = lambda p, told=world.server.told: (  # type: ignore[method-assign, misc]
        ("0" * 64, True) if p == path else told(p)
    )
    world.server._blobs["0" * 64] = path
    world.again(TARGET)
    hub = world.hub()
    found = world.read(TARGET, role="target", hub=hub)
    assert world.one("IDX306", found).level == "error"
    assert hub.moved.bytes < 100_000


@fault(
    "P26",
    "index and shards disagree: a tensor that is not there, one too many, in two shards, a shard missing",
    "IDX301|IDX302|IDX303|IDX304",
)
@pytest.mark.parametrize("code", ["IDX301", "IDX302", "IDX303", "IDX304"])
def test_p26_index_against_shards(world: World, code: str) -> None:
    """All are listed, as of a local folder: the contract of the container is broken."""
    path = world.target / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    names = sorted(index["weight_map"])
    first = index["weight_map"][names[0]]
    if code == "IDX301":
        index["weight_map"] |= {"absent.one": first, "absent.two": first}
    elif code == "IDX302":
        del index["weight_map"][names[0]]
    elif code == "IDX303":
        table = b.target()
        other = next(x for x in set(index["weight_map"].values()) if x != first)
        rows = [n for n, file in index["weight_map"].items() if file == other]
        (world.target / other).write_bytes(b.safetensors({n: table[n] for n in [*rows, names[0]]}))
    else:
        (world.target / first).unlink()
    path.write_text(json.dumps(index))
    world.again(TARGET)
    found = world.read(TARGET, role="target")
    assert code in {f.code for f in found if f.level == "error"}


CONFIGS: list[tuple[bytes, str]] = [
    (b"{", "CFG302"), (b'{"hidden_size": NaN}', "CFG306"), (b"[]", "CFG303"), (b'{"a": 1, "a": 2}', "CFG302"),
    (b"[" * 5000, "CFG311"), (b'{"hidden_size": 1e999}', "CFG306"), (b"", "CFG302"),
]  # fmt: skip
VALUES: list[tuple[Any, str]] = [
    ("64", "CFG304"), (64.5, "CFG304"), (True, "CFG304"), (-64, "CFG305"), (10**30, "CFG305"), ([64], "CFG304"),
]  # fmt: skip


@fault(
    "P27",
    "a config.json that is missing, no JSON, holds NaN, or keys of a wrong type",
    "CFG301|CFG302|CFG303|CFG304|CFG305|CFG306|CFG311",
)
@pytest.mark.parametrize("raw", [*CONFIGS, *VALUES, (None, "CFG301")], ids=lambda row: repr(row)[:30])
def test_p27_config(world: World, raw: tuple[Any, str]) -> None:
    """The finding names the key; nothing is converted in silence. It is proof: the bytes are those of the commit."""
    value, code = raw
    if value is None:
        world.drop("config.json")
    elif isinstance(value, bytes):
        world.put("config.json", value)
    else:
        world.put("config.json", b.dense_config() | {"hidden_size": value})
    report = world.check()
    found = [f for f in report.findings if f.code == code]
    assert found
    assert found[0].level == "error"
    assert report.verdict == "fail"


@fault("P28", "a .bin that is a bomb, calls for code, is of another format or cut", "SRC121")
@pytest.mark.parametrize("kind", ["os.system", "no data.pkl", "two data.pkl", "legacy", "bomb", "cut", "protocol 5"])
def test_p28_bin(world: World, kind: str) -> None:
    """The restricted reader refuses it: no code of a pickle is run, and few bytes are moved."""
    import io
    import pickle
    import zipfile

    class Evil:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {world.folder}/here/run",)

    def zipped(*entries: tuple[str, bytes]) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if kind == "bomb" else zipfile.ZIP_STORED) as file:
            for name, raw in entries:
                file.writestr(name, raw)
        return out.getvalue()

    good = pickle.dumps({}, protocol=2)
    raw = {
        "os.system": lambda: zipped(("archive/data.pkl", pickle.dumps(Evil(), protocol=2))),
        "no data.pkl": lambda: zipped(("archive/version", b"3\n")),
        "two data.pkl": lambda: zipped(("a/data.pkl", good), ("b/data.pkl", good)),
        "legacy": lambda: b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19." + pickle.dumps(Evil(), protocol=2),
        "bomb": lambda: zipped(("archive/data.pkl", bytes(64 << 20))),
        "cut": lambda: zipped(("archive/data.pkl", good))[:-30],
        "protocol 5": lambda: zipped(("archive/data.pkl", pickle.dumps({"w": bytearray(b"x")}, protocol=5))),
    }[kind]()
    world.drop("model.safetensors")
    world.put("pytorch_model.bin", raw)
    hub = world.hub()
    found = world.read(hub=hub)
    assert world.one("SRC121", found).level == "unknown"
    assert not (world.folder / "here" / "run").exists()
    assert hub.moved.bytes < 400_000


@fault("P29", "an LFS pointer stands where the file should", "STF202")
def test_p29_lfs_pointer(world: World) -> None:
    """It is named, with what to do; it is the repo that holds it."""
    world.put("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    found = world.one("STF202", world.read())
    assert "git lfs pull" in found.note
    assert found.level == "error"


# --- the machine --------------------------------------------------------------------------------------------------


def env(world: World) -> dict[str, str]:
    """Return the environment of a process of its own that reads the loopback Hub."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and not k.upper().endswith("_PROXY")}
    source = str(Path(transport.__file__).parents[1])
    return kept | {
        "HF_ENDPOINT": world.server.hub, "HF_HOME": str(world.folder / "home"), "PYTHONPATH": source,
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }  # fmt: skip


def _interrupted(run: subprocess.Popen[str]) -> str:
    """Send SIGINT, again where Python lost it in a finalizer; returns what was printed as an error."""
    for _ in range(3):
        run.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return run.communicate(timeout=5.0)[1]
    raise AssertionError("it goes on after three interrupts")


@fault("P30", "SIGINT in the middle of a read", "")
def test_p30_interrupt(world: World) -> None:
    """It ends at once, without a traceback, and leaves no half entry."""
    world.server.rule("*model.safetensors", what=s.sent(hang=3600.0))
    words = [
        sys.executable,
        "-c",
        "import sys; from draftproof.cli import run; sys.exit(run())",
        "check",
        "--drafter",
        DRAFTER,
        "--hub",
        "live",
    ]
    with subprocess.Popen(words, env=env(world), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            while not any(path.endswith("model.safetensors") for path in world.asked):
                time.sleep(0.01)
                assert run.poll() is None, run.stderr.read() if run.stderr else ""
            err = _interrupted(run)
        finally:
            run.kill()
    assert run.returncode == 130
    assert "Traceback" not in err
    assert not list((world.folder / "home").rglob(".new-*"))
    world.server.rules.clear()
    assert world.check().verdict == "pass"


@fault("P30b", "a fork after the client was made", "")
def test_p30_fork(world: World) -> None:
    """The child begins anew, with connections of its own; parent and child read the true bytes."""
    opened = world.open(TARGET, role="target")
    assert isinstance(opened, Source)
    while not all(file.settled for file in opened.reader.files.values()):
        time.sleep(0.01)  # the Hub's own client cannot be forked while it waits for an answer
    before = world.server.connections
    child = os.fork()
    if child == 0:
        try:
            read = Checkpoint(opened, "target").table().tensors
            os._exit(0 if len(read) == len(b.target()) else 3)
        except BaseException:
            os._exit(4)
    assert len(Checkpoint(opened, "target").table().tensors) == len(b.target())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert world.server.connections > before


@fault("P30c", "the clock goes backwards", "")
def test_p30_clock(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines are of a clock that only goes forwards; a Retry-After in the past is no wait."""
    clock = iter(range(10**9, 0, -10_000))
    monkeypatch.setattr(transport.time, "time", lambda: float(next(clock)))
    world.server.rule("*config.json", times=1, what=s.says(503, Retry_After="Mon, 01 Jan 1990 00:00:00 GMT"))
    began = time.monotonic()
    assert world.check().verdict == "pass"
    assert time.monotonic() - began < FAST.total


@fault("P31", "names with ANSI, XML and workflow commands in them, from the repo and from the server", "")
def test_p31_escaped(world: World) -> None:
    """Each output escapes them: no control character, no tag and no command comes through."""
    evil = "\x1b[31m]]><script>\n::error::owned\n%0A"
    world.put("model.safetensors", b.safetensors(b.dense() | {evil: ("BF16", (1,))}))
    world.put("odd\x1b[2J.safetensors", b.safetensors(b.dense()))
    report = world.check()
    assert any("x1b" in finding_text(f) for f in report.findings)
    for text in (report_text(report), as_json(report.to_dict())):
        assert "\x1b" not in text
        assert not any(line.startswith("::error::owned") for line in text.splitlines())
    world.server.rule(what={"answer": lambda r: s.error(500, "", "", {"X-Request-Id": "a\x1b[31m::error::b"})})
    world.cache = Cache(world.folder / "cache" / "two")
    assert "\x1b" not in finding_text(world.fails())


@fault(
    "P32",
    "a contract of 10 MB, deep, cyclic, that escapes its folder, or is of a later schema",
    "CON101|CON104|CON106|CON108|CON109|CON115",
)
@pytest.mark.parametrize(
    ("kind", "text", "code"),
    [
        ("pair", "#" * 10_000_000, "CON101"),
        ("pair", "a = " + "[" * 5000, "CON101"),
        ("pair", 'schema = 2\ntitle = "t"\ndrafter = { model = "a/b" }\ntarget = { model = "c/d" }\n', "CON109"),
        ("family", 'extends = "../../../etc/passwd"\n', "CON104"),
        ("family", 'extends = "x"\n', "CON108"),
        ("family", '[dims]\nn = { drafter = "n", default = "9**9**9**9" }\n', "CON106"),
        ("family", '[dims]\nn = { drafter = "n", default = "' + "9*" * 5000 + '9" }\n', "CON106"),
        ("family", '[dims]\nn = { drafter = "n", default = "m" }\nm = { drafter = "m", default = "n" }\n', "CON115"),
    ],
    ids=["10 MB", "deep", "schema 2", "escape", "itself", "tower", "long", "cycle"],
)
def test_p32_contracts(world: World, kind: str, text: str, code: str) -> None:
    """Each has its code and its line, in bounded time."""
    folder = world.folder / "root" / "contracts" / {"pair": "pairs", "family": "families"}[kind]
    folder.mkdir(parents=True)
    body = text if kind == "pair" else f'kind = "family"\nid = "x"\ntitle = "t"\nsource = "s"\n{text}'
    (folder / "x.toml").write_text(body)
    began = time.monotonic()
    contract, found = Library(folder.parent).get(kind, "x")
    assert contract is None
    assert code in {f.code for f in found}
    assert time.monotonic() - began < 2.0
    world.found += found


def test_limits_are_bounded() -> None:
    assert 0 < Limits().step <= 30
    assert 0 < Limits().total <= 120
    assert open_model("org/none", (), remote=None) is not None
