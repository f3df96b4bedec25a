"""Bounded GETs over HTTP. Every request has a timeout, every read a deadline; nothing but NetError is raised.

Redirects are followed by hand, so that a token goes to its own origin alone. A body is streamed, counted, and cut at
the limit. Nothing here knows what a repository is.
"""

from __future__ import annotations

import random
import re
import threading
import time
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from socket import inet_aton
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from draftproof.hub import other_digest

HOPS = 5  # redirects
TRIES = 4
RETRIED = frozenset({408, 429, 500, 502, 503, 504})
SLICE = 1 << 16  # bytes decoded at a time
LONG = 8 << 20  # bytes of a read that is worth a bar
SAID = 4096  # bytes of what is said beside an error or a redirect that are read
SKIPPED = 1 << 20  # bytes that may be passed over where a server ignores the range


class NetError(OSError):
    """Say why a request came to nothing: kind is status, timeout, unreachable, changed, limit or refused."""

    def __init__(
        self,
        kind: str,
        text: str,
        status: int = 0,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        away: bool = False,
    ) -> None:
        super().__init__(5, text)
        self.kind = kind
        self.text = text
        self.status = status
        self.headers = headers or {}
        self.body = body  # the first bytes of what the server said
        self.away = away  # another host than the endpoint said it
        self.name = ""  # the file that was asked for, where that is known


class Answer(NamedTuple):
    """Hold what came: status, headers of the first and the last hop, the address that gave it, body, whole size."""

    status: int
    first: Mapping[str, str]
    headers: Mapping[str, str]
    url: str
    body: bytes
    size: int | None  # bytes of the whole file, where the server says so
    ranged: bool  # the server kept to the range that was asked for


@dataclass(frozen=True)
class Limits:
    """Bound what a read may take, in seconds."""

    step: float = 10.0  # one wait for bytes
    total: float = 60.0  # a read, retries and waits included
    pause: float = 0.5  # before the second try; doubled for each that follows


@dataclass
class Moved:
    """Count what was moved."""

    requests: int = 0
    bytes: int = 0  # bodies, as they came over the line
    cached: int = 0  # answers that our own cache gave
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, requests: int = 0, bytes: int = 0, cached: int = 0) -> None:
        """Add to the counts, from any thread."""
        with self.lock:
            self.requests += requests
            self.bytes += bytes
            self.cached += cached


class Pending:
    """Run a function in a thread of its own, which never keeps a process from ending."""

    def __init__(self, run: Callable[[], Any], then: Callable[[], None] = lambda: None, *, start: bool = True) -> None:
        self._run, self._then = run, then
        self._value: Any = None
        self._error: BaseException | None = None
        self._done = threading.Event()
        if start and not in_thread(self.work):
            self._error = NetError("unreachable", "this machine gives no thread for a read")
            self._done.set()

    def work(self) -> None:
        """Run the function here and now, where start was false."""
        try:
            self._value = self._run()
        except BaseException as error:  # handed to whoever asks for the result
            self._error = error
        finally:
            self._done.set()
            self._then()

    @property
    def done(self) -> bool:
        """Tell whether the function has ended."""
        return self._done.is_set()

    def wait(self, until: float) -> bool:
        """Wait until the function has ended, or the deadline (monotonic); tells whether it has."""
        return self._done.wait(max(0.0, until - time.monotonic()))

    def result(self, until: float) -> Any:
        """Return what the function returned, or raise what it raised; raises NetError at the deadline (monotonic)."""
        if not self.wait(until):
            raise NetError("timeout", "no answer before the deadline")
        if self._error is not None:
            raise self._error
        return self._value


def in_thread(run: Callable[[], None]) -> bool:
    """Run a function in a thread of its own; tells whether the machine gave one."""
    try:
        threading.Thread(target=run, daemon=True, name="draftproof-read").start()
    except RuntimeError:
        return False
    return True


Look = Callable[[], Callable[[bytes], None]]


class _Ask(NamedTuple):
    """Hold how something is asked for: see Transport.get."""

    limit: int
    until: float
    span: tuple[int, int] | None
    method: str
    follow: bool
    packed: bool
    look: Look | None


class Transport:
    """Send GETs for one endpoint: `session` is a client with `stream`, as huggingface_hub.utils.get_session gives."""

    def __init__(
        self,
        endpoint: str,
        session: Callable[[], Any],
        token: str | None = None,
        agent: str = "draftproof",
        limits: Limits = Limits(),
    ) -> None:
        self.endpoint = endpoint.rstrip("/")
        self.session = session
        self.token = token
        self.agent = agent
        self.limits = limits
        self.tries = TRIES
        self.bar: Callable[[int], Any] | None = None  # makes a progress bar of so many bytes, with update and close
        self.moved = Moved()
        self._home = _origin(self.endpoint)
        self._near = _nearness(self.endpoint)

    def until(self) -> float:
        """Return the deadline of a read that begins now."""
        return time.monotonic() + self.limits.total

    def get(
        self,
        url: str,
        limit: int,
        until: float,
        *,
        span: tuple[int, int] | None = None,
        method: str = "GET",
        follow: bool = True,
        packed: bool = True,
        look: Look | None = None,
    ) -> Answer:
        """Return the answer of a GET or HEAD, or of the bytes [start, stop) of a file; raises NetError.

        A body beyond limit decoded bytes is refused. Timeouts, cut bodies and the statuses of RETRIED are tried again.
        A whole file may come packed: then its connection may be lost, for its end is not told.
        ``look`` is asked for a function when a body begins, which is given its parts in place of the answer.
        """
        ask = _Ask(limit, until, span, method, follow, packed, look)
        failed: NetError | None = None
        for attempt in range(self.tries):
            if attempt:
                self._wait(attempt, failed, until)
            try:
                answer = Pending(lambda: self._hops(url, ask)).result(until)
            except NetError as error:
                failed = error
                if not self._again(error, attempt, url) or time.monotonic() >= until:
                    raise
                continue
            assert isinstance(answer, Answer)
            return answer
        assert failed is not None
        raise failed

    def _again(self, error: NetError, attempt: int, url: str) -> bool:
        """Tell whether another try may help: also where a signed address of another host was refused."""
        if error.kind == "status":
            expired = error.away and error.status != 416 and self._is_home(url)
            return error.status in RETRIED or (expired and not attempt)
        return error.kind in ("timeout", "unreachable") or (error.kind == "changed" and not attempt)

    def _is_home(self, url: str) -> bool:
        return _origin(url) == self._home

    def _wait(self, attempt: int, failed: NetError | None, until: float) -> None:
        """Wait before another try: as long as the server asks, else longer each time; never beyond the deadline."""
        asked = asked_to_wait(failed.headers) if failed else None
        pause = self.limits.pause * 2 ** (attempt - 1) * (0.5 + random.random())
        pause = max(pause, asked or 0.0)
        if failed is not None and time.monotonic() + pause >= until:
            raise failed
        time.sleep(pause)

    def _hops(self, url: str, ask: _Ask) -> Answer:
        first: Mapping[str, str] | None = None
        away = False  # once led elsewhere, a way back home is not ours: it gets no token
        for _ in range(HOPS + 1):
            away = away or not self._is_home(url)
            answer = self._once(url, ask, first, away)
            first = answer.first
            if not (300 <= answer.status < 400 and "location" in answer.headers and ask.follow):
                return answer
            url = self._next(url, answer.headers["location"])
        raise NetError("refused", f"more than {HOPS} redirects", answer.status)

    def _next(self, url: str, location: str) -> str:
        """Return where a redirect leads; refuses another scheme, a downgrade, and a way into a private network."""
        try:
            target = urljoin(url, location)
            parts = urlsplit(target)
        except ValueError:
            raise NetError("refused", "a redirect to what is no address") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise NetError("refused", "a redirect to another scheme than http or https")
        if urlsplit(url).scheme == "https" and parts.scheme == "http":
            raise NetError("refused", "a redirect from https to http")
        if _nearness(target) > self._near:
            raise NetError("refused", "a redirect into a private network")
        return target

    def _once(self, url: str, ask: _Ask, first: Mapping[str, str] | None, away: bool) -> Answer:
        method, span, until = ask.method, ask.span, ask.until
        plain = span or method == "HEAD" or not ask.packed
        headers = {"user-agent": self.agent, "accept-encoding": "identity" if plain else "gzip"}
        if span:
            headers["range"] = f"bytes={span[0]}-{span[1] - 1}"
        if self.token and not away:
            if not re.fullmatch(r"[!-~]+", self.token):
                raise NetError("refused", "the token holds characters that no token has")
            headers["authorization"] = f"Bearer {self.token}"
        left = until - time.monotonic()
        if left <= 0:
            raise NetError("timeout", "no answer before the deadline")
        try:
            with self.session().stream(
                method, url, headers=headers, timeout=min(self.limits.step, left), follow_redirects=False
            ) as response:
                self.moved.add(requests=1)
                got = {str(k).lower(): str(v) for k, v in response.headers.items()}
                status = int(response.status_code)
                told = first if first and (away or "x-repo-commit" in first) else got
                if 300 <= status < 400 and "location" in got:
                    if method == "GET" and (_whole(got) or SAID) < SAID:
                        self._some(response, until)  # to its end, so that the connection serves again
                    return Answer(status, told, got, url, b"", None, False)
                if status >= 400:
                    text = b"" if method == "HEAD" else self._some(response, until)
                    who = f" from {urlsplit(url).hostname}" if away else ""
                    raise NetError("status", f"HTTP {status}{who}", status, {**told, **got}, text, away)
                if status not in ((200, 206) if span else (200,)):
                    raise NetError("changed", f"HTTP {status}, which was not asked for")
                if method == "HEAD":
                    return Answer(status, told, got, url, b"", _whole(got), False)
                return self._body(response, status, told, got, url, ask)
        except NetError:
            raise
        except Exception as error:  # whatever the client raises: its types are not ours
            kind, said = _explained(error)
            raise NetError(kind, said.replace(self.token, "***") if self.token else said) from None

    def _some(self, response: Any, until: float) -> bytes:
        """Return the first bytes of an error's body."""
        out = b""
        for chunk in response.iter_raw():
            self.moved.add(bytes=len(chunk))
            out += bytes(chunk)
            if len(out) >= SAID or time.monotonic() > until:
                break
        return out[:SAID]

    def _body(
        self,
        response: Any,
        status: int,
        first: Mapping[str, str],
        got: Mapping[str, str],
        url: str,
        ask: _Ask,
    ) -> Answer:
        """Read a body: exactly the range that was asked for, or a whole file of at most limit decoded bytes."""
        span, limit = ask.span, ask.limit
        encoding = got.get("content-encoding", "identity").lower()
        if encoding not in ("identity", "gzip") or (span and encoding != "identity"):
            raise NetError("changed", f"an answer in the encoding {encoding!r}, which was not asked for")
        if got.get("content-type", "").lower().startswith("text/html"):
            raise NetError("unreachable", "a web page (HTML) in place of the file: the network may ask to log in")
        start, stop = span or (0, limit)
        size, skip, wanted = _whole(got) if encoding == "identity" else None, 0, stop - start
        if span and status == 206:
            told = _content_range(got.get("content-range", ""))
            if told is None or told[0] != start or told[1] > stop or (told[1] < stop and told[1] != told[2]):
                shown = got.get("content-range", "nothing")
                raise NetError("changed", f"another range than bytes {start} to {stop}: {shown!r}")
            size, wanted = told[2], told[1] - start
            if (length := _whole(got)) is not None and length != wanted:
                raise NetError("changed", f"{length} bytes for a range of {wanted}")
        elif span:
            size, skip = (_whole(got), start)
            if skip > SKIPPED:
                raise NetError("changed", "the server ignores ranges")
        linked = whole_number(first.get("x-linked-size", ""))
        if linked is not None and size is not None and encoding == "identity" and size != linked:
            raise NetError("changed", f"{size} bytes of a file of {linked}")
        size = linked if size is None else size
        if not span and size is not None and size > limit:
            raise NetError("limit", f"{size} bytes")
        unpack = zlib.decompressobj(31) if encoding == "gzip" else None
        out, seen = bytearray(), 0
        give = ask.look() if ask.look is not None else None
        chunks, came = self._chunks(response, wanted if span else _whole(got) or 0), 0
        for chunk in chunks:
            self.moved.add(bytes=len(chunk))
            data = bytes(chunk)
            came += len(data)
            while data:
                part, data = _unpacked(unpack, data) if unpack else (data, b"")
                seen += len(part)
                if give is not None:
                    give(part)
                else:
                    out += part[max(0, skip - (seen - len(part))) :] if skip else part
                if not span and seen > limit:
                    raise NetError("refused", f"more than {limit} bytes, and no end told")
                if unpack and unpack.eof:
                    break
            if (span and len(out) >= wanted) or (unpack and unpack.eof):
                if came == _whole(got):
                    next(chunks, None)  # its end, which is there already: so the connection serves again
                break
            if time.monotonic() > ask.until:
                raise NetError("timeout", "no end before the deadline")
        if span and status == 206 and len(out) < wanted:
            raise NetError("unreachable", f"the answer was cut after {len(out)} of {wanted} bytes")
        if span and status == 200:  # the whole file came: it may be shorter than what was asked for
            if size is not None and len(out) < min(wanted, max(0, size - start)):
                raise NetError("unreachable", f"the answer was cut after {len(out)} bytes")
            size = size if size is not None else (None if len(out) >= wanted else start + len(out))
        if not span and size is not None and seen != size and (encoding == "identity" or linked is not None):
            raise NetError("unreachable", f"the answer was cut after {seen} of {size} bytes")
        if unpack and not unpack.eof:
            raise NetError("unreachable", "the answer was cut inside its compression")
        if give is not None:
            return Answer(status, first, got, url, b"", size, False)
        if not span and (seen_as := other_digest(_tag(first.get("x-linked-etag", "")), bytes(out))):
            raise NetError("changed", f"bytes of another digest than the Hub names: {seen_as[:12]}…")
        if not span and _other_bytes(_tag(got.get("etag", "")), bytes(out)):
            raise NetError("changed", "bytes of another digest than the answer names")
        if span:
            del out[wanted:]
        return Answer(status, first, got, url, bytes(out), size, status == 206)

    def _chunks(self, response: Any, size: int) -> Iterator[bytes]:
        """Yield a body as it comes; a long one with a bar."""
        bar = self.bar(size) if self.bar is not None and size > LONG else None
        try:
            for chunk in response.iter_raw():  # as they come: no wait for more than is needed
                if bar is not None:
                    bar.update(len(chunk))
                yield chunk
        finally:
            if bar is not None:
                bar.close()


def _unpacked(unpack: Any, data: bytes) -> tuple[bytes, bytes]:
    """Return at most SLICE decoded bytes, and what is left to decode."""
    try:
        part = unpack.decompress(data, SLICE)
    except zlib.error as error:
        raise NetError("changed", f"an answer that is not gzip: {error}") from None
    return part, unpack.unconsumed_tail


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    return parts.scheme, (parts.hostname or "").lower(), port or (443 if parts.scheme == "https" else 80)


def is_local(url: str) -> bool:
    """Tell whether an address is, by its own words, one of this machine."""
    return _nearness(url) == 2


def _nearness(url: str) -> int:
    """Return how near an address is by its own words: 0 public, 1 in a private network, 2 this machine, 3 its link.

    A redirect may not lead nearer than the endpoint itself is, and never to an address of the link.
    """
    host = unicodedata.normalize("NFKC", urlsplit(url).hostname or "").lower().rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return 2
    if host.endswith((".local", ".internal")):
        return 1
    try:
        address: IPv4Address | IPv6Address = ip_address(host)
    except ValueError:
        if not re.fullmatch(r"[0-9a-fx.]+", host):
            return 0
        try:
            address = ip_address(inet_aton(host))  # 127.1, 2130706433, 0x7f000001
        except (OSError, ValueError):
            return 0
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback or address.is_unspecified:
        return 2
    return 3 if address.is_link_local else int(not address.is_global)


def _other_bytes(told: str, body: bytes) -> bool:
    """Tell whether an etag that looks like a digest is none of these bytes; a mirror's may be a plain SHA-1."""
    import hashlib  # noqa: PLC0415

    return bool(other_digest(told, body)) and hashlib.sha1(body, usedforsecurity=False).hexdigest() != told


def _tag(etag: str) -> str:
    return etag.removeprefix("W/").strip('"')


def whole_number(text: str) -> int | None:
    """Return a count that a header gives, or None where it is not one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _whole(headers: Mapping[str, str]) -> int | None:
    return whole_number(headers.get("content-length", ""))


def _content_range(text: str) -> tuple[int, int, int] | None:
    """Return start, stop and whole size of a Content-Range, or None where it is not one."""
    unit, _, rest = text.partition(" ")
    span, _, size = rest.partition("/")
    first, _, last = span.partition("-")
    parts = (first, last, size)
    if unit != "bytes" or not all(p.isascii() and p.isdigit() and len(p) < 20 for p in parts):
        return None
    a, b, n = map(int, parts)
    return (a, b + 1, n) if a <= b < n else None


def asked_to_wait(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks to wait: Retry-After, as seconds or as a date, or RateLimit's t."""
    after = headers.get("retry-after", "").strip()
    if after.isascii() and after.isdigit():
        return float(after[:9])
    if after:
        from email.utils import parsedate_to_datetime  # noqa: PLC0415 (rare)

        try:
            return max(0.0, parsedate_to_datetime(after).timestamp() - time.time())
        except (TypeError, ValueError, OverflowError):
            return None
    pairs = (part.strip().partition("=") for part in headers.get("ratelimit", "").split(";"))
    rate = {name: number for name, _, value in pairs if (number := whole_number(value[:9])) is not None}
    return None if rate.get("r", 0) else rate.get("t")  # where requests remain, it says nothing of a wait


def _explained(error: Exception) -> tuple[str, str]:
    """Return kind and one line of what a client's own error says."""
    name = type(error).__name__
    if "Timeout" in name:
        return "timeout", "no answer in time"
    cause: BaseException = error
    while cause.__cause__ is not None or cause.__context__ is not None:
        cause = cause.__cause__ or cause.__context__  # type: ignore[assignment]
    text = " ".join(str(error).split()) or " ".join(str(cause).split()) or name
    return "unreachable", f"{name}: {text[:200]}"
