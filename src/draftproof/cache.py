"""What was read of the Hub, kept on disk: small entries under hashed names, each with its digest.

No name that a server gives becomes a path. An entry is written whole or not at all; one that is damaged, or belongs
to another user, is as if it were not there. A disk that cannot be written is no error.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MAGIC = b"draftproof-cache-2 "
MAX_ENTRY = 300 << 20  # bytes
LOCK_WAIT = 30.0  # seconds that one process waits for another that fetches the same


class Usage(NamedTuple):
    """Say what a cache holds."""

    folder: str
    entries: int
    bytes: int


def default_folder() -> Path:
    """Return the folder of the cache, beside that of the Hub's own client: HF_HOME, else HF_HUB_CACHE's parent."""
    env = os.environ
    if env.get("HF_HOME"):
        return Path(env["HF_HOME"]).expanduser() / "draftproof"
    if hub := env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE"):
        return Path(hub).expanduser().parent / "draftproof"
    return Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface" / "draftproof"


class Cache:
    """Keep bytes under keys, in a folder of mode 0700."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def _path(self, parts: tuple[str, ...]) -> Path | None:
        if self.folder is None:
            return None
        name = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
        return self.folder / name[:2] / name[2:]

    def get(self, *parts: str) -> bytes | None:
        """Return what is kept under a key, or None."""
        path = self._path(parts)
        if path is None:
            return None
        try:
            number = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
        except OSError:
            return None
        try:
            with os.fdopen(number, "rb") as file:
                info = os.fstat(file.fileno())
                if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_ENTRY or not _ours(info):
                    return None
                raw = file.read()
        except OSError:
            return None
        head, _, body = raw.partition(b"\n")
        return body if head == _head(path, body) else None

    def has(self, *parts: str) -> bool:
        """Tell whether there is an entry under a key; it may be damaged."""
        path = self._path(parts)
        return path is not None and os.path.isfile(path)

    def put(self, body: bytes, *parts: str, before: bytes = b"") -> None:
        """Keep bytes under a key, with others before them; does nothing where the disk cannot be written."""
        path = self._path(parts)
        if path is None or len(before) + len(body) > MAX_ENTRY:
            return
        with contextlib.suppress(OSError):
            self._make(path.parent)
            number, made = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            try:
                with os.fdopen(number, "wb") as file:
                    file.writelines((_head(path, before, body), b"\n", before, body))
                os.replace(made, path)
            except BaseException:  # an interrupt, too, leaves nothing behind
                with contextlib.suppress(OSError):
                    os.unlink(made)
                raise

    def _make(self, folder: Path) -> None:
        assert self.folder is not None
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink():
            raise OSError(40, "a link in place of a folder of the cache")

    @contextlib.contextmanager
    def lock(self, *parts: str, wait: float = LOCK_WAIT) -> Iterator[None]:
        """Hold off others that fetch the same, for `wait` seconds; goes on without a lock where there can be none."""
        path = self._path(parts)
        held = None
        if path is not None:
            from filelock import FileLock  # noqa: PLC0415 (only with the network)

            with contextlib.suppress(OSError, NotImplementedError):  # its own Timeout is an OSError
                self._make(path.parent)
                held = FileLock(f"{path}.lock", timeout=max(0.0, min(wait, LOCK_WAIT)))
                held.acquire()
        try:
            yield
        finally:
            if held is not None and held.is_locked:
                held.release()

    def usage(self) -> Usage:
        """Count entries and bytes."""
        files = list(self._files())
        return Usage(str(self.folder or ""), len(files), sum(info.st_size for _, info in files))

    def prune(self, older: float = 0.0, now: float = 0.0) -> Usage:
        """Remove the entries last written more than `older` seconds before `now`; returns what was removed."""
        gone, size = 0, 0
        for path, info in self._files(locks=True):
            if info.st_mtime <= now - older:
                with contextlib.suppress(OSError):
                    os.unlink(path)
                    counted = not path.name.endswith(".lock")
                    gone, size = gone + counted, size + info.st_size * counted
        return Usage(str(self.folder or ""), gone, size)

    def _files(self, *, locks: bool = False) -> Iterator[tuple[Path, os.stat_result]]:
        if self.folder is None:
            return
        try:
            shelves = [entry.path for entry in os.scandir(self.folder) if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return
        for shelf in shelves:
            with contextlib.suppress(OSError):
                for entry in os.scandir(shelf):
                    if entry.is_file(follow_symlinks=False) and (locks or not entry.name.endswith(".lock")):
                        yield Path(entry.path), entry.stat(follow_symlinks=False)


def _head(path: Path, *body: bytes) -> bytes:
    """Return the first line of an entry: a digest of what it holds, and of whose it is."""
    hashed = hashlib.sha256(f"{path.parent.name}{path.name}\n".encode())
    for part in body:
        hashed.update(part)
    return MAGIC + hashed.hexdigest().encode()


def _ours(info: os.stat_result) -> bool:
    return not hasattr(os, "getuid") or info.st_uid == os.getuid()
