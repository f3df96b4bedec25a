"""A Hub on the loopback, as huggingface_hub asks it: two origins, redirects, ranges, faults, latency, exact counts.

    python tests/hub/server.py [ROOT] [--latency MS] [--wan]     serves ROOT/ORG/NAME, or a drafter and two targets

Of one repo it knows commits, branches and who may read it; a file of weights is given away by its own origin (the
CDN), any other by the Hub. A fault is a Rule: which requests it hits, how often, and what it makes of them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fnmatch
import gzip
import hashlib
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlencode

LARGE = 10 << 20  # bytes from which any file is given away by the CDN
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")
FLIGHT = 14_600  # bytes that a new connection sends before the first acknowledgement
REASONS = {200: "OK", 206: "Partial Content", 302: "Found", 307: "Temporary Redirect", 404: "Not Found"}


@dataclass
class Request:
    """Hold what a client asked; side is hub or cdn, headers have lower-case names."""

    side: str
    method: str
    path: str  # as sent, without the query
    query: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def authorized(self) -> str:
        """Return the token that was sent, or ""."""
        return self.headers.get("authorization", "").removeprefix("Bearer ")


@dataclass
class Reply:
    """Hold what is answered: a body, or a part of a file; and how it is sent."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    file: tuple[Path, int, int] | None = None  # path, start, length
    cut: int | None = None  # bytes of the body after which the connection is closed
    rate: int | None = None  # bytes a second
    hang: float = 0.0  # seconds of silence; the connection is then closed without an answer
    drop: bool = False  # the connection is closed at once
    raw: Iterable[bytes] | None = None  # sent as they are, in place of all that would be sent; then it is closed
    pace: float = 0.0  # seconds after each part of raw

    @property
    def length(self) -> int:
        """Return the bytes of the whole body."""
        return self.file[2] if self.file else len(self.body)


class Seen(NamedTuple):
    """Say of one request what was asked and what was sent."""

    side: str
    method: str
    path: str
    range: str
    status: int
    sent: int  # bytes of the body
    token: str
    connection: int
    headers: Mapping[str, str]


@dataclass
class Net:
    """Model a network: seconds for each request, more for a new connection, TCP's slow start, a shared link."""

    latency: float = 0.0
    connect: float = 0.0
    megabits: float = 0.0  # a second; 0: without bound
    slow_start: bool = False


LOOPBACK = Net()
DISTANT = Net(latency=0.040)
WAN = Net(latency=0.040, connect=0.080, megabits=100.0, slow_start=True)


@dataclass
class Repo:
    """Hold one repo: the folder of each commit, what its branches point at, and who may read it."""

    commits: dict[str, Path] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    access: str = "public"  # or gated, private
    readers: set[str] = field(default_factory=set)  # tokens that may read what is not public

    def commit(self, revision: str) -> str:
        """Return the commit of a branch, a tag or a commit, or ""."""
        return revision if revision in self.commits else self.refs.get(revision, "")


# --- faults -------------------------------------------------------------------------------------------------------


@dataclass
class Rule:
    """Change what happens to some requests: before they are answered, in place of the answer, or the answer itself."""

    match: str = "*"  # of the path; on the CDN, of the path of the file on this machine
    side: str = ""  # hub, cdn, or both
    method: str = ""
    times: int = -1  # how often; -1 is always
    skip: int = 0  # requests that pass before it begins
    before: Callable[[Request], None] | None = None
    answer: Callable[[Request], Reply] | None = None
    after: Callable[[Request, Reply], Reply] | None = None

    def hits(self, request: Request, path: str) -> bool:
        """Tell whether the rule applies to a request, and count it."""
        if self.times == 0 or self.side not in ("", request.side) or self.method not in ("", request.method):
            return False
        if not fnmatch.fnmatchcase(path, self.match):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= self.times > 0
        return True


def says(status: int, code: str = "", text: str = "", **headers: str) -> dict[str, Any]:
    """Answer with an error; keywords are headers, their underscores hyphens."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"answer": lambda request: error(status, code, text or code, more)}


def body(raw: bytes, *, size: int | None = None, commit: str = "") -> dict[str, Any]:
    """Answer with these bytes, by range where that is asked; size is what Content-Range says of the whole."""
    headers = {"ETag": f'"{hashlib.sha1(raw).hexdigest()}"'} | ({"X-Repo-Commit": commit} if commit else {})

    def answer(request: Request) -> Reply:
        span = asked_range(request.headers.get("range", ""), len(raw))
        if isinstance(span, Reply) or span is None:
            return span or Reply(200, headers, raw)
        start, stop = span
        shown = f"bytes {start}-{stop - 1}/{len(raw) if size is None else size}"
        return Reply(206, headers | {"Content-Range": shown}, raw[start:stop])

    return {"answer": answer}


def page(text: bytes = b"<html><body>Log in to the network</body></html>") -> dict[str, Any]:
    """Answer with a web page, as a captive portal does."""
    return {"answer": lambda request: Reply(200, {"Content-Type": "text/html; charset=utf-8"}, text)}


def redirects(to: str = "", status: int = 302, **headers: str) -> dict[str, Any]:
    """Send the client to another address, or to the same for ever."""
    return {"answer": lambda request: Reply(status, {"Location": to or request.path, **headers})}


def sent(**how: Any) -> dict[str, Any]:
    """Send the true answer in another way: cut=, rate=, hang=, drop=, status= of Reply."""
    return {"after": lambda request, reply: replace(reply, **how)}


def halved() -> dict[str, Any]:
    """Close the connection after half of the body."""
    return {"after": lambda request, reply: replace(reply, cut=reply.length // 2)}


def with_headers(**headers: str | None) -> dict[str, Any]:
    """Change headers of the answer; None takes one away, underscores are hyphens."""

    def after(request: Request, reply: Reply) -> Reply:
        named = {name.replace("_", "-").lower(): (name.replace("_", "-"), value) for name, value in headers.items()}
        kept = {name: value for name, value in reply.headers.items() if name.lower() not in named}
        return replace(reply, headers=kept | {name: value for name, value in named.values() if value is not None})

    return {"after": after}


def ignores_range() -> dict[str, Any]:
    """Send the whole file, whatever range is asked for."""
    return {"before": lambda request: request.headers.pop("range", None)}


def another_range(start: int = 1000, stop: int = 5096) -> dict[str, Any]:
    """Send another range than was asked for."""
    return {"before": lambda request: request.headers.update(range=f"bytes={start}-{stop - 1}")}


def calls(run: Callable[[], Any]) -> dict[str, Any]:
    """Do something on this side before a request is answered, such as to move a branch."""
    return {"before": lambda request: run()}


# --- answers ------------------------------------------------------------------------------------------------------


def as_json(data: Any, headers: Mapping[str, str] | None = None, status: int = 200) -> Reply:
    """Return an answer in JSON."""
    text = json.dumps(data, separators=(",", ":")).encode()
    return Reply(status, {"Content-Type": "application/json; charset=utf-8", **(headers or {})}, text)


def error(status: int, code: str = "", text: str = "", headers: Mapping[str, str] | None = None) -> Reply:
    """Return an error as the Hub words it: a code for programs, and a text, both in headers."""
    named = {"X-Error-Code": code} if code else {}
    named |= {"X-Error-Message": text} if text else {}
    return as_json({"error": text}, {**named, **(headers or {})}, status)


def asked_range(text: str, size: int) -> tuple[int, int] | Reply | None:
    """Return [start, stop) of a Range header; None where there is none, or a 416."""
    if not text.startswith("bytes=") or "," in text:
        return None
    first, _, last = text[6:].partition("-")
    if not (first or last) or not (first + last).isdigit():
        return None
    start, stop = (
        (int(first), min(int(last) + 1, size) if last else size) if first else (max(0, size - int(last)), size)
    )
    return (start, stop) if start < stop else Reply(416, {"Content-Range": f"bytes */{size}"})


class Server:
    """Serve repos on two ports of this machine, from a thread, until it is left.

    ``root`` holds a folder ORG/NAME for each repo; ``add`` gives a repo more commits.
    """

    def __init__(self, root: Path | None = None, net: Net = LOOPBACK) -> None:
        self.net = net
        self.gzip = True  # small files are compressed where a client takes that; their ranges are then ignored
        self.xet = False  # files of weights are known to the store of chunks, too
        self.page = 1000  # files of one page of a listing
        self.tokens: set[str] = set()  # that are valid; any other is refused
        self.repos: dict[str, Repo] = {}
        self.rules: list[Rule] = []
        self.log: list[Seen] = []
        self.connections = 0
        self.hub = self.cdn = ""  # their addresses
        self._blobs: dict[str, Path] = {}
        self._told: dict[tuple[str, int, int], tuple[str, bool]] = {}
        self._gathered: dict[tuple[Path, bool], bytes] = {}
        self._free = 0.0  # when the shared link is free again
        self._writers: dict[asyncio.StreamWriter, asyncio.Future[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        if root is not None:
            for folder in sorted(p for p in root.glob("*/*") if p.is_dir()):
                self.add(f"{folder.parent.name}/{folder.name}", folder)

    # --- what it knows

    def add(self, repo: str, folder: Path, *refs: str, commit: str = "", **more: Any) -> str:
        """Give a repo a commit, and move refs to it, main if none is named; returns the commit."""
        one = self.repos.setdefault(repo, Repo())
        state = [(str(path.relative_to(folder)), self.told(path)[0]) for path in self._files(folder)]
        commit = commit or hashlib.sha1(json.dumps([repo, state]).encode()).hexdigest()
        one.commits[commit] = folder
        one.refs |= dict.fromkeys(refs or ("main",), commit)
        for name, value in more.items():
            setattr(one, name, value)
        return commit

    def rule(self, match: str = "*", *, what: Mapping[str, Any], **which: Any) -> Rule:
        """Add a rule: which requests, and one of the faults of this module; returns it."""
        made = Rule(match, **which, **what)
        self.rules.append(made)
        return made

    def told(self, path: Path) -> tuple[str, bool]:
        """Return the digest of a file, and whether the CDN gives it; of weights a stand-in, made of head and size."""
        info = os.stat(path)
        key = str(path), info.st_size, info.st_mtime_ns
        if key not in self._told:
            weights = path.name.endswith(WEIGHTS)
            large = weights or info.st_size >= LARGE
            with open(path, "rb") as file:
                raw = file.read(1 << 20) + str(info.st_size).encode() if weights else file.read()
            git = hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest()
            digest = hashlib.sha256(raw).hexdigest() if large else git
            if large:
                self._blobs[digest] = path
            self._told[key] = digest, large
        return self._told[key]

    # --- what it counted

    def reset(self) -> None:
        """Forget what was counted, when the reads that go on behind an answer have ended."""
        until = time.monotonic() + 3.0
        for thread in threading.enumerate():
            if thread.name == "draftproof-read":
                thread.join(max(0.0, until - time.monotonic()))
        self.log.clear()
        self.connections = 0

    @property
    def requests(self) -> int:
        """Return the count of requests."""
        return len(self.log)

    @property
    def bytes(self) -> int:
        """Return the bytes of all bodies that were sent."""
        return sum(seen.sent for seen in self.log)

    # --- starting and stopping

    def __enter__(self) -> Server:
        ready = threading.Event()
        loop = self._loop = asyncio.new_event_loop()

        async def serve() -> None:
            hub = await asyncio.start_server(lambda r, w: self._accept("hub", r, w), "127.0.0.1", 0, limit=1 << 20)
            cdn = await asyncio.start_server(lambda r, w: self._accept("cdn", r, w), "127.0.0.1", 0, limit=1 << 20)
            self.hub, self.cdn = (f"http://127.0.0.1:{s.sockets[0].getsockname()[1]}" for s in (hub, cdn))
            self._stop = asyncio.Event()
            ready.set()
            await self._stop.wait()
            for one in (hub, cdn):  # none is accepted any more; a closed server would lose what it just accepted
                for listening in one.sockets:
                    loop.remove_reader(listening.fileno())
            until = loop.time() + 2.0
            while True:  # what was just accepted has to begin before it can be ended; then what closes the sockets
                await asyncio.sleep(0.002)
                rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
                for writer in self._writers:  # one may not have begun, or have bytes that nobody takes
                    writer.transport.abort()
                for task in self._writers.values():
                    task.cancel()
                if not rest or loop.time() > until:
                    break
            hub.close()
            cdn.close()
            await asyncio.sleep(0.002)

        def run() -> None:
            loop.run_until_complete(serve())
            loop.close()

        self._thread = threading.Thread(target=run, daemon=True, name="loopback-hub")
        self._thread.start()
        assert ready.wait(10), "the loopback Hub did not start"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    # --- answering

    def answer(self, request: Request) -> Reply:
        """Return the answer that no fault changes."""
        path = request.path
        if request.side == "cdn":
            blob = self._blobs.get(path.rpartition("/")[2])
            if blob is None:
                return Reply(404, {}, b"NoSuchKey")
            headers = {"ETag": f'"{self.told(blob)[0]}"', "Content-Type": "application/octet-stream"}
            return _file(blob, headers, request)
        if path == "/api/agent-harnesses":  # the Hub's own client asks for it once in a process
            return as_json({"standardEnvVars": [], "harnesses": {}})
        if path.startswith("/api/resolve-cache/models/"):
            org, name, commit, file = path.removeprefix("/api/resolve-cache/models/").split("/", 3)
            return self._resolve(request, f"{org}/{name}", commit, unquote(file), cached=True)
        if path.startswith("/api/models/"):
            org, _, rest = path.removeprefix("/api/models/").partition("/")
            name, _, rest = rest.partition("/")
            return self._api(request, unquote(f"{org}/{name}"), rest)
        repo, found, rest = path.strip("/").partition("/resolve/")
        if found:
            revision, _, file = rest.partition("/")
            return self._resolve(request, unquote(repo), unquote(revision), unquote(file))
        return error(404, "", "no such route")

    def _refused(self, request: Request, name: str, *, files: bool) -> Reply | None:
        """Return why a client may not see a repo; a gated one shows that it is there, not its files."""
        token, repo = request.authorized, self.repos.get(name)
        if token and token not in self.tokens:
            return error(401, "", "Invalid credentials in Authorization header")
        if repo is None or (repo.access == "private" and token not in repo.readers):
            return error(404 if token else 401, "RepoNotFound", "Repository not found")
        if repo.access == "gated" and files and token not in repo.readers:
            text = f"Access to model {name} is restricted"
            text += " and you are not in the authorized list." if token else ". You must have access to it."
            return error(403 if token else 401, "GatedRepo", text)
        return None

    def _api(self, request: Request, name: str, rest: str) -> Reply:
        kind, _, tail = rest.partition("/")
        if refused := self._refused(request, name, files=kind not in ("", "revision")):
            return refused
        repo, query = self.repos[name], parse_qs(request.query)
        pinned = unquote(tail.partition("/")[0]) if kind in ("revision", "tree", "paths-info") else "main"
        commit = repo.commit(pinned)
        if not commit:
            return error(404, "RevisionNotFound", f"Invalid rev id: {pinned}")
        folder = repo.commits[commit]
        if kind in ("", "revision"):
            return as_json(self._info(name, repo, commit, query))
        if kind == "tree":
            rows = [self._entry(path, folder) for path in self._files(folder)]
            start = int(query.get("cursor", ["0"])[0])
            stop, headers = start + self.page, {}
            if stop < len(rows):
                more = {key: values[0] for key, values in query.items()} | {"cursor": str(stop)}
                headers["Link"] = f'<{self.hub}{request.path}?{urlencode(more)}>; rel="next"'
            return as_json(rows[start:stop], headers)
        if kind == "paths-info":
            asked = parse_qs(request.body.decode()).get("paths", [])
            return as_json([self._entry(p, folder) for p in self._files(folder) if _relative(p, folder) in asked])
        if kind == "safetensors-metadata":
            return self._headers(request, folder / unquote(tail))
        return error(404, "", "no such route")

    def _info(self, name: str, repo: Repo, commit: str, query: Mapping[str, list[str]]) -> dict[str, Any]:
        folder = repo.commits[commit]
        gated = "manual" if repo.access == "gated" else False
        date = "2026-01-01T00:00:00.000Z"
        info: dict[str, Any] = {
            "_id": "0" * 24, "id": name, "modelId": name, "author": name.partition("/")[0], "sha": commit,
            "private": repo.access == "private", "gated": gated, "disabled": False, "tags": ["safetensors"],
            "downloads": 0, "likes": 0, "lastModified": date, "createdAt": date,
            "siblings": [{"rfilename": _relative(path, folder)} for path in self._files(folder)],
            "safetensors": {"parameters": {"BF16": 1}, "total": 1},
        }  # fmt: skip
        if "blobs" in query:
            for row in info["siblings"]:
                entry = self._entry(folder / row["rfilename"], folder)
                row |= {"size": entry["size"], "blobId": entry["oid"]}
                if "lfs" in entry:
                    row["lfs"] = {"sha256": entry["lfs"]["oid"], "size": entry["size"], "pointerSize": 134}
        if "securityStatus" in query:
            info["securityRepoStatus"] = {"scansDone": True, "filesWithIssues": []}
        if "expand" in query:
            with contextlib.suppress(OSError):
                info["config"] = json.loads((folder / "config.json").read_bytes())
            return {key: value for key, value in info.items() if key in {"_id", "id", *query["expand"]}}
        return info

    def _entry(self, path: Path, folder: Path) -> dict[str, Any]:
        digest, large = self.told(path)
        size = path.stat().st_size
        oid = hashlib.sha1(digest.encode()).hexdigest() if large else digest
        entry: dict[str, Any] = {"type": "file", "oid": oid, "size": size, "path": _relative(path, folder)}
        if large:
            entry["lfs"] = {"oid": digest, "size": size, "pointerSize": 134}
            if self.xet:
                entry["xetHash"] = digest
        return entry

    def _files(self, folder: Path) -> Iterator[Path]:
        return (Path(top, name) for top, _, names in os.walk(folder) for name in sorted(names))

    def _headers(self, request: Request, index: Path) -> Reply:
        """Return the headers of all shards in one answer, which names no revision."""
        if not index.is_file():
            return error(404, "EntryNotFound", "Entry not found")
        packed = self.gzip and "gzip" in request.headers.get("accept-encoding", "")
        if (index, packed) not in self._gathered:
            data = json.loads(index.read_bytes())
            parts = []
            for name in dict.fromkeys(data.pop("weight_map").values()):
                with open(index.parent / name, "rb") as file:
                    head = file.read(int.from_bytes(file.read(8), "little"))
                parts.append(json.dumps(name).encode() + b":" + head.rstrip())
            raw = b'{"index":' + json.dumps(data).encode() + b',"headers":{' + b",".join(parts) + b"}}"
            self._gathered[index, packed] = gzip.compress(raw, 6) if packed else raw
        headers = {"Content-Type": "application/json"} | ({"Content-Encoding": "gzip"} if packed else {})
        return Reply(200, headers, self._gathered[index, packed])

    def gather(self, name: str) -> None:
        """Make the answer with all headers of a repo's main branch now, so that no read waits for it."""
        folder = self.repos[name].commits[self.repos[name].commit("main")]
        for encoding in ("identity", "gzip"):
            asked = Request("hub", "GET", "", "", {"accept-encoding": encoding}, b"", 0)
            self._headers(asked, folder / "model.safetensors.index.json")

    def _resolve(self, request: Request, name: str, revision: str, file: str, *, cached: bool = False) -> Reply:
        """Give a file: one of weights by a redirect to the CDN, any other by one to a cache of the same origin."""
        if refused := self._refused(request, name, files=True):
            return refused
        commit = self.repos[name].commit(revision)
        if not commit:
            return error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        left = {"RateLimit": '"resolvers";r=2999;t=300', "RateLimit-Policy": '"fixed window";"resolvers";q=3000;w=300'}
        common = {"X-Repo-Commit": commit, "X-Request-Id": "Root=1-loopback", "Accept-Ranges": "bytes", **left}
        folder = self.repos[name].commits[commit]
        path = folder / file
        if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
            return error(404, "EntryNotFound", "Entry not found", common)
        digest, large = self.told(path)
        size = path.stat().st_size
        plain = {"Content-Type": "text/plain; charset=utf-8"}
        linked = {"X-Linked-Size": str(size), "X-Linked-ETag": f'"{digest}"'}
        if large:
            signed = f"Expires=9999999999&Policy={'P' * 300}&Signature={'S' * 340}&Key-Pair-Id=K0"
            headers = {**common, **plain, **linked, "Location": f"{self.cdn}/repos/xx/{digest}?{signed}"}
            if self.xet:
                read = f'<{self.hub}/api/models/{name}/xet-read-token/{commit}>; rel="xet-auth"'
                headers |= {"X-Xet-Hash": digest, "Link": read}
            return Reply(302, headers, b"Found. Redirecting.")
        tag = {"ETag": f'"{digest}"'}
        if not cached:
            to = f"/api/resolve-cache/models/{name}/{commit}/{quote(file)}?etag=%22{digest}%22"
            return Reply(307, {**common, **plain, **linked, **tag, "Location": to}, b"Temporary Redirect.")
        if self.gzip and "gzip" in request.headers.get("accept-encoding", "") and size > 1024:
            packed = {"ETag": f'W/"{digest}"', "Content-Encoding": "gzip", "Transfer-Encoding": "chunked"}
            return Reply(200, {**common, **plain, **packed, "Vary": "Accept-Encoding"}, _packed(path))
        return _file(path, {**common, **plain, **tag}, request)

    # --- sending

    def _accept(self, side: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers[writer] = asyncio.ensure_future(self._connection(side, reader, writer))

    async def _connection(self, side: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number, window, first = self.connections, [FLIGHT, 0.0], True
        try:
            while request := await _received(side, reader, number):
                wait = self.net.latency + (self.net.connect if first else 0.0)
                first = False
                if wait:
                    await asyncio.sleep(wait)
                if not await self._serve(request, writer, window):
                    return
        except (ConnectionError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            with contextlib.suppress(Exception):
                writer.close()

    async def _serve(self, request: Request, writer: asyncio.StreamWriter, window: list[float]) -> bool:
        """Answer one request; returns whether the connection stays open."""
        about = request.path
        if request.side == "cdn":
            about = str(self._blobs.get(about.rpartition("/")[2], about))
        rule = next((one for one in self.rules if one.hits(request, about)), Rule())
        if rule.before:
            rule.before(request)
        reply = rule.answer(request) if rule.answer else self.answer(request)
        if rule.after:
            reply = rule.after(request, reply)
        row = Seen(
            request.side, request.method, request.path, request.headers.get("range", ""), reply.status, 0,
            request.authorized, request.connection, request.headers,
        )  # fmt: skip
        place = len(self.log)
        self.log.append(row)
        if reply.hang:
            await asyncio.sleep(reply.hang)
        if reply.hang or reply.drop:
            return False
        if reply.raw is not None:
            for part in reply.raw:
                row = row._replace(sent=row.sent + len(part))
                if place < len(self.log):
                    self.log[place] = row
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(reply.pace)
            return False
        chunked = reply.headers.get("Transfer-Encoding") == "chunked"
        headers = {**reply.headers} if chunked else {"Content-Length": str(reply.length), **reply.headers}
        lines = [f"HTTP/1.1 {reply.status} {REASONS.get(reply.status, 'Other')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        if request.method == "HEAD":
            await writer.drain()
        else:
            left = reply.length if reply.cut is None else min(reply.cut, reply.length)
            start = 0
            while start < left:
                part = _part(reply, start, min(left - start, reply.rate or 1 << 20))
                start += len(part)
                if place < len(self.log):
                    self.log[place] = row = row._replace(sent=start)
                await self._send(writer, b"%x\r\n%b\r\n" % (len(part), part) if chunked else part, window)
                if reply.rate:
                    await asyncio.sleep(1.0)
            if chunked and reply.cut is None:
                writer.write(b"0\r\n\r\n")
            await writer.drain()
        return reply.cut is None and request.headers.get("connection", "").lower() != "close"

    async def _send(self, writer: asyncio.StreamWriter, data: bytes, window: list[float]) -> None:
        """Send bytes as the network lets them through: a window that doubles each round trip, then the link."""
        if not self.net.slow_start:
            return await self._through(writer, data)
        if time.monotonic() - window[1] > 1.0:
            window[0] = FLIGHT  # an idle connection begins anew
        while data:
            part, data = data[: int(window[0])], data[int(window[0]) :]
            began = time.monotonic()
            await self._through(writer, part)
            window[1] = time.monotonic()
            if data:
                await asyncio.sleep(max(0.0, self.net.latency - (window[1] - began)))
                window[0] = min(window[0] * 2, 8 << 20)
        return None

    async def _through(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        for at in range(0, len(data), 1 << 16):
            part = data[at : at + (1 << 16)]
            writer.write(part)
            if self.net.megabits:
                now = time.monotonic()
                self._free = max(now, self._free) + len(part) * 8 / (self.net.megabits * 1e6)
                if self._free - now > 0.002:
                    await writer.drain()
                    await asyncio.sleep(self._free - now)
        await writer.drain()


async def _received(side: str, reader: asyncio.StreamReader, number: int) -> Request | None:
    """Return the next request of a connection, or None at its end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    rows = (line.partition(":") for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in rows}
    size = int(headers.get("content-length", "0"))
    text = await reader.readexactly(size) if size else b""
    path, _, query = target.partition("?")
    return Request(side, method, path, query, headers, text, number)


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _packed(path: Path) -> bytes:
    return gzip.compress(path.read_bytes(), 6)


def _part(reply: Reply, start: int, length: int) -> bytes:
    """Return bytes of a body; of a file they are read as they are sent."""
    if reply.file is None:
        return reply.body[start : start + length]
    with open(reply.file[0], "rb") as file:
        file.seek(reply.file[1] + start)
        return file.read(length)


def _file(path: Path, headers: Mapping[str, str], request: Request) -> Reply:
    size = path.stat().st_size
    span = asked_range(request.headers.get("range", ""), size)
    if isinstance(span, Reply):
        return span
    start, stop = span or (0, size)
    told = {"Content-Range": f"bytes {start}-{stop - 1}/{size}"} if span else {}
    return Reply(206 if span else 200, {"Accept-Ranges": "bytes", **headers, **told}, file=(path, start, stop - start))


def main() -> int:
    """Serve until interrupted; prints how to ask."""
    parser = argparse.ArgumentParser(description="A Hub on the loopback.")
    parser.add_argument("root", nargs="?", type=Path, help="a folder of ORG/NAME; default: a drafter and two targets")
    parser.add_argument("--latency", type=float, default=0.0, metavar="MS", help="of each request")
    parser.add_argument("--wan", action="store_true", help="a network far away: 40 ms, slow start, 100 Mb/s")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        root = args.root
        if root is None:
            sys.path.insert(0, str(Path(__file__).parents[1]))
            from hub import repos

            root = Path(made)
            for write in (repos.drafter, repos.kimi_k2, repos.kimi_k25):
                write(root)
        with Server(root, WAN if args.wan else Net(args.latency / 1000)) as server:
            names = "\n".join(f"  {name}" for name in server.repos)
            told = f"export HF_ENDPOINT={server.hub}\n{names}\nuntil it is interrupted (Ctrl-C)\n"
            sys.stdout.write(told)
            sys.stdout.flush()
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()
            sys.stdout.write(f"{server.requests} requests, {server.bytes} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
