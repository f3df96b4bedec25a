"""Where bytes come from: a local folder, a recording, or memory. All input and output of checkpoints is here.

Every source answers the same few questions, so that checks never know which one they read. Nothing raises:
what cannot be read is a finding.
"""

from __future__ import annotations

import json
import os
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from draftproof.container import Tensor
from draftproof.findings import Finding, finding, nearest, unknown, visible
from draftproof.rules import RULES
from draftproof.strict import CONFIG_LIMIT, strict_json

PROVENANCES = ("recorded", "derived", "partial")
RECORDING_SCHEMA = 1
REPO = re.compile(r"[A-Za-z0-9][\w.\-]*(?:/[A-Za-z0-9][\w.\-]*)+")
COMMIT = re.compile(r"[0-9a-f]{40}")
NOT_PLAIN = "a broken link, a folder or a pipe, not a plain file"
SHARD = r"(.+)-(\d{5,6})-of-(\d{5,6})\.(safetensors|bin)"  # stem, number, count, format
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_CONVERTED = "give the safetensors checkpoint that it was converted from"
FOREIGN: Mapping[str, tuple[str, str]] = {  # suffix of weights that are not read here -> what it is, what to do
    ".gguf": ("GGUF", f"GGUF has names and a config of its own, which are not read here: {_CONVERTED}"),
    ".onnx": ("ONNX", "an ONNX graph is made for one runtime: give the safetensors checkpoint it was exported from"),
    ".h5": ("TensorFlow", f"TensorFlow weights have other names: {_CONVERTED}, or save it as safetensors"),
    ".pb": ("TensorFlow", "a saved graph has no checkpoint names: give the safetensors checkpoint of the model"),
    ".tflite": ("TensorFlow", "a compiled graph has no checkpoint names: give the safetensors checkpoint of the model"),
    ".msgpack": ("Flax", f"Flax weights have other names, and are transposed: {_CONVERTED}, or save it as safetensors"),
    ".npz": ("NumPy", f"an array file states no dtype that engines know: {_CONVERTED}"),
    ".ckpt": ("a training checkpoint", "export the weights as safetensors with the trainer's own tool"),
    ".nemo": ("an archive", "unpack it, and export the weights as safetensors with the trainer's own tool"),
    ".engine": ("a compiled engine", "it serves one machine: give the safetensors checkpoint that it was built from"),
    ".mlmodel": ("a compiled model", "it serves one runtime: give the safetensors checkpoint that it was built from"),
}
_TRAINING = (  # patterns of names, compiled when one is asked for
    r"(optimizer|scheduler|training_(state|args)|trainer_state|rng_state|scaler|random_states|dataloader\.).*"
    r"|(bf16_|fp16_)?zero_pp_rank.*|mp_rank_\d.*|.*_(optim|model)_states\.pt|.*\.distcp|zero_to_fp32\.py|latest"
)
_TRAINING_FOLDER = r"global_step\d+|(pytorch_model|optimizer)_fsdp_\d+|iter_\d{7}|dist_ckpt|distcp"
_ADAPTER = r"adapter_(config\.json|model.*\.(safetensors|bin))"


def whole_set(files: Iterable[str]) -> list[str]:
    """Return the safetensors shards in order, if they are one numbered set with none missing, and alone; else none."""
    safe = [name for name in files if name.endswith(".safetensors")]
    found = [match for match in map(re.compile(SHARD).fullmatch, safe) if match]
    numbers = {int(match[2]): match[0] for match in found}
    alone = len(numbers) == len(safe) and len({(match[1], match[3]) for match in found}) == 1
    whole = alone and len(numbers) == int(found[0][3]) == max(numbers) and min(numbers) == 1
    return [name for _, name in sorted(numbers.items())] if whole else []


def is_training_state(name: str) -> bool:
    """Tell whether a file's name is that of a trainer's state."""
    return re.fullmatch(_TRAINING, name) is not None


def training_state(source: Source) -> list[str]:
    """Return the files and folders of a trainer's state."""
    folders = [f"{n}/" for n in source.folders if re.fullmatch(_TRAINING_FOLDER, n)]
    return [n for n in source.files if is_training_state(n)] + folders


def _is_adapter(name: str) -> bool:
    return re.fullmatch(_ADAPTER, name) is not None


@dataclass
class Source:
    """Hold one model's files, or what was recorded of them.

    Of a folder, ``files`` maps file names to sizes in bytes (-1: not a plain file) and ``read`` returns the bytes
    [start, stop) of one. A recording, a config alone and a model in memory have ``config`` and ``tensors`` instead.
    """

    name: str
    kind: str = "memory"  # folder, hub, recording, config, memory
    files: Mapping[str, int] = field(default_factory=dict)
    read: Callable[[str, int, int], bytes] = lambda name, start, stop: b""
    folders: tuple[str, ...] = ()  # the names of its folders
    folder: Path | None = None
    repo: str = ""  # the ORG/NAME that it is known, or declared, to be
    revision: str | None = None
    provenance: str = "read"
    normalised: bool = False
    origin: str = ""
    date: str = ""  # of a recording: when it was read
    config: Mapping[str, Any] | None = None
    unknown: frozenset[str] = frozenset()  # config keys that were not published
    respelled: frozenset[str] = frozenset()  # keys whose value is known, but not the name it has on disk
    tensors: Mapping[str, Any] | None = None
    stated: Mapping[str, Any] = field(default_factory=dict)  # of a GGUF: keys it lacks, or has of another type; own.KEY
    bytes_read: int = 0
    reader: Any = None  # of a repo on the Hub: reads ahead, keeps what it read
    listed: bool = True  # files holds every file there is
    notes: list[Finding] = field(default_factory=list)  # what was found while getting bytes

    @property
    def has_files(self) -> bool:
        """Tell whether there are files to read, here or on the Hub."""
        return self.kind in ("folder", "hub")

    def size(self, name: str) -> int:
        """Return the bytes of a file; -1 for what is not a plain file; raises OSError."""
        size = self.files[name]
        return int(self.reader.size(name)) if size < 0 and self.reader is not None else size

    @property
    def label(self) -> str:
        """Return the name with its commit and provenance: "org/name@1a2b3c4 (derived)"."""
        at = f"@{self.revision[:7]}" if self.revision else ""
        how = "" if self.provenance == "read" else f" ({self.provenance}{', normalised' if self.normalised else ''})"
        return f"{self.name}{at}{how}"

    def take(self, name: str, limit: int) -> bytes | Finding:
        """Read one small file whole; refuse more than limit bytes."""
        try:
            size = self.size(name)
        except OSError as error:
            return unreadable(name, error, self.label)
        if size < 0:
            return unreadable(name, OSError(22, NOT_PLAIN), self.label)
        if size > limit:
            return finding(
                "CFG311", name, expected=f"at most {limit} bytes", observed=f"{size} bytes", where=self.label
            )
        try:
            return self.read(name, 0, size)
        except OSError as error:
            return unreadable(name, error, self.label)


def unreadable(name: str, error: OSError, where: str) -> Finding:
    """Make the finding for a file that the operating system, or the network, does not let us read."""
    if isinstance(told := getattr(error, "finding", None), Finding):
        return told
    return unknown(
        "SRC113", visible(name), expected="a readable file", observed=error.strerror or str(error), where=where
    )


class Taken(NamedTuple):
    """Count what was moved over the network, and what our own cache gave instead."""

    requests: int = 0
    bytes: int = 0
    cached: int = 0


class Remote(Protocol):
    """Open repos over the network: what open_model asks of a Hub."""

    mode: str

    def open(self, repo: str, revision: str, role: str, patience: float | None) -> Source | Finding:
        """Return a repo at a revision, or why it could not be opened."""

    def list_files(self, source: Source) -> Finding | None:
        """Fill in the files of a repo that was opened without its file list; returns why not."""

    def taken(self) -> Taken:
        """Return what was moved since this was last asked."""

    def total(self) -> Taken:
        """Return all that was moved."""


def open_model(
    spec: str,
    recordings: tuple[Path, ...],
    revision: str | None = None,
    remote: Remote | None = None,
    role: str = "",
) -> Source | Finding:
    """Find what a spec names: a local folder, else ORG/NAME[@REV] as recorded, in a cache, or on the Hub."""
    try:
        path = Path(spec).expanduser()
        if not spec:
            return finding("SRC117", "model", expected="a folder, ORG/NAME or ORG/NAME@COMMIT", observed="nothing")
        if path.is_dir():
            source = open_folder(path, spec)
            return no_checkpoint(source) or source
        if path.is_file():
            return _not_a_folder(path, spec)
    except OSError as error:
        return unreadable(spec, error, spec)
    except (ValueError, RuntimeError) as error:  # a NUL, an unknown ~user
        return finding("SRC117", visible(spec), expected="a folder, ORG/NAME or ORG/NAME@COMMIT", observed=str(error))
    named = address(spec)
    if isinstance(named, Finding):
        return named
    repo, at = named
    at = at or revision or ""
    if remote is None or remote.mode == "recordings" or not hosted(repo):
        if at and not COMMIT.fullmatch(at):
            help = "give the whole commit, as the repo's history shows it; a branch moves"
            return finding("SRC117", visible(spec), expected="40 hex digits after @", observed=visible(at), help=help)
        return _open_recorded(repo, at, recordings)
    return _open_best(repo, at, recordings, remote, role)


def address(spec: str) -> tuple[str, str] | Finding:
    """Return repo and revision ("" where none is named) of ORG/NAME[@REV], or of the address of its page."""
    if "://" in spec and (found := re.fullmatch(_ADDRESS, spec)) and not re.fullmatch(_OTHER_REPO, spec):
        rev = found[2] or found[3]
        spec = f"{found[1]}@{rev}" if rev and rev != "main" else found[1]
    repo, _, at = spec.partition("@")
    if spec.startswith((".", "/", "~")) or "\\" in spec or not REPO.fullmatch(repo):
        if REPO.fullmatch(repo) or not re.search(r"[/\\~]", spec):
            code, expected = "SRC117", "a folder, ORG/NAME or ORG/NAME@COMMIT"
        else:
            code, expected = "SRC111", "a folder with config.json and weights"
        if other := re.fullmatch(_OTHER_REPO, spec):
            return _other_repo(spec, other[1], other[2])
        path = Path(os.path.expanduser(spec))
        try:
            siblings = [p.name for p in path.parent.iterdir() if p.is_dir()]
        except (OSError, ValueError):
            siblings = []
        seen = "a link that leads nowhere" if os.path.islink(path) else f"nothing there{nearest(path.name, siblings)}"
        return finding(code, visible(spec), expected=expected, observed=seen)
    if other := re.fullmatch(_OTHER_REPO, spec):
        return _other_repo(spec, other[1], other[2])
    return repo, at


def hosted(repo: str) -> bool:
    """Tell whether a name can be that of a repo on the Hub, and not of a file or of a model without an address."""
    return repo.count("/") == 1 and not repo.startswith("unknown/")


def _open_best(repo: str, at: str, recordings: tuple[Path, ...], remote: Remote, role: str) -> Source | Finding:
    """Take what proves most: a real recording at the commit, a snapshot in the Hub's cache, the Hub, any recording."""
    pinned = bool(COMMIT.fullmatch(at))
    recorded = None if remote.mode == "live" else _open_recorded(repo, at if pinned else "", recordings)
    if pinned and isinstance(recorded, Source) and recorded.provenance == "recorded":
        return recorded
    if pinned and (folder := cached_snapshot(repo, at)) and not _lacking(folder):
        return open_snapshot(folder, repo)
    usable = isinstance(recorded, Source) and (not at or at == "main" or recorded.revision == at)
    opened = remote.open(repo, at, role, PATIENCE if usable else None)
    if isinstance(opened, Source):
        return opened
    if remote.mode == "offline" or opened.code == "SRC106":
        commit = at if pinned else cached_revision(repo, at or "main")
        if commit and (folder := cached_snapshot(repo, commit)):
            if (lacking := _lacking(folder)) in ("", "weights"):
                return open_snapshot(folder, repo)
            opened = replace(opened, observed=f"offline, and the snapshot in the Hub's cache lacks {lacking}")
        if isinstance(recorded, Finding) and recorded.code == "SRC119":
            return recorded
    if usable and isinstance(recorded, Source) and opened.code == "SRC106":
        return recorded  # offline, as was asked
    if usable and isinstance(recorded, Source):
        recorded.notes.append(
            replace(opened, level="info", message="the Hub did not give it: the recording serves", help="")
        )
        return recorded
    return opened if isinstance(recorded, Source) else with_name(opened, repo, recordings)


def with_name(found: Finding, repo: str, recordings: tuple[Path, ...]) -> Finding:
    """Add to a finding that says no Hub gave a repo the name that may be meant, where one is known here."""
    if found.code not in _NO_ANSWER or not (near := _near(repo, recordings)):
        return found
    help = f"use the name proposed, if it is meant; else: {found.help or RULES[found.code].fix}"
    return replace(found, observed=f"{found.observed}{near}", help=help)


_NO_ANSWER = ("SRC101", "SRC106", "SRC107")  # the repo may be another's, or of no one: its name may be wrong


def _near(repo: str, recordings: tuple[Path, ...]) -> str:
    """Return " (did you mean X?)" for the repo recorded here, or in the Hub's cache, that is nearly called so."""
    known = {_repo_of(name) for root in recordings for name in _recording_names(root)}
    kept = [name.removeprefix("models--") for name in _listing(cache_folder()) if name.startswith("models--")]
    known |= {name.replace("--", "/", 1) for name in kept}
    if repo in known:  # the name is right
        return ""
    org = repo.partition("/")[0].lower() + "/"
    return nearest(repo, [one for one in sorted(known) if one.lower().startswith(org)] or sorted(known))


PATIENCE = 3.0  # seconds that a Hub has to answer where a recording could serve
_REVISION = r"[\w][\w.\-]*"
_ADDRESS = (
    r"(?:hf|https?)://(?:[^/]*\.co/|[^/]*:\d+/)?([\w.-]+/[\w.-]+)"
    rf"(?:@({_REVISION})|/(?:tree|blob|resolve)/({_REVISION})(?:/.*)?)?/?"
)
_OTHER_REPO = r"(?:(?:hf|https?)://(?:[^/]*\.co/)?)?(datasets|spaces)/([\w.-]+/[\w.-]+).*"


def _other_repo(spec: str, kind: str, name: str) -> Finding:
    help = f"give a model; if {visible(name)} names one, write it without {kind}/"
    seen = f"a {kind[:-1]} repo"
    return finding("SRC125", visible(spec), expected="the repo of a language model", observed=seen, help=help)


def _not_a_folder(path: Path, spec: str) -> Finding:
    """Say of a file that was given for a folder what it is, and which folder is meant."""
    suffix, folder = path.suffix.lower(), path.parent
    if suffix in FOREIGN:
        what, help = FOREIGN[suffix]
        seen = f"a {suffix} file: {what}"
        return unknown("SRC116", visible(spec), expected="a safetensors checkpoint", observed=seen, help=help)
    seen, help = "a file", f"give its folder: {folder}"
    if path.name.endswith(".index.json"):
        seen = "the index of a sharded checkpoint"
    elif _is_adapter(path.name):
        return no_checkpoint(open_folder(folder, str(folder))) or _a_folder(spec, "a file of an adapter", help)
    elif suffix in WEIGHTS:
        seen = "one weight file: its config.json stands beside it, or is missing"
    elif path.name == "config.json":
        help += f"; or its config alone: --config {path}"
    elif suffix == ".toml":
        seen, help = "a TOML file", f"a pair contract is given alone: draftproof check {path}"
    elif suffix in (".zip", ".tar", ".gz", ".tgz", ".zst", ".xz"):
        seen, help = "an archive", "unpack it, and give the folder that holds config.json"
    return _a_folder(spec, seen, help)


def _a_folder(spec: str, seen: str, help: str) -> Finding:
    return finding("SRC117", visible(spec), expected="a folder", observed=seen, help=help)


def open_folder(path: Path, name: str) -> Source:
    """Open a local folder; its files are listed now and read on demand."""
    files: dict[str, int] = {}
    folders: list[str] = []
    for entry in sorted(os.scandir(path), key=lambda e: e.name):
        try:
            if entry.is_file():
                files[entry.name] = entry.stat().st_size
            elif entry.is_symlink():
                files[entry.name] = -1  # a dangling link: it is named, and reading it says why it cannot be
            elif not entry.is_dir() or entry.name.endswith(WEIGHTS) or entry.name == "config.json":
                files[entry.name] = -1  # a pipe, a socket, a folder where a file should be
            else:
                folders.append(entry.name)
        except OSError:
            files[entry.name] = -1
    snapshot = path.resolve()
    revision = snapshot.name if snapshot.parent.name == "snapshots" and COMMIT.fullmatch(snapshot.name) else None
    source = Source(str(name), "folder", files, folders=tuple(folders), folder=path, revision=revision)
    source.repo, _ = snapshot_name(source)

    def read(file: str, start: int, stop: int) -> bytes:
        with open(path / file, "rb") as stream:
            stream.seek(start)
            data = stream.read(max(0, stop - start))
        source.bytes_read += len(data)
        return data

    source.read = read
    return source


# --- folders that hold something else -----------------------------------------------------------------------------

_SHOWN = 6  # folders proposed
_SMALL = 1 << 20  # bytes of a file that only says what a folder is
_DATA = (".parquet", ".arrow", ".jsonl", ".jsonl.gz", ".csv", ".tsv", ".webdataset", ".tar")
_DATA_FILES = ("dataset_infos.json", "dataset_info.json", "dataset_dict.json")


def is_model_weights(name: str) -> bool:
    """Tell whether a file may hold a model's weights: no adapter's and no trainer's state."""
    return name.endswith(WEIGHTS) and not (_is_adapter(name) or is_training_state(name))


def no_checkpoint(source: Source) -> Finding | None:
    """Say of a folder that holds no checkpoint of a language model what it holds; None where it may be one."""
    files = source.files
    diffusion = "model_index.json" in files or any(n.startswith("diffusion_pytorch_model") for n in files)
    weights = any(is_model_weights(n) for n in files)
    if not diffusion and weights and "config.json" in files:
        return None
    name = visible(source.name)
    if diffusion:
        return _diffusion(source)
    if any(_is_adapter(n) for n in files) and not weights:
        return _adapter(source)
    if "config.json" in files:
        return None
    foreign = sorted(n for n in files if n.endswith(tuple(FOREIGN)))
    if foreign and not [n for n in files if is_model_weights(n) and n not in foreign]:
        what, help = FOREIGN[Path(foreign[0]).suffix]
        seen = f"{what}: {_few(foreign)}"
        return unknown("SRC116", name, expected="config.json and safetensors files", observed=seen, help=help)
    if weights:
        return None
    if found := _below(source):
        return found
    if training := training_state(source):
        return training_only(source, training)
    below = names_below(source)
    data = [n for n in (*files, *below) if n.endswith(_DATA) or n in _DATA_FILES]
    if data:
        help = "give the folder of a model; a dataset is read by a trainer, not here"
        seen = f"a dataset: {_few(data)}"
        return finding("SRC125", name, expected="config.json and safetensors files", observed=seen, help=help)
    return None


def training_only(source: Source, training: list[str]) -> Finding:
    """Make the finding for a folder with a trainer's state and no weights."""
    help = "export the weights with the trainer's own tool, and give the folder that it writes"
    if any("zero_pp_rank" in n or "_optim_states" in n or n.startswith("global_step") for n in training):
        help = "its shards must be put together first: " + help
    return finding("SRC126", visible(source.name), expected="safetensors files", observed=_few(training), help=help)


def _few(names: list[str]) -> str:
    shown = ", ".join(visible(n, 80) for n in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def small_json(source: Source, name: str) -> dict[str, Any]:
    """Return a small JSON object of a folder; an empty one where there is none, or it cannot be read."""
    if not 0 <= source.files.get(name, -1) <= _SMALL:
        return {}
    raw = source.take(name, _SMALL)
    data, faults = strict_json(raw) if isinstance(raw, bytes) else (None, [])
    return data if isinstance(data, dict) and not any(f.fatal for f in faults) else {}


def _diffusion(source: Source) -> Finding:
    kind = visible(small_json(source, "model_index.json").get("_class_name", ""), 80)
    seen = f"a diffusion model{f' ({kind})' if kind else ''}"
    parts = [n for n in source.folders if n in ("unet", "vae", "transformer", "text_encoder", "scheduler")]
    help = "drafters and targets are language models: give one of those"
    note = f"its parts: {_few(parts)}" if parts else ""
    return finding("SRC125", visible(source.name), expected="a checkpoint of a language model", observed=seen,
                   note=note, help=help)  # fmt: skip


def _adapter(source: Source) -> Finding:
    data = small_json(source, "adapter_config.json")
    kind, base = data.get("peft_type"), data.get("base_model_name_or_path")
    base = visible(base) if isinstance(base, str) and base.strip() else ""
    seen = f"a {visible(kind)} adapter" if isinstance(kind, str) and kind else "an adapter"
    seen += f" of {base}" if base else ", of a base model that it does not name"
    help = f"merge it into {base or 'its base model'}, save the result as safetensors, and give that folder"
    return finding("SRC124", visible(source.name), expected="a whole checkpoint", observed=seen, help=help)


def _below(source: Source) -> Finding | None:
    """Propose the folder that is meant, where a folder above it was given."""
    folder, own = source.folder, ""
    if folder is None:
        return None
    cached = [n for n in source.folders if n.startswith("models--")]
    name = folder.resolve().name
    if "snapshots" in source.folders or name == "snapshots":
        root = folder.resolve() if name != "snapshots" else folder.resolve().parent
        if root.name.startswith(("datasets--", "spaces--")):
            return _other_repo(source.name, root.name.partition("--")[0], root.name.partition("--")[2])
        snapshots = folder if name == "snapshots" else folder / "snapshots"
        below = sorted(open_folder(snapshots, "").folders)
        main = _ref(root / "refs" / "main")
        below.sort(key=lambda n: (n != main, n))
        repo = root.name.removeprefix("models--").replace("--", "/", 1)
        own = f"a Hub cache folder of {visible(repo)}, with {len(below)} snapshot{'s' if len(below) != 1 else ''}"
        if not below:
            return finding("SRC127", visible(source.name), expected="a snapshot", observed=f"{own}: nothing to read",
                           help="download the repo again")  # fmt: skip
        paths = [str(snapshots / n) for n in below]
        said = f"give the snapshot: {paths[0]}" + (" (refs/main)" if main == below[0] and len(below) > 1 else "")
        said += f"; or {_few(paths[1:])}" if paths[1:] else ""
    elif cached:
        own = f"the root of a Hub cache, with {len(cached)} models"
        said = f"give a snapshot of one: {_few([str(folder / n / 'snapshots' / 'COMMIT') for n in cached])}"
    else:
        below = [n for n in source.folders if _holds_model(folder / n)]
        if not below:
            return None
        numbered = [n for n in below if re.search(r"\d+$", n)]
        below.sort(key=lambda n: [-int(d) for d in re.findall(r"\d{1,18}", n)[-1:]] or [1])
        own = f"no model here, but in {len(below)} folder{'s' if len(below) != 1 else ''}: {_few(below)}"
        said = f"give one of them: {folder / below[0]}" if len(below) > 1 else f"give {folder / below[0]}"
        said += " has the highest number" if len(numbered) > 1 else ""
    return finding(
        "SRC127", visible(source.name), expected="config.json and safetensors files", observed=own, help=said
    )


def _ref(path: Path) -> str:
    raw = read_plain(path, 200) if path.is_file() else b""
    return raw.decode("ascii", "replace").strip() if isinstance(raw, bytes) else ""


def _holds_model(path: Path) -> bool:
    """Tell whether a folder holds a config.json or weights of a model."""
    try:
        return any(n == "config.json" or is_model_weights(n) for n in os.listdir(path))
    except OSError:
        return False


def names_below(source: Source) -> list[str]:
    """Return the first names in the folders of a folder."""
    out: list[str] = []
    for name in source.folders[:_SHOWN]:
        try:
            out += [f"{name}/{n}" for n in sorted(os.listdir(f"{source.folder}/{name}"))[:100]]
        except OSError:
            continue
    return sorted(out)


# --- memory ---------------------------------------------------------------------------------------------------------


def in_memory(name: str, config: Any, tensors: Any) -> Source | Finding:
    """Make a source of a config and a mapping of tensor names to tensors, or to (dtype, shape)."""
    plain: Any = None
    if config is not None:
        try:  # as it would stand in a config.json: tuples are lists, NaN stays
            plain = json.loads(json.dumps(config, default=_named_type))
        except (TypeError, ValueError, RecursionError) as error:
            return finding("CFG302", f"{name}: config", expected="what JSON can hold", observed=visible(error))
    if tensors is not None and not isinstance(tensors, Mapping):
        seen = type(tensors).__name__
        return finding("SRC117", f"{name}: tensors", expected="a mapping of names to tensors", observed=seen)
    return Source(name, "memory", provenance="in memory", config=plain, tensors=tensors)


def _named_type(value: Any) -> str:
    """Write a dtype as its name; refuse other objects."""
    if type(value).__name__ == "dtype":
        return str(value).rpartition(".")[2]
    raise TypeError(f"{type(value).__name__} is not JSON")


# --- recordings ---------------------------------------------------------------------------------------------------


def recording_name(repo: str, revision: str | None) -> str:
    """Return the file name of a recording: org--name@1a2b3c4d.json, or @unknown.json."""
    return f"{repo.replace('/', '--')}@{revision[:8] if revision else 'unknown'}.json"


def recorded_repos(recordings: tuple[Path, ...]) -> dict[str, Path]:
    """Return repo -> recording file of all folders; the first folder wins, a commit wins over unknown."""
    found: dict[str, Path] = {}
    for root in recordings:
        for name in sorted(_recording_names(root), key=lambda n: (n.endswith("@unknown.json"), n)):
            found.setdefault(_repo_of(name), root / name)
    return found


def _repo_of(name: str) -> str:
    return name.rpartition("@")[0].replace("--", "/")


def _recording_names(root: Path, stem: str = "") -> list[str]:
    """Return the file names of the recordings in a folder, or of those of one repo, sorted; none of no folder."""
    names, start = _listing(root), f"{stem}@" if stem else ""
    first = bisect_left(names, start)  # they are sorted
    return [n for n in takewhile(lambda n: n.startswith(start), islice(names, first, None)) if n.endswith(".json")]


_LISTINGS: dict[Path, tuple[int, list[str]]] = {}  # folder -> when it last changed, its names
_SETTLED = 2 * 10**9  # ns: a folder that changed this long ago shows any later change by its time


def _listing(root: Path) -> list[str]:
    """Return the names in a folder, sorted; they are kept for as long as the folder does not change."""
    try:
        changed = os.stat(root).st_mtime_ns
        if root in _LISTINGS and _LISTINGS[root][0] == changed:
            return _LISTINGS[root][1]
        names = sorted(os.listdir(root))
    except OSError:
        return []
    if time.time_ns() - changed > _SETTLED:
        _LISTINGS[root] = changed, names
    return names


def _open_recorded(repo: str, at: str, recordings: tuple[Path, ...]) -> Source | Finding:
    stem = repo.replace("/", "--")
    named: dict[str, Path] = {}
    for root in recordings:
        for name in _recording_names(root, stem):
            named.setdefault(name, root / name)
    read = {
        p: source for p in named.values() if isinstance(source := read_recording(p), Finding) or source.name == repo
    }
    if not read:
        near = _near(repo, recordings)
        fetch = f"hf download {repo} --include '*.json' --local-dir DIR"
        help = f"give a folder: {fetch} is enough for what configs tell; its safetensors files decide the TEN rules"
        help = f"use the name proposed, if it is meant; else {help}" if near else help
        seen = f"no folder and no recording{near}"
        return unknown("SRC112", visible(repo), expected="a local folder or a recorded model", observed=seen, help=help)
    exact = [p for p in read if at and p.stem.endswith(f"@{at[:8]}")]
    newest = sorted(read, key=lambda p: getattr(read[p], "date", ""), reverse=True)
    source = read[(exact or sorted(newest, key=lambda p: _standing(p, read[p])))[0]]
    if isinstance(source, Source) and at and source.revision != at:
        seen = f"recorded at {source.revision or 'an unknown revision'}"
        return finding("SRC119", f"{repo}@{at[:7]}", expected=f"a recording of {at}", observed=seen)
    return source


def _standing(path: Path, source: Source | Finding) -> tuple[bool, bool]:
    """Return what puts a recording behind others of its repo: it names no commit, or was not read of a checkpoint."""
    return path.stem.endswith("@unknown"), isinstance(source, Source) and source.provenance != "recorded"


def recorded_at(repo: str, recordings: tuple[Path, ...]) -> list[str]:
    """Return the first 8 digits of the commit of each recording of a repo; unknown for one that names none."""
    stem = repo.replace("/", "--")
    return [n[len(stem) + 1 : -5] for root in recordings for n in _recording_names(root, stem)]


def read_plain(path: Path, limit: int) -> bytes | Finding:
    """Read a plain file of at most limit bytes; never waits for a pipe or a device."""
    try:
        if not path.is_file() and path.exists():
            raise OSError(22, "not a plain file")
        with open(path, "rb") as stream:
            raw = stream.read(limit + 1)
    except OSError as error:
        return unreadable(str(path), error, str(path))
    if len(raw) > limit:
        return unknown("SRC113", str(path), expected=f"at most {limit} bytes", observed="more", where=str(path))
    return raw


def read_recording(path: Path) -> Source | Finding:
    """Read a recording, strictly; what is wrong with it is one finding. One that does not change is read once."""
    try:
        seen = os.stat(path)
    except OSError:
        return _read_recording(path)
    settled = time.time_ns() - seen.st_mtime_ns > _SETTLED
    read = _recording_as_it_was(path, seen.st_mtime_ns, seen.st_size) if settled else _read_recording(path)
    if isinstance(read, Source):
        read = copy(read)
        read.notes = []
    return read


@lru_cache(maxsize=1024)
def _recording_as_it_was(path: Path, changed: int, size: int) -> Source | Finding:
    return _read_recording(path)


def _read_recording(path: Path) -> Source | Finding:
    def bad(expected: str, observed: str) -> Finding:
        return unknown("SRC115", path.name, expected=expected, observed=visible(observed), where=str(path))

    raw = read_plain(path, CONFIG_LIMIT)
    if isinstance(raw, Finding):
        return raw
    data, faults = strict_json(raw)
    if faults:
        return bad("strict JSON", f"{faults[0].text}: {faults[0].where}")
    source = recording_of(data, path)
    if isinstance(source, Source):
        source.bytes_read = len(raw)
    return source


def recording_of(data: Any, path: Path) -> Source | Finding:
    """Make the source of what a recording's file holds; what is wrong with it is one finding."""

    def bad(expected: str, observed: str) -> Finding:
        return unknown("SRC115", path.name, expected=expected, observed=visible(observed), where=str(path))

    if not isinstance(data, dict) or type(data.get("schema")) is not int or data["schema"] != RECORDING_SCHEMA:
        return bad(
            f"schema {RECORDING_SCHEMA}", str(data.get("schema") if isinstance(data, dict) else type(data).__name__)
        )
    want = {
        "repo": str,
        "provenance": str,
        "read": dict,
        "config": dict,
        "unknown": list,
        "respelled": list,
        "normalised": bool,
    }
    for key, kind in want.items():
        if not isinstance(data.get(key), kind):
            return bad(f"{key}: {kind.__name__}", f"{data.get(key)!r}")
    for key in ("unknown", "respelled"):
        if not all(isinstance(item, str) for item in data[key]):
            return bad(f"{key}: a list of config keys", f"{data[key]!r}")
    if data["provenance"] not in PROVENANCES:
        return bad(f"provenance: one of {', '.join(PROVENANCES)}", f"{data['provenance']!r}")
    revision = data.get("revision")
    if revision is None and data["provenance"] == "recorded":
        return bad("a commit, for a recorded one", "revision null")
    if revision is not None and not (isinstance(revision, str) and COMMIT.fullmatch(revision)):
        return bad("revision: 40 hex digits or null", f"{revision!r}")
    if problem := _bad_tensors(data.get("tensors")):
        return bad(*problem)
    if path.name != recording_name(data["repo"], revision):
        return bad(f"the file name {recording_name(data['repo'], revision)}", path.name)
    return Source(
        data["repo"],
        "recording",
        repo=data["repo"],
        revision=revision,
        provenance=data["provenance"],
        normalised=data["normalised"],
        origin=str(data["read"].get("source", "")),
        date=str(data["read"].get("date", "")),
        config=data["config"],
        unknown=frozenset(map(str, data["unknown"])),
        respelled=frozenset(map(str, data["respelled"])),
        tensors=data.get("tensors"),
    )


def _bad_tensors(tensors: Any) -> tuple[str, str] | None:
    """Return what is expected and seen where a recorded tensor table is not well formed; null is no table."""
    if tensors is None:
        return None
    if not isinstance(tensors, dict) or type(tensors.get("complete")) is not bool:
        return "tensors: an object with complete: true or false, or null", f"{tensors!r}"
    for key in ("count", "parameters"):
        if tensors.get(key) is not None and (type(tensors[key]) is not int or tensors[key] < 0):
            return f"tensors.{key}: a count or null", f"{tensors[key]!r}"
    absent = tensors.get("absent", [])
    if not isinstance(absent, list) or not all(isinstance(name, str) for name in absent):
        return "tensors.absent: a list of names", f"{absent!r}"
    named = tensors.get("named")
    if not isinstance(named, dict):
        return "tensors.named: an object", f"{named!r}"
    for name, row in named.items():
        good = isinstance(row, list) and len(row) == 2 and isinstance(row[0], str) and isinstance(row[1], list)
        if not good or not all(type(n) is int and 0 <= n < 2**63 for n in row[1]):
            return f"tensors.named.{visible(name)}: [dtype, [sizes]]", f"{row!r}"
    return None


def snapshot_name(source: Source) -> tuple[str, str | None]:
    """Return repo and commit of a folder that is a snapshot in a Hub cache: models--ORG--NAME/snapshots/COMMIT."""
    if source.folder is None or source.revision is None:
        return "", None
    return source.folder.resolve().parent.parent.name.removeprefix("models--").replace("--", "/", 1), source.revision


def cached_snapshot(repo: str, commit: str) -> Path | None:
    """Return the folder of a repo at a commit in the Hub cache of this machine, if it is there."""
    folder = cache_folder() / f"models--{repo.replace('/', '--')}" / "snapshots" / commit
    return folder if os.path.isdir(folder) else None


def _lacking(folder: Path) -> str:
    """Return what a snapshot lacks of a checkpoint, for a client may have taken some files only; "" where none does."""
    try:
        names = os.listdir(folder)
    except OSError:
        return "files that can be read"
    weights = [n for n in names if is_model_weights(n)]
    if "config.json" not in names or not weights:
        return "weights" if "config.json" in names else "config.json"
    safe = [n for n in weights if n.endswith(".safetensors")]
    sets: dict[tuple[str, str], int] = {}
    for match in (re.fullmatch(_OF, name) for name in safe or weights):
        if match:
            sets[match[1], match[2]] = sets.get((match[1], match[2]), 0) + 1
    gone = [int(of) - there for (_, of), there in sets.items() if there < int(of)]
    if gone:
        return f"{max(gone)} shard{'s' if max(gone) > 1 else ''}"
    if not sets and (index := next((n for n in names if n.endswith(".safetensors.index.json")), "")):
        raw = read_plain(folder / index, _INDEX_LIMIT)
        data = strict_json(raw)[0] if isinstance(raw, bytes) else None
        where = data.get("weight_map") if isinstance(data, dict) else None
        shards = {n for n in where.values() if isinstance(n, str)} if isinstance(where, dict) else set()
        return f"shards that {index} names" if shards - set(names) else ""
    return ""


_OF = r"(.+)-\d{1,6}-of-(\d{1,6})\.\w+"
_INDEX_LIMIT = 256 << 20  # bytes


def other_digest(told: str, body: bytes) -> str:
    """Return the digest of a whole file where it is not the one told, of git or of LFS; else ""."""
    import hashlib  # noqa: PLC0415 (only where a Hub tells a digest)

    seen = told
    if re.fullmatch(r"[0-9a-f]{40}", told):
        seen = hashlib.sha1(b"blob %d\0" % len(body) + body, usedforsecurity=False).hexdigest()
    elif re.fullmatch(r"[0-9a-f]{64}", told):
        seen = hashlib.sha256(body).hexdigest()
    return seen if seen != told else ""


_CHECKED = 64 << 20  # bytes of a file of the Hub's cache that is held to its digest


def open_snapshot(folder: Path, repo: str) -> Source | Finding:
    """Open a snapshot of the Hub cache, whose links must stay inside it; small files are held to their digest."""
    own = folder.parent.parent  # a user may keep one model on another disk
    try:
        roots = [os.path.realpath(cache_folder()), os.path.realpath(own)]
        for path in (folder, *sorted(folder.iterdir())):
            if path.is_symlink() and not any(Path(os.path.realpath(path)).is_relative_to(root) for root in roots):
                seen = f"{visible(path.name)} leads to another place"
                return unknown("SRC110", visible(repo), expected="links inside it", observed=seen, where=roots[0])
            if path.is_symlink() and os.path.realpath(path) == str(path):  # as far as it can be followed
                seen = f"{visible(path.name)} leads to itself"
                return unknown("SRC110", visible(repo), expected="links inside it", observed=seen, where=roots[0])
        source = open_folder(folder, repo)
    except OSError as error:
        return unreadable(repo, error, str(folder))
    plain, right = source.read, set[str]()

    def read(name: str, start: int, stop: int) -> bytes:
        whole = 0 <= source.files[name] <= _CHECKED and not name.endswith(WEIGHTS)
        if whole and name not in right and os.path.islink(folder / name):
            blob = Path(os.path.realpath(folder / name)).name
            if other_digest(blob, plain(name, 0, source.files[name])):
                error = OSError(5, "damaged")
                error.finding = unknown(  # type: ignore[attr-defined]
                    "SRC107", visible(name), "a file of the Hub's cache is damaged", expected=f"the digest {blob}",
                    observed="another", where=source.label, help="remove the snapshot, and fetch it again",
                )  # fmt: skip
                raise error
            right.add(name)
        return plain(name, start, stop)

    source.read = read
    return source


def cache_folder() -> Path:
    """Return the folder of the Hub cache of this machine."""
    env = os.environ
    home = Path(env.get("HF_HOME") or Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface")
    return Path(env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE") or home / "hub").expanduser()


def cached_revision(repo: str, revision: str) -> str:
    """Return the commit that the Hub cache of this machine last saw a branch or tag at, or ""."""
    folder = cache_folder() / f"models--{repo.replace('/', '--')}" / "refs"
    raw = read_plain(folder / revision, 100)
    commit = raw.decode("ascii", "replace").strip() if isinstance(raw, bytes) else ""
    return commit if COMMIT.fullmatch(commit) else ""


# --- values -------------------------------------------------------------------------------------------------------

GAP = 1 << 16  # bytes between two rows that are read in one go
VALUES_LIMIT = 256 << 20  # bytes that one read of values may move


class Rows(NamedTuple):
    """Hold the bytes of some rows of a tensor, in the order they were asked for, and how many bytes were moved."""

    data: bytes
    moved: int


def read_tensor(source: Source, file: str, tensor: Tensor, rows: Sequence[int] | None = None) -> Rows:
    """Read a tensor's values, or some of its rows, by ranges of its safetensors file; never the file.

    Ranges that lie near each other are read in one go. Raises OSError; ValueError for a row that is not there, or
    where more than VALUES_LIMIT bytes would move.
    """
    base = 8 + int.from_bytes(source.read(file, 0, 8), "little") + tensor.start
    whole = tensor.end - tensor.start
    count = tensor.shape[0] if tensor.shape else 1
    if rows is None:
        spans, wanted = [(0, whole)], [(0, whole)]
    else:
        if odd := [row for row in rows if not 0 <= row < count]:
            raise ValueError(f"row {odd[0]} of {count}")
        width = whole // count if count else 0
        wanted = [(row * width, (row + 1) * width) for row in rows]
        spans = []
        for start, stop in sorted(wanted):
            if spans and start - spans[-1][1] <= GAP:
                spans[-1] = (spans[-1][0], max(stop, spans[-1][1]))
            else:
                spans.append((start, stop))
    moved = sum(stop - start for start, stop in spans)
    if moved > VALUES_LIMIT:
        raise ValueError(f"{moved} bytes, more than {VALUES_LIMIT}")
    parts = {span: source.read(file, base + span[0], base + span[1]) for span in spans}
    if short := next((span for span, part in parts.items() if len(part) != span[1] - span[0]), None):
        raise OSError(5, f"the file ends before byte {base + short[1]}")
    out = []
    for start, stop in wanted:
        at = next(span for span in spans if span[0] <= start and stop <= span[1])
        out.append(parts[at][start - at[0] : stop - at[0]])
    return Rows(b"".join(out), moved)


# --- what is recorded ---------------------------------------------------------------------------------------------


def recorded_files(source: Source, weights: set[str]) -> dict[str, Any]:
    """Return size and hash of config.json and of each weight file's header; of other files the size. Raises OSError."""
    import hashlib  # noqa: PLC0415 (slow to import, and only record needs it)

    out: dict[str, Any] = {}
    for name, listed in source.files.items():
        size = source.size(name) if name in weights or name == "config.json" else listed
        out[name] = {"size": size if size >= 0 else None}
        if name == "config.json":
            out[name]["sha256"] = hashlib.sha256(source.read(name, 0, size)).hexdigest()
        elif name in weights and name.endswith(".safetensors"):
            stop = 8 + int.from_bytes(source.read(name, 0, 8), "little")
            out[name]["header_sha256"] = hashlib.sha256(source.read(name, 0, stop)).hexdigest()
    return out
