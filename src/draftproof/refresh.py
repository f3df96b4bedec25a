"""Recordings, written and refreshed: from folders and from the Hub, each whole or not at all, and what differs with it.

A recording that stands is replaced only where that was asked for. One bad repo does not stop the others.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftproof.api import check_pair, full_name, hub_origin, record, record_source, recordings
from draftproof.contracts import Pair
from draftproof.diff import diff
from draftproof.findings import Finding, Report, Section, finding, nearest, unknown, visible
from draftproof.hub import (
    COMMIT,
    REPO,
    Source,
    address,
    cached_revision,
    cached_snapshot,
    hosted,
    no_checkpoint,
    open_model,
    open_snapshot,
    read_recording,
    recorded_at,
    recording_name,
    recording_of,
    with_name,
)
from draftproof.library import Library
from draftproof.render import as_json
from draftproof.strict import CONFIG_LIMIT, strict_json

SILENT = 3  # repos in a row of which a server gives none, after which it is not asked again
_SERVER = ("SRC104", "SRC105", "SRC107")  # what a server fails with, whatever the repo
_MOST = 20  # files named


@dataclass
class Fresh:
    """Hold what came of one recording: written, same (as it stands), stands (and differs), or failed, with the reason.

    ``old`` is the recording that was read so far, ``also`` says of counts and files what differs from it.
    """

    asked: str
    state: str
    report: Report
    repo: str = ""
    revision: str = ""
    path: Path = Path()
    counts: str = ""
    old: Source | None = None
    new: Source | None = None
    also: list[str] = field(default_factory=list)
    review: Report | None = None
    removed: Path | None = None
    local: bool = False  # from a folder

    @property
    def exit_code(self) -> int:
        """Return the exit code: 0 recorded, 2 another one stands, else that of what failed."""
        return {"failed": self.report.exit_code or 1, "stands": 2}.get(self.state, 0)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON data."""
        out: dict[str, Any] = {"asked": self.asked, "state": self.state, "repo": self.repo, "revision": self.revision}
        out["file"] = shown(self.path) if self.state != "failed" else None
        out |= {"removed": shown(self.removed) if self.removed else None, "also": self.also}
        out["review"] = self.review.to_dict() if self.review else None
        return out | {"report": self.report.to_dict() if self.state == "failed" else None}


def exit_code(codes: Iterable[int]) -> int:
    """Return the exit code of many: wrong usage before a failure, that before what could not be judged."""
    seen = set(codes)
    return next((code for code in (2, 1, 4) if code in seen), 0)


def shown(path: Path) -> str:
    """Return a path as the current folder sees it."""
    return os.path.relpath(path)


def _failed(asked: str, *found: Finding) -> Fresh:
    rung = "contract" if any(f.code.startswith("CON") for f in found) else "conforms"
    return Fresh(asked, "failed", Report(visible(asked), (Section.of(rung, found),)))


# --- one recording ------------------------------------------------------------------------------------------------


def refresh(
    spec: str,
    library: Library,
    folder: Path,
    *,
    name: str = "",
    revision: str = "",
    output: Path | None = None,
    replace: bool = False,
) -> Fresh:
    """Record a folder, or ORG/NAME[@REV] from the Hub, into a folder of recordings, or into the file output."""
    try:
        local = bool(name) or spec.startswith((".", "/", "~")) or os.path.exists(os.path.expanduser(spec)) or not spec
    except ValueError:  # a NUL
        local = True
    data, report = record(spec, name, library) if local else from_hub(spec, library, revision)
    if data is None:
        return Fresh(spec, "failed", report)
    new, text = data["recording"], as_json(data["recording"])
    path = output or folder / data["file"]
    source = recording_of(strict_json(text.encode("utf-8", "surrogatepass"))[0], folder / data["file"])
    if len(text) > CONFIG_LIMIT or isinstance(source, Finding):
        seen = source.observed if isinstance(source, Finding) else f"{len(text)} bytes"
        why, most = "what was read makes no recording that can be used", f"at most {CONFIG_LIMIT} bytes, well formed"
        return _failed(spec, unknown("SRC115", visible(spec), why, expected=most, observed=seen))
    tensors = new["tensors"]
    counts = f"{tensors['count']:,} tensors"
    counts += f", {tensors['parameters']:,} parameters" if tensors["parameters"] is not None else ""
    out = Fresh(spec, "written", report, new["repo"], new["revision"], path, counts, new=source, local=local)
    before = _standing(path, out, folder, library)
    if output is None and os.path.lexists(path):
        if isinstance(before, Mapping) and _content(before) == _content(json.loads(text)):
            out.state = "same"
            return out
        if not replace:
            out.state = "stands"
    if isinstance(before, Mapping) and out.old is not None:
        out.also = [*_counts(before.get("tensors"), new["tensors"]), *_files(before.get("files"), new["files"])]
    if out.state == "stands":
        return review(out, library)
    if problem := put(path, text):
        return _failed(spec, problem)
    return out


def _standing(path: Path, out: Fresh, folder: Path, library: Library) -> Any:
    """Return what the recording that was read so far holds, and note it: the file at path, or another of the repo."""
    old = read_recording(path) if path.parent == folder and path.exists() else open_model(out.repo, recordings(library))
    if isinstance(old, Finding) or old.name != out.repo or old.kind != "recording":
        return None
    out.old = old
    name = recording_name(old.name, old.revision)
    files = [p for p in (path, *(root / name for root in recordings(library))) if p.name == name and p.is_file()]
    try:
        return json.loads(files[0].read_bytes())
    except (OSError, ValueError, IndexError):
        return None


def _content(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != "read"}


def _counts(old: Any, new: Mapping[str, Any]) -> Iterator[str]:
    """Say which counts of tensors and parameters differ, and whether the names do."""
    if not isinstance(old, Mapping):
        return
    for key in ("count", "parameters"):
        if old.get(key) is not None and old[key] != new[key]:
            yield f"{'tensors' if key == 'count' else key} {old[key]} → {'not known' if new[key] is None else new[key]}"
    if old.get("names_sha256") and old["names_sha256"] != new["names_sha256"]:
        yield "names of tensors changed"
    if "absent" not in old and "absent" in new:
        yield "which tensors of the contract it lacks was not recorded, and is now"


def _files(old: Any, new: Mapping[str, Any]) -> Iterator[str]:
    """Say which files are recorded otherwise: there, gone, of another size, of another hash."""
    if not isinstance(old, Mapping):
        return
    lines = []
    for name in sorted(old.keys() | new.keys()):
        a, b = old.get(name), new.get(name)
        if not isinstance(a, Mapping) or b is None:
            lines.append(f"{visible(name)} {'added' if b is not None else 'removed'}")
        elif a.get("size") != b["size"]:
            lines.append(f"{visible(name)} {a.get('size')} → {b['size']} bytes")
        else:
            lines += [f"{visible(name)} {key.removesuffix('_sha256').replace('sha256', 'bytes')} changed"
                      for key in b if key != "size" and a.get(key) != b[key]]  # fmt: skip
    yield from lines[:_MOST]
    if len(lines) > _MOST:
        yield f"and {len(lines) - _MOST} more"


def review(out: Fresh, library: Library) -> Fresh:
    """Compare a recording with the one that was read so far, in the field's terms; asks no network."""
    if out.old is not None and out.new is not None:
        out.review = diff(out.old, out.new, Library(*library.roots, shipped=False))
    return out


def put(path: Path, text: str) -> Finding | None:
    """Write a file whole or not at all; returns why it could not be written."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(path) and not os.path.isfile(path):  # a terminal, a pipe
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
            return None
        try:
            beside.write_text(text, encoding="utf-8", errors="backslashreplace")
            os.replace(beside, os.path.realpath(path))
        finally:
            beside.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        help = "give a place that can be written: --contracts DIR or --output FILE"
        parts: Any = {"expected": "a file that can be written", "observed": visible(why), "help": help}
        return finding("SRC122", visible(path), "the recording cannot be written", **parts)
    return None


# --- from the Hub -------------------------------------------------------------------------------------------------


def from_hub(spec: str, library: Library, revision: str = "") -> tuple[dict[str, Any] | None, Report]:
    """Make the recording of a repo on the Hub at a revision, main by default; a branch is resolved to its commit."""
    source = opened(spec, library, revision)
    if isinstance(source, Finding):
        return None, _failed(spec, source).report
    origin = "a snapshot in a Hub cache" if source.folder is not None else hub_origin(source)
    return record_source(source, spec, source.repo, str(source.revision), origin, library)


def opened(spec: str, library: Library, revision: str = "") -> Source | Finding:
    """Open a repo on the Hub with its file list; where no network is allowed, what is kept of it on this machine."""
    named = address(full_name(spec, library))
    if isinstance(named, Finding):
        pairs = library.files("pair")
        if spec in pairs or nearest(spec, pairs):
            help = f"of a pair: draftproof record {visible(spec)} --drafter-revision COMMIT, or --all"
            seen = "a pair" if spec in pairs else f"{named.observed}{nearest(spec, pairs)}"
            return finding(
                "SRC117", visible(spec), expected="a folder, ORG/NAME or ORG/NAME@REV", observed=seen, help=help
            )
        return named
    repo, at = named
    known, _ = library.model(repo)
    repo, at = known.repo if known else repo, at or revision
    if not hosted(repo):
        return finding("SRC117", visible(spec), expected="ORG/NAME of a repo on the Hub", observed=visible(repo))
    if library.hub is None or library.hub.mode == "recordings":
        seen, help = "--hub recordings: nothing else is read", "leave --hub recordings away"
        return unknown("SRC106", visible(repo), expected="the Hub", observed=seen, help=help)
    source: Source | Finding = library.hub.open(repo, at, "target", None)  # read with its file list
    lacking = source if isinstance(source, Finding) else library.hub.list_files(source)
    if lacking is not None and lacking.code in ("SRC106", "SRC107") and library.hub.offline:
        commit = at if COMMIT.fullmatch(at) else cached_revision(repo, at or "main")
        if commit and (folder := cached_snapshot(repo, commit)):
            source, lacking = open_snapshot(folder, repo), None
            if isinstance(source, Source):
                source.repo, source.revision = repo, commit
    lacking = with_name(lacking, repo, recordings(library)) if lacking is not None else None
    return lacking or (no_checkpoint(source) if isinstance(source, Source) else None) or source


# --- all that contracts use ---------------------------------------------------------------------------------------


@dataclass
class Used:
    """Hold a model that pairs name: at which commit, or "" for none, and which pairs."""

    repo: str
    revision: str
    pairs: list[str] = field(default_factory=list)

    @property
    def asked(self) -> str:
        """Return ORG/NAME[@COMMIT]."""
        return self.repo + (f"@{self.revision}" if self.revision else "")


@dataclass
class All:
    """Hold what came of a refresh: the recordings, the pairs that read them, what was left as it is."""

    made: list[Fresh] = field(default_factory=list)
    pairs: list[tuple[str, str, Report]] = field(default_factory=list)  # id, the verdict before, the report after
    left: list[str] = field(default_factory=list)


def used(library: Library, root: Path) -> tuple[list[Used], list[str], list[Fresh]]:
    """Return the recorded models that the pairs of a folder name, those that are not recorded, and broken pairs."""
    models: dict[tuple[str, str], Used] = {}
    left: dict[tuple[str, str], str] = {}
    broken: list[Fresh] = []
    for id, path in library.files("pair").items():
        if path.parent.parent != root:
            continue
        pair, found = library.get("pair", id)
        if not isinstance(pair, Pair):
            broken.append(_failed(f"pair {id}", *found))
            continue
        for role in ("drafter", "target"):
            name, revision = getattr(pair, role), getattr(pair, f"{role}_revision") or ""
            if name.startswith((".", "/", "~")):
                continue
            one = library.model(name)[0]
            repo = one.repo if one else name
            if not (REPO.fullmatch(repo) and hosted(repo)):
                continue
            if recorded_at(repo, recordings(library)):
                models.setdefault((repo, revision), Used(repo, revision)).pairs.append(id)
            else:
                at = Used(repo, revision).asked
                left[repo, revision] = f"{at} is not recorded: draftproof record {at}"
    return [models[key] for key in sorted(models)], [left[key] for key in sorted(left)], broken


def refresh_all(library: Library, root: Path) -> All:
    """Refresh the recordings that the pairs of a folder of contracts read; say which acceptances no longer apply."""
    root = Path(os.path.abspath(root))
    models, left, broken = used(library, root)
    out = All(broken, left=[visible(line, 1000) for line in left])
    pinned = {(one.repo, one.revision) for one in models}
    ids = sorted({id for one in models for id in one.pairs})
    before = _checked(ids, library)
    failed: list[Finding] = []
    for one in models:
        if len(failed) == SILENT:
            seen = f"not asked: {failed[-1].observed} of {SILENT} repos before it"
            out.made.append(_failed(one.asked, unknown(failed[-1].code, one.repo, expected="an answer", observed=seen)))
            continue
        old = open_model(one.asked, recordings(library))
        fresh = refresh(one.repo, library, root / "recordings", revision=one.revision, replace=True)
        fresh.asked = one.asked
        server = [f for f in fresh.report.findings if f.code in _SERVER] if fresh.state == "failed" else []
        failed = [*failed, server[0]] if server else []
        if isinstance(old, Source) and fresh.state in ("written", "same"):
            stale = root / "recordings" / recording_name(old.name, old.revision)
            if stale != fresh.path and stale.is_file() and (one.repo, old.revision or "?") not in pinned:
                with contextlib.suppress(OSError):
                    stale.unlink()
                    fresh.removed = stale
        out.made.append(fresh)
    for fresh in out.made:
        if fresh.state == "written":
            review(fresh, library)
    out.pairs = [(id, before[id].verdict, report) for id, report in _checked(ids, library).items()]
    return out


def _checked(ids: Sequence[str], library: Library) -> dict[str, Report]:
    """Check pairs on recordings alone."""
    alone = Library(*library.roots, shipped=False)
    files = alone.files("pair")
    return {id: check_pair(alone.get("pair", id)[0], alone, base=files[id].parent) for id in ids}


def idle(report: Report) -> Sequence[Finding]:
    """Return what a pair accepts and that no longer applies."""
    return [f for f in report.findings if f.code == "CON112"]
