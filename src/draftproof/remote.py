"""Models on the Hub, read lazily at one commit: configs whole, of weights only headers, by ranges.

A drafter costs four requests, a target of many shards about sixteen: which shards hold an embedding, a head and a
norm is guessed by their names, and what a header says is proof; only that something is missing needs the index.
Nothing is raised: what cannot be read is a finding.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import quote, urlsplit

from draftproof.cache import Cache, default_folder
from draftproof.container import Alike, Header, Rows, read_header
from draftproof.findings import Finding, finding, unknown, visible
from draftproof.hub import COMMIT, SHARD, Source, Taken, other_digest
from draftproof.strict import CONFIG_DEPTH, CONFIG_LIMIT, strict_json, survey
from draftproof.transport import (
    TRIES,
    Answer,
    Limits,
    Moved,
    NetError,
    Pending,
    Transport,
    asked_to_wait,
    in_thread,
    is_local,
    whole_number,
)

FIRST = 14_000  # bytes of a first read: what arrives with TCP's first flight
AT_ONCE = 16  # reads in flight
MANY = 8  # headers from which on one request for all pays
EXPECTED = 1 << 20  # bytes of a first read where a head is expected to be longer than FIRST
KEEPING = 2.0  # seconds that others are held off while headers are written to the cache
INDEX_LIMIT = 256 << 20  # bytes of an index
LISTING_LIMIT = 64 << 20  # bytes of a repo's file list
MAX_FILES = 200_000  # files in it, about


@dataclass
class _File:
    """Hold what is known of one file of a repo: its first bytes, where they came from, its size and etag."""

    head: bytes = b""
    url: str = ""
    etag: str = ""
    size: int = -1
    oid: str = ""  # the digest that the file list gives
    settled: bool = False  # its header is whole, and kept
    extents: list[tuple[int, bytes]] = field(default_factory=list)  # parts of a file that is no safetensors
    pending: Pending | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)


class Hub:
    """Open repos of one endpoint. Reads with the session, token, proxies and offline switch of huggingface_hub."""

    def __init__(
        self,
        mode: str = "auto",
        *,
        endpoint: str = "",
        limits: Limits | None = None,
        cache: Cache | None = None,
        session: Callable[[], Any] | None = None,
        token: str | bool | None = None,
    ) -> None:
        self.mode = mode
        self.limits = limits or Limits()
        self._endpoint = endpoint
        self._session = session
        self._token = token
        self._cache = cache
        self._made: Transport | None = None
        self._silent: Finding | None = None  # the endpoint did not answer: it is not asked again
        self._opened: dict[tuple[str, str, bool], Source] = {}
        self._writes: list[threading.Thread] = []
        self.moved = Moved()
        self._told = Taken()

    # --- what the Hub's own client is told --------------------------------------------------------------------

    @property
    def offline(self) -> bool:
        """Tell whether no socket may be opened."""
        if self.mode in ("offline", "recordings"):
            return True
        truth = (os.environ.get(key, "").upper() for key in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
        return any(value in ("1", "ON", "YES", "TRUE") for value in truth)

    @property
    def endpoint(self) -> str:
        """Return the address of the Hub: HF_ENDPOINT, or the public one."""
        return (self._endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")

    @property
    def cache(self) -> Cache:
        """Return the cache of what was read."""
        if self._cache is None:
            self._cache = Cache(default_folder())
        return self._cache

    @property
    def transport(self) -> Transport:
        """Return the transport, made on first use: importing the Hub's client takes a while."""
        if self._made is None:
            from huggingface_hub import __version__ as version  # noqa: PLC0415
            from huggingface_hub.utils import get_session  # type: ignore[attr-defined]  # noqa: PLC0415

            from draftproof import __version__  # noqa: PLC0415

            agent = f"draftproof/{__version__}; hf_hub/{version}"
            if origin := os.environ.get("HF_HUB_USER_AGENT_ORIGIN"):
                agent += f"; origin/{visible(origin, 100)}"
            if not _is_address(self.endpoint):
                raise NetError("unreachable", f"{self.endpoint!a} is no address of a Hub: see HF_ENDPOINT")
            self._made = Transport(self.endpoint, self._session or get_session, self.token[0], agent, self.limits)
            self._made.moved = self.moved
            if sys.stderr is not None and sys.stderr.isatty():
                self._made.bar = _bar
        return self._made

    @property
    def token(self) -> tuple[str | None, str]:
        """Return the token that is sent, if any, and where it comes from; never show the first."""
        if isinstance(self._token, str):
            return self._token, "given"
        if self._token is False:
            return None, "none was wanted"
        from huggingface_hub import constants  # noqa: PLC0415
        from huggingface_hub.utils import get_token  # type: ignore[attr-defined]  # noqa: PLC0415

        if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN:
            return None, "HF_HUB_DISABLE_IMPLICIT_TOKEN is set"
        try:
            token = get_token()
        except (OSError, ValueError) as error:  # a folder, or no text
            return None, f"the token file cannot be read: {type(error).__name__}"
        if token is None:
            return None, "none was found in HF_TOKEN or in the token file"
        if self.endpoint.startswith("http://") and not is_local(self.endpoint):
            return None, "the endpoint is plain http"
        named = next((k for k in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN") if os.environ.get(k)), "the token file")
        return token, f"from {named}"

    def behind(self, write: Callable[[], None]) -> None:
        """Write to the cache while what was read is judged; a process waits for it before it ends."""
        self._writes = [thread for thread in self._writes if thread.is_alive()]
        thread = threading.Thread(target=write, name="draftproof-write")
        try:
            thread.start()
        except RuntimeError:
            return write()
        return self._writes.append(thread)

    def total(self) -> Taken:
        """Return all that was moved."""
        return Taken(self.moved.requests, self.moved.bytes, self.moved.cached)

    def taken(self) -> Taken:
        """Return what was moved since this was last asked, when all of it is kept."""
        for thread in self._writes:
            thread.join()
        now = self.total()
        since = Taken(*(a - b for a, b in zip(now, self._told, strict=True)))
        self._told = now
        return since

    # --- opening ----------------------------------------------------------------------------------------------

    def open(self, repo: str, revision: str = "", role: str = "", patience: float | None = None) -> Source | Finding:
        """Open a repo at a revision, main by default; role target reads as one expects of many shards."""
        at = revision or "main"
        if self._silent is not None and not self.offline:
            return replace(self._silent, subject=visible(repo))
        key = (repo, at, role == "target")
        try:
            if key not in self._opened:
                opened = self._open(repo, at, role, patience)
                if isinstance(opened, Finding):
                    return opened
                self._opened[key] = opened
            return self._opened[key]
        except NetError as error:
            found = self.explain(error, repo, at)
            if error.kind in ("unreachable", "timeout") and patience is not None:
                self._silent = found
            return found

    def _open(self, repo: str, at: str, role: str, patience: float | None) -> Source | Finding:
        pinned = at if COMMIT.fullmatch(at) else ""
        if pinned and (kept := self._kept(repo, pinned)):
            return kept
        if self.offline:
            return self._cached_only(repo, at)
        until = time.monotonic() + min(self.limits.total, patience or self.limits.total)
        self.transport.tries = 1 if patience is not None else TRIES  # a recording serves where the first fails
        known = self.cache.get("branch", self.endpoint, repo, at)
        if not pinned and known:  # it was read before: one request tells whether it has moved
            answer = self.transport.get(self._address(repo, at, "config.json"), 0, until, method="HEAD", follow=False)
            commit = answer.first.get("x-repo-commit", "")
            if COMMIT.fullmatch(commit) and (kept := self._kept(repo, commit)):
                kept.reader.was_main = at == "main"
                return kept
        with self.cache.lock("open", self.endpoint, repo, at, wait=(until - time.monotonic()) / 2):
            then = pinned.encode() or self.cache.get("branch", self.endpoint, repo, at)
            if then and (pinned or then != known) and (kept := self._kept(repo, then.decode())):
                return kept  # another process has just read it
            made = self._fresh(repo, at, role, until)
            made.reader.was_main = at == "main"
            if known and not pinned and made.revision != (was := known.decode("ascii", "replace")):
                parts: dict[str, Any] = {
                    "where": self.endpoint,
                    "help": f"pin the commit that is meant: {repo}@{made.revision}",
                }
                subject, old = f"{visible(repo)}@{visible(at)}", f"{was}, as last read here"
                made.notes.append(finding("SRC128", subject, expected=old, observed=str(made.revision), **parts))
            return made

    def _fresh(self, repo: str, at: str, role: str, until: float) -> Source:
        """Read a repo that is not kept: config beside the first bytes of a single file, or beside the file list."""
        single = _File()

        def beside() -> Any:
            if role == "target":
                return self._listing(repo, at, until)
            return self._start(repo, at, "model.safetensors", single, until)

        second = Pending(beside)  # what is longer comes first: its connection is the one that is asked again
        config = Pending(lambda: self._whole_or_none(repo, at, "config.json", CONFIG_LIMIT, until))
        answer: Answer | None = config.result(until)
        other = second.result(until)
        for given in (answer, None if role == "target" else other):
            if given is not None and not _commit(given):
                raise NetError("changed", "the server names no commit of what it serves: it may be no Hub")
        listing: dict[str, Any] | None = other if role == "target" else None
        commits = {c for c in (_commit(answer), _commit(other)) if c}
        if listing is None and other is None:
            listing = self._listing(repo, at, until)  # no single file: which are there
            commits |= {listing["sha"]} if listing["sha"] else set()
        if not commits:
            listing = listing or self._listing(repo, at, until)
            commits = {listing["sha"]} if listing["sha"] else set()
        if COMMIT.fullmatch(at) and commits - {at}:
            raise NetError("changed", f"the server answered for {sorted(commits - {at})[0][:7]}, not for {at[:7]}")
        if len(commits) > 1:  # the branch moved between two requests: once more, at one commit
            return self._fresh(repo, _commit(answer) or sorted(commits)[0], role, until)
        if not commits:
            raise NetError("changed", "the server names no commit of what it serves")
        commit = commits.pop()
        if answer is None and listing is None:  # that a file is not there is proved by the list alone
            listing = self._listing(repo, commit, until)
        if listing and listing["sha"] != commit:
            raise NetError("changed", "the file list is of another commit, or of none")
        came = {"config.json": answer is not None}
        if role != "target":
            came["model.safetensors"] = other is not None or single.size == 0
        for name, there in came.items() if listing else ():
            assert listing is not None
            if there != (name in listing["files"]):
                said = "came, and is not listed" if there else "is listed, and said not to be there"
                raise NetError("changed", f"{name} {said}")
        if listing and answer is not None:
            _listed_bytes("config.json", listing["oids"], answer.body)
        if listing and single.size == 0 and listing["files"].get("model.safetensors", 0) > 0:
            raise NetError("changed", "model.safetensors is said to be empty, its list gives a size")
        if listing:
            record = {"files": listing["files"], "oids": listing["oids"], "listed": True}
        else:
            record = {"files": {"model.safetensors": single.size}, "oids": {}, "listed": False}
            if answer is not None:
                record["files"]["config.json"] = len(answer.body)
        if answer is not None:
            self.cache.put(answer.body, "file", self.endpoint, repo, commit, "config.json")
        self.cache.put(json.dumps(record).encode(), "files", self.endpoint, repo, commit)
        self.cache.put(commit.encode(), "branch", self.endpoint, repo, at)
        source = self._source(repo, commit, record)
        reader: Reader = source.reader
        if answer is not None:
            reader.small["config.json"] = answer.body
        if not listing:
            reader.files["model.safetensors"] = single
            reader.noted("model.safetensors", other)
            with contextlib.suppress(NetError):  # it is tried again where it is asked for
                reader._settle("model.safetensors", single, until)
        return source

    def list_files(self, source: Source) -> Finding | None:
        """Fill in the files of a repo that was opened without its file list; returns why not."""
        if source.listed:
            return None
        reader: Reader = source.reader
        until = time.monotonic() + self.limits.total
        try:
            if self.offline:
                raise NetError("unreachable", "offline, and the file list was not read before")
            listing = self._listing(source.repo, reader.commit, until)
            if listing["sha"] not in ("", reader.commit):
                raise NetError("changed", f"the server listed {listing['sha'][:7]}, not {reader.commit[:7]}")
        except NetError as error:
            return self.explain(error, source.repo, reader.commit)
        source.files, source.listed, reader.oids = listing["files"], True, listing["oids"]
        record = {"files": listing["files"], "oids": listing["oids"], "listed": True}
        self.cache.put(json.dumps(record).encode(), "files", self.endpoint, source.repo, reader.commit)
        return None

    def _kept(self, repo: str, commit: str) -> Source | None:
        """Return a repo of which the file list at a commit is kept."""
        raw = self.cache.get("files", self.endpoint, repo, commit)
        if raw is None:
            return None
        record = json.loads(raw)
        self.moved.add(cached=1)
        return self._source(repo, commit, record)

    def _cached_only(self, repo: str, at: str) -> Source | Finding:
        known = self.cache.get("branch", self.endpoint, repo, at) or b""
        commit = at if COMMIT.fullmatch(at) else known.decode()
        if commit and (kept := self._kept(repo, commit)):
            return kept
        fetch = f"hf download {repo} --include 'config.json' '*.safetensors'"
        return unknown(
            "SRC106", visible(repo), expected="a network, or what was read before", observed="offline, and not kept",
            help=f"go online once, or give a folder: {fetch} --local-dir DIR",
        )  # fmt: skip

    def _source(self, repo: str, commit: str, record: Mapping[str, Any]) -> Source:
        reader = Reader(self, repo, commit, record["oids"], record["files"])
        files, listed = record["files"], record["listed"]
        return Source(
            repo, "hub", files, reader.read, repo=repo, revision=commit, origin=self.endpoint, reader=reader,
            listed=listed,
        )  # fmt: skip

    # --- requests ---------------------------------------------------------------------------------------------

    def _address(self, repo: str, at: str, name: str) -> str:
        if at in (".", ".."):  # a step in an address, not a revision
            raise NetError("status", "not a revision", 404, {"x-error-code": "RevisionNotFound"})
        return f"{self.endpoint}/{quote(repo)}/resolve/{quote(at, safe='')}/{quote(name, safe='')}"

    def _whole_or_none(self, repo: str, at: str, name: str, limit: int, until: float) -> Answer | None:
        """Return a small file, or None where the repo has none of that name."""
        try:
            packed = name != "config.json"  # which is small, and its connection is worth more
            return self.transport.get(self._address(repo, at, name), limit, until, packed=packed)
        except NetError as error:
            if _absent(error):
                return None
            error.name = name
            raise

    def _start(self, repo: str, at: str, name: str, file: _File, until: float, size: int = FIRST) -> Answer | None:
        """Read the first bytes of a file into its record; returns None where the repo has none of that name."""
        try:
            answer = self.transport.get(self._address(repo, at, name), size, until, span=(0, size))
        except NetError as error:
            if _absent(error):
                return None
            if error.status == 416:  # an empty file
                file.size, file.head = 0, b""
                return None
            raise
        with file.lock:
            file.head, file.url = answer.body, answer.url
            file.etag = answer.first.get("x-linked-etag") or answer.headers.get("etag", "")
            linked = whole_number(answer.first.get("x-linked-size", ""))
            file.size = next((n for n in (answer.size, linked) if n is not None), -1)
        return answer

    def _listing(self, repo: str, at: str, until: float) -> dict[str, Any]:
        """Return commit and files of a repo, sizes in bytes; only plain names of its top folder."""
        url = f"{self.endpoint}/api/models/{quote(repo)}/revision/{quote(at, safe='')}?blobs=true"
        try:
            answer = self.transport.get(url, LISTING_LIMIT, until)
        except NetError as error:
            if error.kind == "limit":
                raise NetError("refused", f"a file list of {error.text}") from None
            raise
        _, objects, values = survey(answer.body, CONFIG_DEPTH)
        if objects > 2 * MAX_FILES or values > 16 * MAX_FILES:
            raise NetError("refused", f"a file list of more than {MAX_FILES} files")
        data, faults = strict_json(answer.body)
        if not isinstance(data, dict) or any(f.fatal for f in faults) or not isinstance(data.get("siblings"), list):
            raise NetError("changed", "a file list that is not one")
        files: dict[str, int] = {}
        oids: dict[str, str] = {}
        for row in data["siblings"]:
            name, size = (row.get("rfilename"), row.get("size")) if isinstance(row, dict) else (None, None)
            if isinstance(name, str) and _PLAIN.fullmatch(name):
                files[name] = size if type(size) is int and size >= 0 else -1
                oid = row["lfs"].get("sha256") if isinstance(row.get("lfs"), dict) else None
                oid = row.get("blobId") if oid is None else oid  # git's own digest of a small file
                if isinstance(oid, str) and re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", oid):
                    oids[name] = oid
        sha = data.get("sha")
        return {"sha": sha if isinstance(sha, str) and COMMIT.fullmatch(sha) else "", "files": files, "oids": oids}

    # --- what went wrong --------------------------------------------------------------------------------------

    def explain(self, error: NetError, repo: str, at: str) -> Finding:
        """Make the finding for a read that came to nothing: could not judge, and why."""
        token, source = self.token

        def plain(text: str, limit: int = 300) -> str:
            return visible(text.replace(token, "***") if token else text, limit)

        where, subject, said = self.shown, visible(repo), error.headers.get("x-error-code", "")
        text = plain(error.headers.get("x-error-message", "") or _error_text(error.body), 200)
        sent = f"a token was sent ({source})" if token else f"no token was sent: {source}"
        status = error.status if error.kind == "status" else 0
        page = f"{where}/{visible(repo)}"
        if error.kind == "limit":
            code = "CFG311" if error.name == "config.json" else "IDX306" if _is_index(error.name) else "SRC113"
            return finding(code, error.name, expected="a file of a sane size", observed=error.text, where=where)
        if status and not error.away:
            if said == "GatedRepo":
                help = f"ask for access at {page}, then log in: hf auth login"
                return unknown("SRC102", subject, expected="access", observed=f"gated; {sent}", where=where, help=help)
            if said == "RevisionNotFound":
                return unknown("SRC109", f"{subject}@{visible(at)}", expected="a revision of the repo",
                               observed=text or "none", where=where)  # fmt: skip
            if status == 401 and token and "invalid" in text.lower() and said != "RepoNotFound":
                return unknown("SRC103", subject, expected="a valid token", observed=f"{text}; {sent}", where=where)
            if status == 403:
                seen = f"{text or error.text}; {sent}"
                return unknown("SRC103", subject, expected="a token that may read it", observed=seen, where=where)
            if status in (401, 404):
                help = f"check the spelling; if it is private or gated, ask for access at {page}, then: hf auth login"
                return unknown("SRC101", subject, expected="a repo that can be read", observed=f"{error.text}; {sent}",
                               where=where, help=help)  # fmt: skip
        if status == 429:
            wait = asked_to_wait(error.headers)
            seen = "too many requests" + (f"; free again in {wait:.0f} s" if wait is not None else "")
            return unknown("SRC104", subject, expected="an answer", observed=f"{seen}; {sent}", where=where)
        if status >= 500 or (status and not error.away):
            number = plain(error.headers.get("x-request-id", ""), 80)
            seen = f"{error.text}{f', request {number}' if number else ''}"
            return unknown("SRC105", subject, expected="an answer", observed=seen, where=where)
        return unknown("SRC107", subject, expected="an answer", observed=plain(error.text), where=where)

    @property
    def shown(self) -> str:
        """Return the endpoint for print: without the password that its address may hold."""
        scheme, _, rest = self.endpoint.partition("://")
        return visible(f"{scheme}://{rest.rpartition('@')[2]}")


def _bar(size: int) -> Any:
    """Return a progress bar of the Hub's own client, which HF_HUB_DISABLE_PROGRESS_BARS silences."""
    from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]  # noqa: PLC0415

    return tqdm(  # type: ignore[no-untyped-call]
        total=size, unit="B", unit_scale=True, desc="draftproof", leave=False
    )


class Reader:
    """Read bytes of one repo at one commit; keeps the heads of files, here and in the cache."""

    def __init__(self, hub: Hub, repo: str, commit: str, oids: Mapping[str, str], sizes: Mapping[str, int]) -> None:
        self.hub = hub
        self.repo = repo
        self.commit = commit
        self.oids = oids
        self.sizes = sizes  # as listed
        self.small: dict[str, bytes] = {}
        self.files: dict[str, _File] = {}
        self.notes: list[Finding] = []
        self.alike = Alike()
        self.was_main = False  # the main branch was seen to be at this commit
        self._heads: _Heads | None = None  # where all headers were asked for at once
        self._many = False  # all heads of many shards are read
        self._expected = FIRST  # bytes of a first read
        self._given: dict[str, tuple[bytes, Header]] = {}  # what came of that, until it is certain
        self._sure: Pending | None = None
        self._index: Pending | None = None
        self._jobs: deque[Pending] = deque()
        self._begin()

    def _begin(self) -> None:
        """Make what a process needs of its own; a fork takes no thread along."""
        self._process = os.getpid()
        self._slots = threading.Semaphore(AT_ONCE)
        self._came = threading.Event()  # a head has come
        self._gathered = threading.Event()  # no answer with all heads is on its way
        self._gathered.set()
        self._kept = threading.Event()  # what the one answer gave is in the cache, or shall not be
        self._crew, self._working = threading.Lock(), 0
        self._jobs.clear()

    def _here(self) -> None:
        """Begin anew in a process that was forked off: reads that were under way are the other's."""
        if self._process == os.getpid():
            return
        self._begin()
        self._index, self._sure = None, self._sure and Pending(lambda: False)
        self.hub.moved.lock = threading.Lock()
        for file in self.files.values():
            file.lock = threading.RLock()
            if file.pending is not None and not file.settled:
                file.pending, file.head = None, b""

    def _work(self) -> None:
        """Do the reads that wait, one after another."""
        while True:
            with self._crew:
                if not self._jobs:
                    self._working -= 1
                    return
                job = self._jobs.popleft()
            job.work()

    def _key(self, name: str) -> tuple[str, ...]:
        return self.hub.endpoint, self.repo, self.commit, name

    def _head_key(self, name: str) -> tuple[str, ...]:
        """Return the key of a file's header: by its digest, so that a commit that leaves it alone costs nothing."""
        oid = self.oids.get(name)
        return ("head", self.hub.endpoint, oid) if oid else ("head", *self._key(name))

    def size(self, name: str) -> int:
        """Return the bytes of a file that the list gives no size of; raises NetError."""
        file = self.files.setdefault(name, _File())
        if file.size < 0 and name.endswith(_RANGED):
            self.read(name, 0, 8)
        if file.size < 0 and name.endswith(_RANGED):
            error = NetError("changed", f"the server does not tell the size of {name}")
            error.finding = self.hub.explain(error, self.repo, self.commit)  # type: ignore[attr-defined]
            raise error
        return file.size if name.endswith(_RANGED) else len(self.read(name, 0, INDEX_LIMIT))

    def read(self, name: str, start: int, stop: int) -> bytes:
        """Return the bytes [start, stop) of a file; raises NetError, with the finding that says why."""
        until = time.monotonic() + self.hub.limits.total
        try:
            return self._read(name, start, stop, until)
        except NetError as error:
            error.finding = self.hub.explain(error, self.repo, self.commit)  # type: ignore[attr-defined]
            raise

    def _read(self, name: str, start: int, stop: int, until: float) -> bytes:
        if name.endswith(_RANGED):
            return self._weights(name, start, stop, until)
        if name not in self.small:
            self.small[name] = self._small(name, until)
        return self.small[name][start:stop]

    def _small(self, name: str, until: float) -> bytes:
        if (kept := self.hub.cache.get("file", *self._key(name))) is not None:
            self.hub.moved.add(cached=1)
            return kept
        self._online(name)
        limit = INDEX_LIMIT if _is_index(name) else CONFIG_LIMIT if name == "config.json" else 64 << 20
        answer = self.hub._whole_or_none(self.repo, self.commit, name, limit, until)
        if answer is None:
            raise NetError("changed", f"{name} is listed, and not there")
        self._same_commit(answer)
        _listed_bytes(name, self.oids, answer.body)
        self.hub.cache.put(answer.body, "file", *self._key(name))
        return answer.body

    def _online(self, name: str) -> None:
        if self.hub.offline:
            raise NetError("unreachable", f"offline, and {name} was not read before")

    def _same_commit(self, answer: Answer) -> None:
        seen = _commit(answer)
        if seen != self.commit:
            said = f"for {seen[:7]}" if seen else "without a commit"
            raise NetError("changed", f"the server answered {said}, not for {self.commit[:7]}")

    def _same_file(self, name: str, file: _File) -> None:
        """Refuse a file that is not the one of the list."""
        listed, etag = self.sizes.get(name, -1), _tag(file.etag)
        if listed >= 0 and file.size >= 0 and listed != file.size:
            raise NetError("changed", f"{name} has {file.size} bytes, its list says {listed}")
        if etag and self.oids.get(name, etag) != etag:
            raise NetError("changed", f"{name} is {etag[:12]}…, its list says {self.oids[name][:12]}…")

    def ahead(self, names: Collection[str], index: str = "", *, begun: bool = False) -> None:
        """Begin to read the heads of files, many at once.

        Where an index is named they are all of its shards: their heads are then expected to be alike, and the endpoint
        is asked for all in one answer. With ``begun`` the index is begun to be read as well, beside them.
        """
        self._here()
        until = time.monotonic() + self.hub.limits.total
        many = bool(index) and not self.hub.offline and len(self._lacking(names)) >= MANY
        if many and self._heads is None:  # they are asked for once
            self._many, self._expected = True, _expected(self.sizes.get(index, -1), len(names))
            self._heads = _Heads(self.sizes, self.alike, self._given, self._came.set)
            self._gathered.clear()
            if not in_thread(lambda: self._gather(index, names, until, begun)):
                self._gather(index, names, until, begun)
            return
        if begun:
            self._begin_index(index, until)
        self._one_by_one(names, until)

    def _lacking(self, names: Iterable[str]) -> list[str]:
        """Return the files whose heads are neither known nor kept."""
        known = self._given.keys() | {name for name, file in self.files.items() if file.settled}
        return [n for n in names if n not in known and not self.hub.cache.has(*self._head_key(n))]

    def _one_by_one(self, names: Iterable[str], until: float) -> None:
        """Let the heads of files be read by ranges, some at a time."""
        for name in names:
            file = self.files.setdefault(name, _File())
            with file.lock:
                if file.head or file.pending or name in self._given or self.hub.offline:
                    continue
                file.pending = Pending(
                    lambda n=name, f=file: self._first(n, f, until, self._expected),  # type: ignore[misc]
                    self._came.set,
                    start=False,
                )
            with self._crew:
                self._jobs.append(file.pending)
                hire = self._working < AT_ONCE
                self._working += hire
            if hire and not in_thread(self._work):
                self._work()

    def _begin_index(self, index: str, until: float) -> None:
        if self._index is None:
            self._index = Pending(lambda: self._start_of(index, until))

    def _start_of(self, index: str, until: float) -> bytes:
        key = ("start", self.hub.endpoint, self.oids[index])
        if (kept := self.hub.cache.get(*key)) is not None:
            return kept
        self._online(index)
        answer = self.hub._start(self.repo, self.commit, index, _File(), until)
        if answer is None:
            return b""
        self._same_commit(answer)
        self.noted(index, answer)
        self.hub.cache.put(answer.body, *key)
        return answer.body

    def index_head(self) -> bytes:
        """Return the first bytes of the index that was begun with its shards; b"" where they could not be read."""
        self._gathered.wait(self.hub.limits.total)
        try:
            head: bytes = self._index.result(time.monotonic() + self.hub.limits.total) if self._index else b""
        except NetError:
            return b""
        return head

    def _gather(self, index: str, names: Collection[str], until: float, begun: bool) -> None:
        """Read the heads of all shards, once on this machine: from one answer, else from their files."""
        try:
            with self.hub.cache.lock("heads", *self._key(index), wait=(until - time.monotonic()) / 2):
                if len(self._lacking(names)) >= MANY:  # another process may just have read them
                    self._at_once(index, until, begun)
                if begun:
                    self._begin_index(index, until)
                self._one_by_one(names, until)
                self._gathered.set()
                self._came.set()
                for name in names:
                    if (file := self.files.get(name)) is not None and file.pending is not None:
                        file.pending.wait(until)
                if self._sure is not None:
                    self._kept.wait(min(KEEPING, until - time.monotonic()))
        finally:
            self._gathered.set()
            self._came.set()

    def _at_once(self, index: str, until: float, begun: bool) -> None:
        """Take the headers of all shards from one answer, where the endpoint gives it and it proves itself.

        It is of the main branch and names no commit, so the branch must be at this one before and after. It gives
        headers as JSON, not as bytes: one is taken if it is written as the reference writer does and, padded to eight
        bytes, fills its file to the last byte; the others are read by ranges.
        """
        url = f"{self.hub.endpoint}/api/models/{quote(self.repo)}/safetensors-metadata/{quote(index)}"
        heads = self._heads
        assert heads is not None

        def look() -> Callable[[bytes], None]:
            if begun:  # no sooner: the first connection that is free is for what takes longest
                self._begin_index(index, until)
            return heads.begin()

        with contextlib.suppress(NetError):
            if self.was_main or self._is_main(until):
                self.hub.transport.get(url, INDEX_LIMIT, until, look=look)
        if heads.began:
            self._sure = Pending(lambda: self._is_main(until))
        heads.look()

    def header(self, name: str) -> Header | None:
        """Return the header of a shard that one answer gave with those of all others."""
        if name not in self._given:
            self._gathered.wait(self.hub.limits.total)
        return self._given[name][1] if name in self._given else None

    def gave(self, name: str) -> bool:
        """Tell whether one answer gave the header of a shard."""
        return name in self._given

    def _is_main(self, until: float) -> bool:
        """Tell whether the main branch is at this commit now."""
        here = self.hub._address(self.repo, "main", "config.json")
        answer = self.hub.transport.get(here, 0, until, method="HEAD", follow=False)
        return answer.first.get("x-repo-commit") == self.commit

    def _take(self, name: str, file: _File) -> bool:
        """Fill a file's head from the one answer; tells whether it was there."""
        if name not in self._given:
            return False
        text = _text(*self._given[name])
        file.head, file.size, file.settled = len(text).to_bytes(8, "little") + text, self.sizes[name], True
        return True

    def sure(self) -> bool:
        """Tell whether what was read is of this commit for certain; else what the one answer gave is forgotten."""
        sure, self._sure = self._sure, None
        try:
            good = sure is not None and sure.result(time.monotonic() + self.hub.limits.total)
        except NetError:
            good = False
        if sure is None:
            return True
        if good and self._given:
            given = dict(self._given)
            self.hub.behind(lambda: self._keep_all(given))
            return True
        self._kept.set()
        for name in () if good else self._given:
            self.files.pop(name, None)
        self._given.clear()
        return bool(good)

    def _keep_all(self, given: Mapping[str, tuple[bytes, Header]]) -> None:
        for name, row in given.items():
            text = _text(*row)
            before = b"%d\n" % self.sizes[name] + len(text).to_bytes(8, "little")
            self.hub.cache.put(text, *self._head_key(name), before=before)
        self._kept.set()

    def as_read(self, names: Iterable[str]) -> Iterator[str]:
        """Yield files whose heads were asked for ahead, each when it has come or failed; the quickest first."""
        left, until = list(names), time.monotonic() + self.hub.limits.total
        while left:
            gathered = self._gathered.is_set()
            if self._heads is not None:
                self._heads.look(some=True)
            ready = [n for n in left if n in self._given or (gathered and self._is_read(n))]
            for name in ready:
                yield name
                left.remove(name)
            if not ready:
                if time.monotonic() > until:
                    return
                self._came.wait(0.05)
                self._came.clear()

    def _is_read(self, name: str) -> bool:
        file = self.files.get(name)
        return file is None or file.pending is None or file.pending.done

    def _first(self, name: str, file: _File, until: float, size: int) -> None:
        """Fill a file's head, from the cache or the network; then the rest of a safetensors header."""
        with self._slots:
            if self._head_kept(name, file):
                return
            self._online(name)
            lock = self.hub.cache.lock(*self._head_key(name), wait=(until - time.monotonic()) / 2)
            with contextlib.nullcontext() if self._many else lock:  # of many, one lock is held for all
                if self._head_kept(name, file):  # another process has just read it
                    return
                try:
                    self._fill(name, file, until, size)
                except NetError as error:
                    if error.kind != "changed":
                        raise
                    self._fill(name, file, until, size)  # from the start, once

    def _fill(self, name: str, file: _File, until: float, size: int) -> None:
        try:
            self._filled(name, file, until, size)
        except NetError:  # what came before it is not used
            file.head, file.url, file.size = b"", "", -1
            raise

    def _filled(self, name: str, file: _File, until: float, size: int) -> None:
        answer = self.hub._start(self.repo, self.commit, name, file, until, size)
        if answer is None and file.size != 0:
            raise NetError("changed", f"{name} is listed, and not there")
        self._same_file(name, file)
        if answer is not None:
            self._same_commit(answer)
            self.noted(name, answer)
        self._gathered.wait(max(0.0, until - time.monotonic()))
        if not self._take(name, file):
            self._settle(name, file, until)

    def _head_kept(self, name: str, file: _File) -> bool:
        """Fill a file's head from the cache; tells whether it was there."""
        kept = self.hub.cache.get(*self._head_key(name))
        total, _, body = (kept or b"").partition(b"\n")
        if kept is None or self.sizes.get(name, -1) not in (-1, int(total)):
            return False
        file.size, file.head, file.settled = int(total), body, True
        self.hub.moved.add(cached=1)
        return True

    def _settle(self, name: str, file: _File, until: float) -> None:
        """Read a safetensors header to its end, and keep it."""
        need = _header_end(name, file.head, file.size)
        if need > len(file.head):
            self._online(name)
            file.head += self._more(name, file, len(file.head), need, until)
        if need:
            file.head = file.head[:need]
            if self._many:
                self._expected = min(max(self._expected, need), EXPECTED)
        file.settled = True
        key = self._head_key(name) if _tag(file.etag) == self.oids.get(name) else ("head", *self._key(name))
        self.hub.cache.put(file.head, *key, before=b"%d\n" % file.size)

    def noted(self, name: str, answer: Answer | None) -> None:
        """Note that a server sent the whole of a file for a part of it."""
        if answer is None or answer.ranged:
            return
        note = finding(
            "SRC108", visible(name), level="info", expected="a part of the file", observed="the whole was sent, and cut"
        )
        if note not in self.notes:
            self.notes.append(note)

    def _weights(self, name: str, start: int, stop: int, until: float) -> bytes:
        self._here()
        self._gathered.wait(max(0.0, until - time.monotonic()))
        file = self.files.setdefault(name, _File())
        with file.lock:
            pending = file.pending
            if pending is None and not file.head and not self._take(name, file):
                pending = file.pending = Pending(lambda: self._first(name, file, until, FIRST))
        if pending is not None:
            try:
                pending.result(until)
            except NetError:
                with file.lock:
                    file.pending = None
                raise
        with file.lock:
            if not file.settled:
                self._settle(name, file, until)
        stop = min(stop, file.size) if file.size >= 0 else stop
        if stop <= len(file.head):
            return file.head[start:stop]
        self._online(name)
        return (
            self._part(name, file, start, stop, until)
            if not name.endswith(_SAFE)
            else self._more(name, file, start, stop, until)
        )

    def _part(self, name: str, file: _File, start: int, stop: int, until: float) -> bytes:
        """Read from a torch file in blocks: its directory stands at the end, and is read in small steps."""
        for at, body in file.extents:
            if at <= start and stop <= at + len(body):
                return body[start - at : stop - at]
        last = max(0, file.size - BLOCK)
        low = min(start, last) if file.size - start <= BLOCK else start
        body = self._more(name, file, low, max(stop, low + BLOCK), until)
        file.extents.append((low, body))
        return body[start - low : stop - low]

    def _more(self, name: str, file: _File, start: int, stop: int, until: float) -> bytes:
        """Read on in a file, at the address that gave its first bytes; that address may have expired."""
        if file.size >= 0:
            stop = min(stop, file.size)
        if start >= stop:
            return b""
        addresses = [file.url] if file.url else []
        for url in (*addresses, self.hub._address(self.repo, self.commit, name)):
            try:
                answer = self.hub.transport.get(url, stop - start, until, span=(start, stop))
            except NetError as error:
                if url in addresses and error.kind == "status" and 400 <= error.status < 500:
                    continue  # resolve it again, once
                raise
            if file.size >= 0 and answer.size is not None and answer.size != file.size:
                raise NetError("changed", f"{name} changed while it was read")
            if url not in addresses:
                self._same_commit(answer)
                if file.etag and answer.first.get("x-linked-etag", file.etag) != file.etag:
                    raise NetError("changed", f"{name} changed while it was read")
            file.url = answer.url
            return answer.body
        raise NetError("unreachable", f"{name} could not be resolved again")

    def recall(self, wanted: Collection[str] | None) -> dict[str, Any] | None:
        """Return what a contract's read of this commit gave before, if it is kept."""
        raw = self.hub.cache.get("facts", *self._key(_asked(wanted)))
        if raw is None:
            return None
        self.hub.moved.add(cached=1)
        data = json.loads(raw)
        return data if isinstance(data, dict) else None

    def keep(self, wanted: Collection[str] | None, data: Mapping[str, Any]) -> None:
        """Keep what a contract's read of this commit gave."""
        self.hub.cache.put(json.dumps(data).encode(), "facts", *self._key(_asked(wanted)))

    def likely(self, files: Mapping[str, int], wanted: Collection[str] = ()) -> list[str]:
        """Return the shards that probably hold embedding, norm and head, the first and the last three, and layers.

        Empty where names alone could mislead: another set of shards, or a whole file, stands beside them.
        """
        sets: dict[tuple[str, str], dict[int, str]] = {}
        for name in files:
            if not name.endswith(_SAFE):
                continue
            if (match := re.fullmatch(SHARD, name)) is None:
                return []
            sets.setdefault((match[1], match[3]), {})[int(match[2])] = name
        if len(sets) != 1:
            return []
        shards = [name for _, name in sorted(next(iter(sets.values())).items())]
        if len(shards) <= 4:
            return shards
        count = _layers(self.small.get("config.json", b""))
        numbers = {int(n[1]) for n in map(_LAYER.search, wanted) if n}
        places = sorted({n * len(shards) // count for n in numbers if n < count} if count else ())[:_MORE]
        return list(dict.fromkeys([shards[0], *shards[-3:], *(shards[n] for n in places)]))


BLOCK = 1 << 16
_MORE = 4  # shards that are guessed for the layers that are wanted
_LAYER = re.compile(r"\blayers\.(\d{1,4})\.")
_SAFE = ".safetensors"
_RANGED = (_SAFE, ".bin", ".pt", ".pth")
_PLAIN = re.compile(r"[^/\\\x00-\x1f:]{1,255}")


def _layers(config: bytes) -> int:
    """Return how many layers a config counts, be it in a table inside; 0 where it does not tell."""
    counts = {int(n) for n in re.findall(rb'"num_hidden_layers"\s*:\s*(\d{1,4})\b', config)}
    return counts.pop() if len(counts) == 1 else 0


def _text(text: bytes, header: Header) -> bytes:
    """Return the text of a header that one answer gave, padded."""
    return text or (header.tensors.text() if isinstance(header.tensors, Rows) else b"")


def _expected(index: int, shards: int) -> int:
    """Return how many bytes the head of a shard may have: two fifths more than what the index says of it.

    Both name each tensor; a header says dtype, shape and range, an index the shard.
    """
    return min(max(FIRST, index * 7 // (5 * shards)), EXPECTED)


class _Heads:
    """Take the header of each shard out of an answer that gives all of them, as its parts come."""

    def __init__(
        self,
        sizes: Mapping[str, int],
        alike: Alike,
        taken: dict[str, tuple[bytes, Header]],
        then: Callable[[], None],
    ) -> None:
        self.sizes, self.alike, self.then = sizes, alike, then
        self.taken = taken  # name -> the text of the header, padded, if it was kept, and what it says
        self.began = False
        self._parts: SimpleQueue[bytes] = SimpleQueue()
        self._lock = threading.Lock()
        self._body, self._seen, self._inside = bytearray(), 0, False

    def begin(self) -> Callable[[bytes], None]:
        """Begin another body; returns what takes its parts."""
        self.began = True
        self._parts.put(b"")
        return self._part

    def _part(self, part: bytes) -> None:
        self._parts.put(part)
        if _END in part:  # else there is nothing to look at yet
            self.then()

    def look(self, some: bool = False) -> None:
        """Look at what has come so far, in any thread; with some, only until more is known."""
        known = len(self.taken)
        with self._lock, contextlib.suppress(Empty):
            while not some or len(self.taken) == known:
                if part := self._parts.get_nowait():
                    self._body += part
                    self._cut()
                else:
                    self._body, self._seen, self._inside = bytearray(), 0, False

    def _cut(self) -> None:
        body = self._body
        if not self._inside:
            at = body.find(_HEADERS)
            self._inside = at >= 0
            del body[: at + len(_HEADERS) if self._inside else 0]
        while self._inside:
            end = body.find(_END, self._seen)
            if end < 0:
                self._seen = max(0, len(body) - len(_END))
                return
            self._seen = 0
            start, stop = body.find(b":", 0, end) + 1, end + len(_END)
            name = body[:start].strip(b',":').decode("utf-8", "replace")
            if start and self.sizes.get(name, -1) >= 0 and name not in self.taken:
                with memoryview(body) as view:
                    text = b"".join((view[start:stop], b" " * ((start - stop) % 8)))
                self._head(name, text)
            del body[:stop]

    def _head(self, name: str, text: bytes) -> None:
        first = len(text).to_bytes(8, "little")

        def read(start: int, stop: int) -> bytes:
            return text if (start, stop) == (8, 8 + len(text)) else (first + text[: max(0, stop - 8)])[start:stop]

        header, found = read_header(read, self.sizes[name], name, alike=self.alike)
        if header is not None and not found:
            kept = b"" if isinstance(header.tensors, Rows) else text  # of one like another it can be made again
            self.taken[name] = kept, header


_HEADERS = b'"headers":{'
_END = b"]}}"  # of the last tensor, of the header: as the reference writer writes


def _is_address(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and " " not in endpoint
    except ValueError:
        return False


def _is_index(name: str) -> bool:
    return name.endswith(".index.json")


def _listed_bytes(name: str, oids: Mapping[str, str], body: bytes) -> None:
    """Refuse the bytes of a whole file whose digest is not that of the list."""
    if other_digest(oids.get(name, ""), body):
        raise NetError("changed", f"{name} has another digest than its list says")


def _tag(etag: str) -> str:
    """Return an etag without its quotes."""
    return etag.removeprefix("W/").strip('"')


def _asked(wanted: Collection[str] | None) -> str:
    return "*" if wanted is None else "\n".join(sorted(wanted))


def _absent(error: NetError) -> bool:
    """Tell whether the server says that the repo is there, and the file is not."""
    said = error.headers.get("x-error-code", "")
    missing = said == "EntryNotFound" or (not said and "x-repo-commit" in error.headers)
    return error.status == 404 and not error.away and missing


def _commit(answer: Any) -> str:
    if isinstance(answer, dict):
        return str(answer["sha"])
    commit = answer.first.get("x-repo-commit", "") if answer else ""
    return commit if COMMIT.fullmatch(commit) else ""


def _error_text(body: bytes) -> str:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    said = data.get("error") if isinstance(data, dict) else None
    return said if isinstance(said, str) else ""


def _header_end(name: str, head: bytes, size: int) -> int:
    """Return where a safetensors header ends, if its length is sane; 0 where that is not known."""
    if not name.endswith(".safetensors") or len(head) < 8:
        return 0
    end = 8 + int.from_bytes(head[:8], "little")
    return end if end <= 100_000_008 and (size < 0 or end <= size) else 0
