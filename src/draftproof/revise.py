"""A pair at another commit: its contract edited in place, and the recording of that commit. Nothing is written here."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from draftproof.api import find_pair, hub_origin, open_side, record, record_source, recordings
from draftproof.checkpoint import Checkpoint
from draftproof.contracts import Pair
from draftproof.findings import Finding, Report, Section, finding, unknown, visible
from draftproof.hub import COMMIT, REPO, Source, cached_snapshot, open_folder, open_model, read_recording, snapshot_name
from draftproof.language import FOLDERS, Where, scan
from draftproof.library import Library

ROLES = ("drafter", "target")


@dataclass
class Revised:
    """Hold what a pair at another commit asks for: files to write, the two versions of each side, what to know."""

    pair: Path
    files: dict[Path, str | dict[str, Any]] = field(default_factory=dict)  # recordings first, the pair last
    versions: list[tuple[Source, Source]] = field(default_factory=list)  # old and new of each side that moves
    says: list[str] = field(default_factory=list)


def revise(id: str, revisions: Mapping[str, str], folder: str, library: Library) -> Revised | Report:
    """Plan a pair whose drafter or target is at another commit; a report says why it cannot be.

    The commit is read from folder, else from the Hub cache, else an existing recording of it serves, else from the Hub.
    """
    pair, path, found = find_pair(id, library)
    if pair is None:
        return _no(id, "contract", *found)
    if _shipped(path):
        help = f"copy it first: to contracts/pairs/{path.name}"
        parts: dict[str, Any] = {"expected": "a pair of your own", "observed": "a shipped one", "help": help}
        return _no(id, "conforms", finding("SRC122", visible(path), "the pair ships with draftproof", **parts))
    path = path.absolute()
    root = path.parents[1]
    if path.parent.name != FOLDERS["pair"] or root not in library.roots:
        help = f"give --contracts {root}" if path.parent.name == FOLDERS["pair"] else "move it to contracts/pairs/"
        parts = {"expected": "a pair of the contracts that are read", "observed": visible(path.parent), "help": help}
        return _no(id, "conforms", finding("SRC122", visible(path), "its recording would have no place", **parts))
    out = Revised(path)
    text = path.read_bytes().decode("utf-8")
    problems: list[Finding] = []
    for role in ROLES:
        if not (revision := revisions.get(role)):
            continue
        name: str = getattr(pair, role)
        known, _ = library.model(name)
        model = known.repo if known else name  # an alias is no repo
        problem = _no_repo(role, model, revision)
        source = problem or _at_hand(model, revision, folder, library)
        if isinstance(source, Finding):
            problems.append(source)
            continue
        edited = with_text(text, (role, "revision"), revision, (role, "model"))
        if edited is None:
            seen = "a layout in which the place of the value was not found"
            help = f'write revision = "{revision}" by hand'
            problems.append(finding("SRC122", visible(path), expected="model = …", observed=seen, help=help))
            continue
        text = edited
        report = _keep(out, source, model, revision, root / "recordings", library)
        if report is not None:
            return report
        was = getattr(pair, f"{role}_revision") or "none"
        out.says.append(f"{role} {model}: revision {was} → {revision}")
        old = open_side(name, role, library, None if was == "none" else was, path.parent)
        if isinstance(old, Checkpoint):
            out.versions.append((old.source, source))
        else:
            out.says.append(f"the version before is not at hand ({old.observed}): no diff of it")
        out.says += _others(pair, role, name, library)
    if problems:
        return _no(id, "conforms", *problems)
    out.files[path] = text
    return out


def _no(subject: str, rung: str, *found: Finding) -> Report:
    return Report(visible(subject), (Section.of(rung, found),))


def _shipped(path: Path) -> bool:
    """Tell whether a contract lies inside the installed package, where nothing is to be edited."""
    return Path(__file__).resolve().parent in path.resolve().parents


def _no_repo(role: str, model: str, revision: str) -> Finding | None:
    if model.startswith((".", "/")) or not REPO.fullmatch(model):
        seen = f"{visible(model)}, a path"
        return finding("SRC117", role, "a path has no revision", expected="ORG/NAME in the pair", observed=seen)
    if not COMMIT.fullmatch(revision):
        help = "give the whole commit, as the repo's history shows it; a branch moves"
        return finding("SRC117", f"--{role}-revision", expected="40 hex digits", observed=visible(revision), help=help)
    return None


def _at_hand(model: str, revision: str, folder: str, library: Library) -> Source | Finding:
    """Return the model at that commit: from the folder given, the Hub cache, a recording, or the Hub."""
    opened: Source | Finding
    if folder:
        opened = open_model(folder, ())
        if isinstance(opened, Finding):
            return opened
        name = snapshot_name(opened)
        if name[1] is not None and name != (model, revision):
            seen = f"a snapshot of {name[0]}@{name[1]}"
            return finding("SRC119", visible(folder), "the folder is of another commit",
                           expected=f"{model}@{revision}", observed=seen)  # fmt: skip
    elif (cached := cached_snapshot(model, revision)) and _serves(cached, model, revision, library):
        opened = open_folder(cached, str(cached))
    else:
        opened = open_model(f"{model}@{revision}", recordings(library))
        if isinstance(opened, Source) and opened.provenance == "recorded":
            return opened
        hub = library.hub if library.hub is not None and library.hub.mode != "recordings" else None
        if hub is not None:
            found: Source | Finding = hub.open(model, revision, "target", None)
            lacking: Finding | None = hub.list_files(found) if isinstance(found, Source) else found
            if lacking is None or lacking.code != "SRC106":
                return lacking or found
        if cached is None:
            seen = "no --from, no snapshot in the Hub cache, no recording of that commit, and no Hub is asked"
            help = f"hf download {model} --revision {revision}, then again; or --from a folder that holds that commit"
            return unknown(
                "SRC112", f"{model}@{revision[:7]}", expected="the commit, at hand", observed=seen, help=help
            )
        opened = open_folder(cached, str(cached))
    opened.name, opened.repo, opened.revision = model, model, revision
    return opened


def _serves(snapshot: Path, model: str, revision: str, library: Library) -> bool:
    """Tell whether a snapshot is whole enough to be recorded, or there is no Hub to give the rest."""
    hub = library.hub
    if hub is None or hub.mode == "recordings" or hub.offline:
        return True
    return record(str(snapshot), f"{model}@{revision}", library)[0] is not None


def _keep(out: Revised, source: Source, model: str, revision: str, into: Path, library: Library) -> Report | None:
    """Add the recording of a folder to the files; a report says why it cannot be one."""
    if source.kind == "recording":
        out.says.append(f"recorded before: {model}@{revision[:7]}")
        return None
    if source.folder is None:
        data, report = record_source(source, f"{model}@{revision[:7]}", model, revision, hub_origin(source), library)
    else:
        data, report = record(str(source.folder), f"{model}@{revision}", library)
    if data is None:
        return report
    path = into / data["file"]
    there = read_recording(path) if path.exists() else None
    if path.exists() and not (isinstance(there, Source) and (there.name, there.revision) == (model, revision)):
        help = "look at it, and remove it if it is not needed"
        return _no(model, "conforms", finding("SRC122", visible(path), "another file stands where the recording goes",
                                              expected=f"a recording of {model}@{revision}", observed="not one",
                                              help=help))  # fmt: skip
    out.files[path] = data["recording"]
    return None


def _others(pair: Pair, role: str, model: str, library: Library) -> Iterator[str]:
    """Name the other pairs of the same model: one without a revision reads the new recording from now on."""
    for id in library.mentioning("pair", [model]):
        other, _ = library.get("pair", id)
        if isinstance(other, Pair) and other.id != pair.id and getattr(other, role) == model:
            pinned = getattr(other, f"{role}_revision")
            how = f"stays at {pinned[:7]}" if pinned else "names no revision, and reads a recorded commit before others"
            yield f"pair {id} {how}"


def with_text(text: str, where: Where, value: str, after: Where) -> str | None:
    """Return a TOML text in which one text value is another and all else stands as it was; None if that cannot be.

    A value that is not there yet comes after another one, in the layout of that one.
    """
    spans: dict[Where, tuple[int, int]] = {}
    scan(text, spans)
    try:
        wanted = deepcopy(tomllib.loads(text))
        table: Any = wanted
        for part in where[:-1]:
            table = table[part]
        table[where[-1]] = value
    except (ValueError, KeyError, TypeError):
        return None
    quoted, key, tries = json.dumps(value), str(where[-1]), []
    if where in spans:
        start, stop = spans[where]
        tries = [text[:start] + quoted + text[stop:]]
    elif after in spans:
        stop = spans[after][1]
        end = text.find("\n", stop)
        line = text[text.rfind("\n", 0, stop) + 1 : stop]
        indent = line[: len(line) - len(line.lstrip())]
        break_ = "\r\n" if "\r\n" in text else "\n"
        head, tail = (text + break_, "") if end < 0 else (text[: end + 1], text[end + 1 :])
        tries = [f"{text[:stop]}, {key} = {quoted}{text[stop:]}"]
        tries += [f"{head}{indent}{name} = {quoted}{break_}{tail}" for name in (key, ".".join(map(str, where)))]
    for tried in tries:
        try:
            if tomllib.loads(tried) == wanted:
                return tried
        except ValueError:
            continue
    return None
