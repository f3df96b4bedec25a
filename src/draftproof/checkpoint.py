"""A checkpoint: its config, its tensor table, and how well each is known. Lazy; what reading finds is kept."""

from __future__ import annotations

import contextlib
import gc
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from draftproof.container import (
    INDEX_LIMIT,
    MAX_SHARDS,
    Alike,
    Header,
    Index,
    Rows,
    Tensor,
    check_shards,
    check_total,
    proved_index,
    read_header,
    read_index,
)
from draftproof.dims import Absent, Known, Seen, Unknown
from draftproof.findings import Finding, finding, finding_of, unknown, visible
from draftproof.hub import (
    FOREIGN,
    NOT_PLAIN,
    SHARD,
    WEIGHTS,
    Source,
    is_model_weights,
    is_training_state,
    names_below,
    training_only,
    training_state,
    unreadable,
    whole_set,
)
from draftproof.strict import CONFIG_LIMIT, strict_json

WHOLE = ("architectures", "model_type")  # a nested table has its own, which speak of that table alone
QUANTISATION_FILE = "hf_quant_config.json"  # where older exports declare how weights are quantised
KEPT = 20_000  # tensors of a table that is kept whole; of a larger one the headers are, and are as quick to read
LISTED = 8  # names shown before "and N more"


def listed(names: Iterable[str], limit: int = LISTED) -> str:
    """Return names for a person: escaped, comma-separated, cut after limit with the count of the rest."""
    all_names = [visible(n) for n in names]
    more = len(all_names) - limit
    return ", ".join(all_names[:limit]) + (f" and {more} more" if more > 0 else "")


# --- config -------------------------------------------------------------------------------------------------------


class Config:
    """Look up config keys, dotted, without ever converting a value.

    A key that a whole config does not have is Absent; one that was not published is Unknown. Of a config that could
    not be read nothing is known, and its own finding says so.
    """

    def __init__(
        self, data: Mapping[str, Any], role: str, source: Source | None = None, *, broken: str = "", code: str = ""
    ) -> None:
        self.data = data
        self.role = role
        self.broken = broken
        self.code = code  # of the finding that says why
        self.partial = source is not None and source.provenance == "partial"
        self.unknown = source.unknown if source else frozenset()
        self.respelled = source.respelled if source else frozenset()
        self.normalised = source is not None and source.normalised
        self.nested: tuple[str, ...] = ()
        self._said: dict[str, Seen] = {}
        self._written: dict[str, Seen] = {}

    def under(self, nested: tuple[str, ...]) -> Config:
        """Return the same config, whose tables of these names are looked into first."""
        other = copy(self)
        other.nested, other._said, other._written = nested, {}, {}
        return other

    def __call__(self, key: str) -> Seen:
        """Return what the config says of a key; a nested table that names it, even as null, decides."""
        seen = self._said.get(key)
        if seen is None:
            seen = self._said[key] = self._says(key)
        return seen

    def _says(self, key: str) -> Seen:
        for path in self._paths(key)[:-1]:
            seen = self._at(path)
            if not isinstance(seen, Absent) or self._is_null(path):
                return seen
        return self._at(key)

    def _paths(self, key: str) -> list[str]:
        """Return every place where a key may stand: nested tables, then the top level."""
        if not self.nested or key in WHOLE:
            return [key]
        return [*(f"{table}.{key}" for table in self.nested), key]

    def place(self, key: str) -> str:
        """Return where a key stands, be it as null; the top level for one that stands nowhere."""
        return next((p for p in self._paths(key) if self._is_null(p) or not isinstance(self._at(p), Absent)), key)

    def _at(self, path: str) -> Seen:
        if self.broken:
            return Unknown(self.broken, told=True)
        if self.unknown and any(path == key or path.startswith(f"{key}.") for key in self.unknown):
            return Unknown(f"{path} was not published as it stands on disk")
        if self.partial and not self.data:  # as of many
            return Unknown(f"{path} was not published")
        value: Any = self.data
        where = f"{self.role} config.json: {path}"
        for part in path.split("."):
            if not isinstance(value, Mapping):
                return Absent(where)
            if part not in value:
                return Unknown(f"{path} was not published") if self.partial else Absent(where)
            value = value[part]
        if path in self.respelled:
            where += ", renamed by the library that printed it" if self.normalised else ", its name on disk not known"
        return Absent(f"{where} is null") if value is None else Known(value, where, path)

    def _is_null(self, path: str) -> bool:
        value: Any = self.data
        for part in path.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return False
            value = value[part]
        return value is None

    def is_null(self, key: str) -> bool:
        """Tell whether a key is there and null."""
        return bool(self.data) and any(self._is_null(path) for path in self._paths(key))

    def as_written(self, key: str) -> Seen:
        """Return what the config says of a key, null being a value."""
        seen = self._written.get(key)
        if seen is None:
            seen = self(key)
            if (self.nested or not isinstance(seen, Known)) and self.is_null(key):
                seen = Known(None, f"{self.role} config.json: {key}")
            self._written[key] = seen
        return seen

    def at(self, key: str) -> Any:
        """Return the value of a key as it stands; None where there is none."""
        value: Any = self.data
        for part in self.place(key).split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def spellings(self, key: str) -> list[Known]:
        """Return every place that states a key: nested tables and the top level."""
        seen = (self._at(path) for path in self._paths(key))
        return [s for s in seen if isinstance(s, Known)]

    def text(self, key: str) -> str:
        """Return a text value, or ""."""
        seen = self(key)
        return seen.value if isinstance(seen, Known) and isinstance(seen.value, str) else ""

    def texts(self, key: str) -> list[str]:
        """Return the texts of a list value."""
        seen = self(key)
        value = seen.value if isinstance(seen, Known) else None
        return [v for v in value if isinstance(v, str)] if isinstance(value, list) else []


# --- tensor table -------------------------------------------------------------------------------------------------


class Homes(Mapping[str, str]):
    """Map tensors to the file that each is in; made when it is first asked, for a large table seldom is."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, Collection[str]]] = []
        self._made: dict[str, str] = {}

    def add(self, file: str, names: Collection[str]) -> None:
        """Add the names of a file's tensors; the last file that has one counts."""
        self._parts.append((file, names))

    def _all(self) -> dict[str, str]:
        while self._parts:
            file, names = self._parts.pop(0)
            self._made.update(dict.fromkeys(names, file))
        return self._made

    def __getitem__(self, name: str) -> str:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


@dataclass(frozen=True)
class Table:
    """Hold names on disk -> tensors, the file of each, and whether the table was really read.

    ``complete`` is false where only wanted names were looked for: then a name that is not there was looked for
    and is missing only if it was wanted. ``listed`` holds those of the names asked for that an index, or a header
    that was read anyway, lists; their tensors were not read.
    """

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    basis: str = ""  # "" when it was read; else why it proves nothing
    complete: bool = True
    count: int | None = None
    parameters: int | None = None
    listed: frozenset[str] = frozenset()
    sampled: bool = False  # from the likely shards alone: what is not there was not looked for
    format: str = ""  # of the file, where it is neither safetensors nor torch
    absent: frozenset[str] | None = None  # of a table that is kept in part: looked for in the whole, and not there
    state: str = ""  # what is wrong with the files: none, lost (that an index names), index, unreadable, foreign; or ""

    @property
    def read(self) -> bool:
        """Tell whether the table came from a checkpoint's own bytes."""
        return not self.basis

    def decides(self, names: Iterable[str]) -> bool:
        """Tell whether names that are not here are known to be missing."""
        return self.complete or (self.absent is not None and self.absent | self.tensors.keys() >= set(names))


_DTYPES = {
    "bfloat16": "BF16",
    "float16": "F16",
    "half": "F16",
    "float32": "F32",
    "float": "F32",
    "float64": "F64",
    "int64": "I64",
    "long": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}


def tensor_of(value: Any) -> Tensor | None:
    """Return dtype and shape of a tensor-like object, or of a pair (dtype, shape) in either order."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None and isinstance(value, (tuple, list)) and len(value) == 2:
        dtype, shape = value if isinstance(value[0], str) else (value[1], value[0])
    try:
        sizes = tuple(int(n) for n in shape)  # type: ignore[union-attr]
    except (TypeError, ValueError):
        return None
    name = str(dtype).rpartition(".")[2]
    return Tensor(_DTYPES.get(name.lower(), name), sizes, 0, 0) if dtype is not None else None


class Checkpoint:
    """Hold one side of a pair. Reads when asked; ``findings`` is what reading found, and grows with it."""

    def __init__(self, source: Source, role: str) -> None:
        self.source = source
        self.role = role
        self.findings: list[Finding] = list(source.notes)
        self._tables: dict[frozenset[str] | None, Table] = {}
        self.whole: Table | None = None  # given, it is the table, whatever is looked for

    @cached_property
    def config(self) -> Config:
        """Return the config; where it cannot be read one of which nothing is known, and the finding that says so."""
        source = self.source
        if not source.has_files:
            if source.config is None:
                self.findings.append(unknown("CFG301", "config", expected="a config", observed="none was given"))
            elif not isinstance(source.config, Mapping):
                seen = type(source.config).__name__
                self.findings.append(finding("CFG303", "config", expected="an object", observed=seen))
            else:
                return Config(source.config, self.role, source)
            return Config({}, self.role, broken="there is no config")
        seen = f"{len(source.files)} files: {listed(source.files)}" if source.files else "an empty folder"
        if not any(n == "config.json" or n.endswith(WEIGHTS) for n in source.files):
            expected = "config.json and safetensors files"
            self.findings.append(finding("SRC114", source.name, expected=expected, observed=seen))
        elif "config.json" not in source.files:
            self.findings.append(finding("CFG301", "config.json", expected="a file", observed=seen, where=source.label))
        else:
            raw = source.take("config.json", CONFIG_LIMIT)
            if isinstance(raw, bytes):
                data, found = parse_config(raw, source.label)
                self.findings += found
                if data is not None:
                    return Config(data, self.role, source)
            else:
                self.findings.append(raw)
        code = next((f.code for f in reversed(self.findings) if f.code.startswith(("CFG", "SRC"))), "")
        return Config({}, self.role, broken="config.json could not be read", code=code)

    def table(
        self,
        wanted: Collection[str] | None = None,
        named: Collection[str] = (),
        enough: Callable[[Collection[str]], bool] | None = None,
    ) -> Table:
        """Return the tensor table; with wanted, only those names are looked for, and the rest may not be read.

        Of the names in ``named`` it is told whether they are listed, without reading a shard for them. ``enough``
        tells of a part of the wanted that the others need not be looked for.
        """
        if self.whole is not None:
            return self.whole
        key = None if wanted is None else frozenset(wanted)
        if named or key not in self._tables:
            self._tables[key] = self._table(key, frozenset(named), enough)
        return self._tables[key]

    def every(self, names: Collection[str]) -> Table:
        """Return the tensor table of a folder's files one after the other, whatever an index says: the last counts."""
        found: list[Finding] = []
        table = _Gather(self.source, None, found)
        for name in names:
            table.header(name)
        basis = f"{', '.join(table.failed)} cannot be read" if table.failed else ""
        return Table(table.tensors, table.files, basis, state="unreadable" if basis or refused(found) else "")

    def seen(self) -> Table:
        """Return the tensor table as far as it was asked for; nothing is read."""
        read = [table for table in self._tables.values() if table.read]
        return next((t for t in read if t.complete), read[0]) if read else Table(basis="not read")

    def _table(
        self,
        wanted: frozenset[str] | None,
        named: frozenset[str] = frozenset(),
        enough: Callable[[Collection[str]], bool] | None = None,
    ) -> Table:
        source = self.source
        if source.has_files:
            table, found = self._recalled(wanted, named) or self._read(wanted, named, enough)
            self.findings += [f for f in (*found, *source.notes) if f not in self.findings]
            return table
        if source.tensors is None:
            if source.kind == "gguf":
                return Table(basis="of a GGUF target only its keys are read", format="gguf")
            return Table(basis="no tensor table was published")
        if source.kind == "gguf":
            return Table(source.tensors, dict.fromkeys(source.tensors, next(iter(source.files))), format="gguf")
        if source.kind == "memory":
            tensors = {str(n): tensor_of(v) for n, v in source.tensors.items()}
            odd = [n for n, t in tensors.items() if t is None]
            if odd:
                expected = "a tensor, or a pair of dtype and shape"
                self.findings.append(finding("TEN402", listed(odd), expected=expected, observed="another object"))
            return Table({n: t for n, t in tensors.items() if t is not None}, dict.fromkeys(tensors, "in memory"))
        data = source.tensors
        rows = {n: Tensor(row[0], tuple(row[1]), 0, 0) for n, row in data.get("named", {}).items()}
        basis = (
            "" if source.provenance == "recorded" else str(data.get("basis") or f"the recording is {source.provenance}")
        )
        return Table(
            rows,
            dict.fromkeys(rows, source.label),
            basis,
            bool(data.get("complete")),
            data.get("count"),
            data.get("parameters"),
            absent=frozenset(data["absent"]) if source.provenance == "recorded" and "absent" in data else None,
        )

    def _read(
        self,
        wanted: frozenset[str] | None,
        named: frozenset[str],
        enough: Callable[[Collection[str]], bool] | None,
    ) -> tuple[Table, list[Finding]]:
        source = self.source
        guessed = guess_weights(source, wanted, enough) if wanted is not None and enough is not None else None
        with _uncollected():
            table, found = guessed or read_weights(source, wanted, named)
        if source.reader is not None:
            source.notes += [f for f in source.reader.notes if f not in source.notes]
            if table.read and len(table.tensors) <= KEPT and not any(f.level == "unknown" for f in found):
                rows = {n: [t.dtype, list(t.shape), t.start, t.end, table.files[n]] for n, t in table.tensors.items()}
                kept = {
                    "tensors": rows,
                    "complete": table.complete,
                    "sampled": table.sampled,
                    "listed": sorted(table.listed),
                    "found": [asdict(f) for f in found],
                }
                source.reader.keep([*(wanted or ("*",)), *named], kept)
        return table, found

    def _recalled(self, wanted: frozenset[str] | None, named: frozenset[str]) -> tuple[Table, list[Finding]] | None:
        """Return what was read of this commit before, where that is kept."""
        reader = self.source.reader
        kept = reader.recall([*(wanted or ("*",)), *named]) if reader is not None else None
        if kept is None:
            return None
        rows = kept["tensors"]
        tensors = {n: Tensor(row[0], tuple(row[1]), row[2], row[3]) for n, row in rows.items()}
        found = [finding_of(f) for f in kept["found"]]
        files, names = {n: row[4] for n, row in rows.items()}, frozenset(kept["listed"])
        state = "unreadable" if refused(found) else ""
        return Table(tensors, files, "", kept["complete"], listed=names, sampled=kept["sampled"], state=state), found


def refused(found: Iterable[Finding]) -> bool:
    """Tell whether the library of a weights file refuses it, by what was found in its header."""
    return any(f.level == "error" and f.code.startswith("STF") for f in found)


def damaged(source: Source, name: str) -> bool | Unknown:
    """Tell whether the library of a weights file refuses it; of a file that is not here it is not known."""
    if not source.has_files or source.reader is not None:
        return Unknown(f"{visible(name)} was not read")
    header, found = _Gather(source, frozenset(), []).judge(name)
    return header is None or refused(found)


def parse_config(raw: bytes, where: str) -> tuple[dict[str, Any] | None, list[Finding]]:
    """Parse a config.json strictly: NaN and duplicate keys are findings with their JSON path."""
    data, faults = strict_json(raw)
    codes = {"constant": "CFG306", "number": "CFG306", "depth": "CFG311"}
    found = [
        finding(
            codes.get(fault.kind, "CFG302"),
            f"config.json: {fault.where}",
            expected="strict JSON",
            observed=fault.text,
            where=where,
        )
        for fault in faults
    ]
    if any(fault.fatal for fault in faults):
        return None, found
    if not isinstance(data, dict):
        kinds = {list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
        seen = kinds.get(type(data), "null")
        found.append(finding("CFG303", "config.json", expected="an object", observed=seen, where=where))
        return None, found
    return data, found


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Hold off the garbage collector: it would walk every tensor of a large table again and again, and find none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# --- weight files of a folder -------------------------------------------------------------------------------------

_TORCH = (".bin", ".pt", ".pth")
_OTHER = tuple(FOREIGN)
_INDEX = ".safetensors.index.json"
LARGE = 8 << 20  # bytes from which an index is proved, if that can be, and not read: a Hub sends it uncompressed


def guess_weights(
    source: Source, wanted: frozenset[str], enough: Callable[[Collection[str]], bool]
) -> tuple[Table, list[Finding]] | None:
    """Return the wanted tensors from the shards that probably hold them; None where that was not enough.

    What a header says of a tensor is proof; that one is missing is not, so then the index must be read.
    """
    names = source.reader.likely(source.files, wanted) if source.reader is not None else []
    if not names:
        return None
    found: list[Finding] = []
    source.reader.ahead(names)
    table = _Gather(source, wanted, found)
    for name in source.reader.as_read(names):
        table.header(name)
        if table.failed or table.twice:
            return None
        if enough(table.tensors):
            return Table(table.tensors, table.files, "", False, sampled=True), found
    return None


def read_weights(
    source: Source, wanted: frozenset[str] | None, named: frozenset[str] = frozenset()
) -> tuple[Table, list[Finding]]:
    """Read the tensor table of a folder: of the files its index names, else of its one file, else of all its files."""
    files, where = source.files, source.label
    found: list[Finding] = []
    indexes = sorted((n for n in files if n.endswith(_INDEX)), key=lambda n: (n != f"model{_INDEX}", n))
    index_name = indexes[0] if indexes else ""
    if indexes[1:]:
        seen = f"{len(indexes)}: {listed(indexes)}"
        found.append(finding("IDX308", listed(indexes[1:]), expected="one index", observed=seen, where=where))
    if index_name and files[index_name] < 0 and source.reader is None:
        found.append(unreadable(index_name, OSError(22, NOT_PLAIN), where))
        return Table(basis=f"{index_name} cannot be read"), found
    table = _Gather(source, wanted, found, named)
    proved = _proved(table, index_name) if index_name and wanted is None and not indexes[1:] else None
    index = proved
    if index_name and index is None:
        asked = wanted if wanted is None else wanted | named
        try:
            size = source.size(index_name)
            index, index_found = read_index(_reader(source, index_name), size, index_name, wanted=asked)
        except OSError as error:
            return Table(basis=f"{index_name} cannot be read"), [*found, unreadable(index_name, error, where)]
        found += index_found
        if index is None:
            return Table(basis=f"{index_name} cannot be used", state="index"), found
    safe = sorted(n for n in files if n.endswith(".safetensors"))
    chosen = choose(files, safe, index, found)
    if not chosen and not index:
        return _without_safetensors(source, found)
    if index is not None and wanted is not None:
        wanted = frozenset(n for n in wanted if n in index.weight_map)  # what it does not name no loader looks for
        chosen = [n for n in chosen if n in {index.weight_map[n] for n in wanted}]
        table.wanted = wanted
    if index is not None and named:
        table.listed |= named & index.weight_map.keys()
    if proved is not None:
        found += check_total(proved, (header for header, _ in table.judged.values() if header is not None))
    else:
        here = [n for n in chosen if n in files]
        if source.reader is not None:
            later = [n for n in here if n not in table.judged]
            source.reader.ahead(later, index_name if wanted is None else "")
        rows = ((n, table.header(n)) for n in here)
        found += check_shards(index, rows, files) if index is not None else _alone(table, rows)
    table.judged.clear()
    if source.reader is not None and not source.reader.sure():
        return read_weights(source, wanted, named)  # the branch moved meanwhile: each header from its file
    basis = f"{', '.join(table.failed)} cannot be read" if table.failed else ""
    lacking = [n for n in index.shards if n not in files] if index else []
    if index and lacking and (wanted is None or any(index.weight_map[n] in lacking for n in wanted)):
        basis = f"{listed(lacking)} not there"
    state = "lost" if basis.endswith("not there") else "unreadable" if basis or refused(found) else ""
    return Table(table.tensors, table.files, basis, wanted is None, listed=frozenset(table.listed), state=state), found


def _alone(table: _Gather, rows: Iterable[tuple[str, Header | None]]) -> list[Finding]:
    """Take the headers of files that no index names."""
    for _ in rows:
        pass
    where = table.source.label
    return [
        finding("IDX303", visible(name), expected="in one file", observed=" and ".join(both), where=where)
        for name, both in table.twice.items()
    ]


def _proved(table: _Gather, index_name: str) -> Index | None:
    """Return the index of a repo's whole set of shards, if its digest proves what it holds; the table is then whole.

    An index that is small, or that none can vouch for, is read.
    """
    source, reader = table.source, table.source.reader
    shards = whole_set(source.files) if reader is not None else []
    large = LARGE <= source.files[index_name] <= INDEX_LIMIT
    if not 0 < len(shards) <= MAX_SHARDS or not large or index_name not in reader.oids:
        return None
    reader.ahead(shards, index_name, begun=True)
    left = shards[::-1]
    at_once: set[str] = set()
    for name in reader.as_read(shards):
        table.judge(name)
        if reader.gave(name):  # in the order of the answer, which is that of the index
            table.take(name)
            at_once.add(name)
        while left and left[-1] in table.judged:  # in the order of the files, whichever comes first
            if (last := left.pop()) not in at_once:
                table.take(last)
    good = not left and not table.twice and not any(found for _, found in table.judged.values())
    names = {name: header.tensors for name, (header, _) in table.judged.items() if header is not None}
    head, size = reader.index_head() if good else b"", source.files[index_name]
    index = proved_index(index_name, names, table.files, head, size, reader.oids[index_name])
    if index is None:
        table.begin()
    return index


class _Gather:
    """Read headers one at a time and keep the tensors that are wanted."""

    def __init__(
        self,
        source: Source,
        wanted: frozenset[str] | None,
        found: list[Finding],
        named: frozenset[str] = frozenset(),
    ) -> None:
        self.source, self.wanted, self.found, self.named = source, wanted, found, named
        self.begin()
        self.judged: dict[str, tuple[Header | None, list[Finding]]] = {}
        self.alike = source.reader.alike if source.reader is not None else Alike()

    def begin(self) -> None:
        """Forget what was taken, not what was judged."""
        self.listed: set[str] = set()
        self.tensors: dict[str, Tensor] = {}
        self.files = Homes()
        self.twice: dict[str, list[str]] = {}
        self.failed: list[str] = []

    def judge(self, name: str) -> tuple[Header | None, list[Finding]]:
        """Return the header of a file and what is wrong with it; it is read once."""
        if name not in self.judged:
            known = self.source.reader.header(name) if self.source.reader is not None else None
            self.judged[name] = (known, []) if known is not None else self._judge(name)
        return self.judged[name]

    def _judge(self, name: str) -> tuple[Header | None, list[Finding]]:
        try:
            size = self.source.size(name)
            if size < 0:
                raise OSError(22, NOT_PLAIN)
            return _read_file(_reader(self.source, name), size, name, self.alike)
        except OSError as error:
            return None, [unreadable(name, error, self.source.label)]

    def header(self, name: str) -> Header | None:
        """Return the header of a file, noting what is wrong with it."""
        self.found += self.judge(name)[1]
        header = self.take(name)
        del self.judged[name]
        return header

    def take(self, name: str) -> Header | None:
        """Take the tensors of a file's header, which is returned."""
        header, _ = self.judge(name)
        if header is None:
            self.failed.append(name)
            return None
        tensors = header.tensors
        self.listed |= self.named & tensors.keys()
        rows = tensors if self.wanted is None else {n: tensors[n] for n in sorted(tensors.keys() & self.wanted)}
        before = len(self.tensors)
        self.tensors.update(rows.pairs() if isinstance(rows, Rows) else rows)
        if len(self.tensors) < before + len(rows):
            for tensor_name in sorted(self.files.keys() & rows.keys()):
                self.twice.setdefault(tensor_name, [self.files[tensor_name]]).append(name)
        self.files.add(name, rows)
        return header


def _read_file(
    read: Callable[[int, int], bytes], size: int, name: str, alike: Alike
) -> tuple[Header | None, list[Finding]]:
    if not name.endswith(_TORCH):
        return read_header(read, size, name, alike=alike)
    from draftproof.torchzip import read_torch_zip  # noqa: PLC0415 (rare)

    return read_torch_zip(read, size, name)


def _reader(source: Source, name: str) -> Callable[[int, int], bytes]:
    return lambda start, stop: source.read(name, start, stop)


def choose(files: Mapping[str, int], safe: list[str], index: Index | None, found: list[Finding]) -> list[str]:
    """Return the safetensors files that make up the checkpoint; name those that do not belong.

    With an index, its shards; else model.safetensors alone; else every file that is no adapter or training state.
    """
    odd = [n for n in safe if n.startswith(("adapter_", "consolidated")) or is_training_state(n)]
    plain = [n for n in safe if n not in odd]
    if index is not None:
        chosen = [n for n in index.shards if n in files]
        single = [n for n in plain if n not in index.shards and n in ("model.safetensors", "pytorch_model.safetensors")]
        if single:
            found.append(
                finding(
                    "IDX309",
                    single[0],
                    expected=f"the {len(index.shards)} shards of the index, or this file",
                    observed="both",
                )
            )
        stray = [n for n in safe if n not in index.shards and n not in single]
        if 0 < len(stray) <= len(index.shards) - len(chosen):
            stray = []  # as many as are missing: renamed, which what is said of those names
    elif "model.safetensors" in files:
        chosen, stray = ["model.safetensors"], [n for n in safe if n != "model.safetensors"]
    else:
        chosen, stray = plain or [n for n in safe if n.startswith("consolidated")], odd
        stray = [n for n in stray if n not in chosen]
        _check_numbering(chosen, found)
    if stray:
        expected = f"only {listed(chosen, 3)}" if chosen else "weights of a model"
        found.append(
            finding("IDX308", listed(stray), expected=expected, observed=f"{len(stray)} more: {listed(stray)}")
        )
    training = [
        n for n in files if n not in safe and (is_training_state(n) or (chosen and n.endswith((*_TORCH, *_OTHER))))
    ]
    if training:
        found.append(
            finding(
                "IDX308",
                listed(training),
                "files beside the weights",
                level="info",
                expected="nothing that serving does not need",
                observed=f"{len(training)} more: {listed(training)}",
            )
        )
    return chosen


def _check_numbering(names: list[str], found: list[Finding]) -> None:
    """Without an index, shards are known by their numbers: each must be there, of one count."""
    families: dict[tuple[str, str], list[int]] = {}
    for name in names:
        if match := re.fullmatch(SHARD, name):
            families.setdefault((match[1], match[3]), []).append(int(match[2]))
    for (stem, count), numbers in families.items():
        missing = sorted(set(range(1, min(int(count), 4096) + 1)) - set(numbers))
        if missing:
            shown = f"{', '.join(map(str, missing[:LISTED]))}{' …' if len(missing) > LISTED else ''}"
            found.append(
                finding(
                    "IDX304",
                    f"{stem}-*-of-{count}",
                    "a shard of a numbered set is missing",
                    expected=f"{int(count)} shards",
                    observed=f"no number {shown}",
                )
            )
    if len(families) > 1 or (families and len(names) > sum(map(len, families.values()))):
        found.append(finding("IDX308", listed(names), expected="one set of shards", observed=listed(names)))


def _without_safetensors(source: Source, found: list[Finding]) -> tuple[Table, list[Finding]]:
    """Read torch zip files where there are no safetensors; say what is there where there is nothing to read."""
    files, where = source.files, source.label
    torch = sorted(n for n in files if n.endswith(_TORCH) and not is_training_state(n))
    if torch:
        table = _Gather(source, None, found)
        for name in torch:
            table.header(name)
        for name, both in table.twice.items():
            found.append(
                finding("IDX303", visible(name), expected="in one file", observed=" and ".join(both), where=where)
            )
        _check_numbering(torch, found)
        basis = f"{', '.join(table.failed)} cannot be read" if table.failed else ""
        return Table(table.tensors, table.files, basis, state="unreadable" if basis else ""), found
    foreign = sorted(n for n in files if n.endswith(_OTHER))
    if foreign:
        what, help = FOREIGN[f".{foreign[0].rpartition('.')[2]}"]
        seen = f"{listed(foreign)}: {what}"
        found.append(unknown("SRC116", listed(foreign), expected="safetensors", observed=seen, where=where, help=help))
        return Table(basis="the weights are in another format", state="foreign"), found
    if "config.json" not in files:
        return Table(basis="there is no model", state="none"), found  # SRC114 says it
    if training := training_state(source):
        found.append(training_only(source, training))
        return Table(basis="there are no weights", state="none"), found
    expected, seen = "*.safetensors", listed(files)
    below = names_below(source)
    foreign = [n for n in below if n.endswith(_OTHER)]
    weights = list(dict.fromkeys(n.partition("/")[0] for n in below if is_model_weights(n.partition("/")[2])))
    note = f"there are weights below: {listed(below, 4)}" if weights or foreign else ""
    help = f"weights stand in {listed(weights, 3)}: give that folder" if weights and not foreign else ""
    if foreign:
        what, help = FOREIGN[f".{foreign[0].rpartition('.')[2]}"]
        help = f"{what}: {help}"
    found.append(unknown("SRC120", "weights", expected=expected, observed=seen, where=where, note=note, help=help))
    return Table(basis="there are no weights", state="none"), found
