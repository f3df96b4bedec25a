"""The library of contracts: files found by kind and id, read, checked and built, each error with its line."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property, partial
from keyword import iskeyword
from pathlib import Path
from typing import Any

from draftproof import compiled
from draftproof.contracts import (
    MAX_CHAIN,
    MAX_DIMS,
    MAX_TENSORS,
    RESERVED,
    Acceptance,
    AnyContract,
    Contract,
    Convention,
    Dialect,
    Engine,
    EngineRow,
    Fact,
    KeyRule,
    Layout,
    Leftover,
    Loop,
    Meaning,
    Model,
    Pair,
    Release,
    Scheme,
    Secret,
    Shared,
    Stored,
    TensorRule,
)
from draftproof.dims import ELEMENT_NAMES, PREDICATES, Dim, Expr, ExprError, braced, find_cycle, parse, within
from draftproof.findings import Finding, finding, nearest, visible
from draftproof.language import (
    DTYPE_SETS,
    FACTS,
    FOLDERS,
    ID,
    KINDS,
    MAX_BYTES,
    SCHEMA,
    Problems,
    Where,
    read_file,
    read_toml,
    read_value,
)
from draftproof.rules import RULES

# --- a library of contracts ---------------------------------------------------------------------------------------


_INSIDE = Path(__file__).with_name("shipped")  # where an installed package has them


def shipped_root() -> Path:
    """Return the folder of the contracts that ship with draftproof."""
    return _INSIDE if _INSIDE.is_dir() else Path(__file__).parents[2] / "contracts"


class Library:
    """Find contracts by kind and id in one or more folders; the first folder wins. Reads a file when asked for."""

    def __init__(self, *roots: Path, shipped: bool = True, hub: Any = None) -> None:
        self.hub = hub  # opens repos over the network, where that is allowed
        self.shipped = shipped_root()
        wanted = (*roots, self.shipped) if shipped else roots
        self.roots = tuple(dict.fromkeys(Path(os.path.abspath(root)) for root in wanted))
        self._wrong: dict[Path, Finding] = {}  # folders
        self._files: dict[str, dict[str, Path]] = {}
        self._hidden: dict[Path, list[Path]] = {}  # the file that counts -> those of the same id that do not
        self._raw: dict[Path, bytes | None] = {}
        self._forms: dict[Path, bytes | None] = {}
        self.kept: dict[Any, Any] = {}  # what is worth keeping for the next question, by key
        self._texts: dict[str, bytes] = {}  # of models, in small letters
        self._called: dict[str, list[Model]] = {}  # name -> models
        self._parsed: dict[tuple[str, Path], tuple[dict[str, Any] | None, Problems]] = {}
        self._proven: set[tuple[str, Path]] = set()
        self._edited: set[Path] = set()  # files of ids that ship, with other bytes
        self._read: dict[tuple[str, Path], tuple[AnyContract | None, tuple[Finding, ...]]] = {}
        for root in self.roots:
            if not os.path.isdir(root):  # which never raises
                self._no(root, "a folder of contracts", "a file" if os.path.exists(root) else "nothing")

    def _no(self, folder: Path, expected: str, seen: object) -> None:
        self._wrong[folder] = finding("CON101", visible(folder), expected=expected, observed=visible(seen))

    def files(self, kind: str) -> dict[str, Path]:
        """Return id -> file of a kind, sorted; the id is the file's stem."""
        if kind not in self._files:
            found: dict[str, Path] = {}
            for root in self.roots:
                if root in self._wrong:
                    continue
                folder = root / FOLDERS[kind]
                try:
                    names = sorted(n for n in os.listdir(folder) if n[0] != "." and n.endswith(".toml"))
                except FileNotFoundError:
                    continue
                except OSError as error:
                    self._no(folder, "a folder of contracts", error.strerror or error)
                    continue
                for path in (folder / name for name in names):
                    first = found.setdefault(path.stem, path)
                    if first != path:
                        self._hidden.setdefault(first, []).append(path)
            self._files[kind] = dict(sorted(found.items()))
        return self._files[kind]

    def get(self, kind: str, id: str) -> tuple[Any, tuple[Finding, ...]]:
        """Return a contract, or None, and what is wrong with its file; a mere warning comes with the contract."""
        path = self.files(kind).get(id)
        if path is None:
            known = self.files(kind)
            expected = f"one of {', '.join(known) or 'none: there are no contracts of this kind'}"
            seen = visible(id) + nearest(id, known)
            return None, (finding("CON113", f"{kind} {visible(id)}", expected=expected, observed=seen),)
        if (kind, path) not in self._read:
            contract, found = load(path, kind, self)
            self._read[kind, path] = (contract, (*found, *self._twice(kind, path)))
        return self._read[kind, path]

    def _twice(self, kind: str, first: Path) -> Iterator[Finding]:
        """Say of a file where another of the same id differs, and does not count."""
        if other := self._other(first):
            seen = visible(f"{first} and {other}, which differ; the first is used", 4096)
            yield finding("CON114", visible(f"{kind} {first.stem}"), level="warning", expected="one file",
                          observed=seen, contract=f"{self.label(first)}:1")  # fmt: skip

    def _other(self, first: Path) -> Path | None:
        """Return a file of the same id that differs, and does not count."""
        return next((path for path in self._hidden.get(first, ()) if self.raw(first) != self.raw(path)), None)

    def raw(self, path: Path) -> bytes | None:
        """Return the bytes of a contract file, read once; None where it cannot be read."""
        if path not in self._raw:
            try:
                self._raw[path] = read_file(path)
            except (OSError, ValueError):
                self._raw[path] = None
        return self._raw[path]

    def all(self, kind: str) -> list[tuple[str, Any, tuple[Finding, ...]]]:
        """Return id, contract and errors of every file of a kind."""
        return [(id, *self.get(kind, id)) for id in self.files(kind)]

    def read(self, *kinds: str) -> None:
        """Read every file of some kinds, so that broken tells of it; one that was checked as it is need not be."""
        every = [(kind, id, path) for kind in kinds for id, path in self.files(kind).items()]
        checked = [self._form(kind, path) is not None for kind, _, path in every]
        for (kind, id, path), known in zip(every, checked, strict=True):
            if self._altered or self._edited or not known or self._other(path):
                self.get(kind, id)

    def broken(self, *kinds: str) -> list[Finding]:
        """Return what is wrong with the folders, and with the files of some kinds, or all, that were read so far."""
        read = [f for (kind, _), (_, found) in self._read.items() if kind in (kinds or FOLDERS) for f in found]
        return list(dict.fromkeys([*self._wrong.values(), *read]))

    def mentioning(self, kind: str, words: list[str]) -> list[str]:
        """Return the ids of files that hold one of the quoted words: a cheap first look, never a decision."""
        if ("texts", kind) not in self.kept:
            self.kept["texts", kind] = {id: self.raw(path) for id, path in self.files(kind).items()}
        texts: dict[str, bytes | None] = self.kept["texts", kind]
        quoted = [f"{mark}{word}{mark}".encode("utf-8", "replace") for word in words for mark in "\"'"]
        return [id for id, text in texts.items() if text is None or any(q in text for q in quoted)]

    def holds(self, kind: str, id: str, word: bytes) -> bool:
        """Tell whether the text of a file holds a word: a cheap first look, never a decision."""
        text = self.raw(self.files(kind)[id])
        return text is None or word in text

    def detect(self, kind: str, id: str) -> Mapping[str, Any]:
        """Return the [detect] table of a contract, read alone where it can be, else with the whole contract."""
        if ("detect", kind, id) not in self.kept:
            self.kept["detect", kind, id] = self._detect(kind, id)
        found: Mapping[str, Any] = self.kept["detect", kind, id]
        return found

    def _detect(self, kind: str, id: str) -> Mapping[str, Any]:
        texts = self.kept.get(("texts", kind)) or {id: self.raw(self.files(kind)[id])}
        raw = texts[id] or b""
        found = _DETECT.search(raw) if len(raw) <= MAX_BYTES else None
        if found:
            problems = Problems(id)
            try:
                table = tomllib.loads(found[0].decode("utf-8"))["detect"]
                read = read_value(KINDS[kind].fields["detect"], table, ("detect",), problems)
            except (ValueError, KeyError, RecursionError):
                read = None
            if isinstance(read, Mapping) and not problems.found:
                return read
        contract, _ = self.get(kind, id)
        return contract.detect if contract else {}

    def model(self, repo: str) -> tuple[Model | None, tuple[Finding, ...]]:
        """Return what is known of a published model, if anything."""
        id = repo.replace("/", "--").lower()
        if id not in self.files("model"):
            called = self.called(repo) if repo else []
            return (called[0] if len(called) == 1 else None), ()
        model, found = self.get("model", id)
        return (model if model is None or model.repo.lower() == repo.lower() else None), found

    def called(self, name: str) -> list[Model]:
        """Return the models that go by a name: of their repo, or else an alias."""
        if not self._texts:
            self._texts = {id: (self.raw(path) or b"").lower() for id, path in self.files("model").items()}
        if name not in self._called:
            quoted = [f"{mark}{name.lower()}{mark}".encode("utf-8", "replace") for mark in "\"'"]
            likely = [id for id, text in self._texts.items() if any(q in text for q in quoted)]
            models = [m for m in (self.get("model", id)[0] for id in likely) if m is not None]
            own = [m for m in models if m.repo.lower() == name.lower()]
            self._called[name] = own or [m for m in models if name.lower() in map(str.lower, m.aliases)]
        return self._called[name]

    def lacking(self, names: Iterable[str]) -> tuple[set[str], set[str]]:
        """Return those of the names that are no dim of any family, and the dims seen on the way."""
        lacking, seen = set(names), set[str]()
        paths = list(self.files("family").values())
        for path in sorted(paths, key=lambda p: ("family", p) not in self._parsed):
            if not lacking:
                break
            dims = set((self.parsed("family", path)[0] or {}).get("dims") or ())
            lacking, seen = lacking - dims, seen | dims
        return lacking, seen

    def label(self, path: Path) -> str:
        """Return the name under which a file is shown: contracts/… if shipped, else as the current folder sees it."""
        shown = path.absolute().as_posix()
        for root, prefix in ((self.shipped, "contracts/"), (Path.cwd(), "")):
            base = f"{root.as_posix().rstrip('/')}/"
            if shown.startswith(base):
                return visible(prefix + shown[len(base) :], 4096)
        return visible(shown, 4096)

    def sealed(self, path: Path) -> bool:
        """Tell whether a file ships inside the package, where what tests hold of it need not be checked again."""
        return self.shipped == _INSIDE and _INSIDE in path.parents

    def parsed(self, kind: str, path: Path) -> tuple[dict[str, Any] | None, Problems]:
        """Return the body of a file as KINDS declares it, None standing for what is broken, and its errors so far."""
        if (kind, path) not in self._parsed:
            self._parsed[kind, path] = self._kept(kind, path) or _parse(kind, path, self.label(path), self.sealed(path))
        return self._parsed[kind, path]

    def _kept(self, kind: str, path: Path) -> tuple[dict[str, Any] | None, Problems] | None:
        """Return what parsed returns from the compiled form of a file, where the package has one that holds."""
        text = self._form(kind, path)
        if text is None:
            return None
        body, lines = compiled.unpack(kind, text)
        self._proven.add((kind, path))
        return body, Problems(self.label(path), lines)

    def _form(self, kind: str, path: Path) -> bytes | None:
        """Return the compiled form of a file, where the package has one that holds."""
        if path not in self._forms:
            form, raw = os.path.join(_compiled(), FOLDERS[kind], f"{path.stem}.json"), self.raw(path)
            self._forms[path] = compiled.held(form, raw) if raw is not None else None
            if self._forms[path] is None and os.path.exists(form):  # which never raises
                self._edited.add(path)
        return self._forms[path]

    def proven(self, kind: str, path: Path) -> bool:
        """Tell whether a file was checked when the package was built, and so was all read in the place of a shipped."""
        return (kind, path) in self._proven and not self._edited and not self._altered

    @cached_property
    def _altered(self) -> bool:
        """Tell whether a contract that ships is not there, or another stands in its place."""
        for kind, folder in FOLDERS.items():
            try:
                names = os.listdir(os.path.join(_compiled(), folder))
            except OSError:
                names = []
            if not {name[:-5] for name in names if name.endswith(".json")} <= self.files(kind).keys():
                return True
        return any(map(self._other, self._hidden))


def _compiled() -> str:
    """Return the folder of the compiled forms, beside the contracts of an installed package."""
    return os.path.join(os.path.dirname(_INSIDE), "compiled")


def compile_all(root: Path, out: Path) -> None:
    """Write the compiled form of the contracts in a folder into another; raises ValueError for what cannot be read."""
    library = Library(root, shipped=False)
    for kind in FOLDERS:
        for id, contract, found in library.all(kind):
            path = library.files(kind)[id]
            body, problems = library.parsed(kind, path)
            if contract is None or body is None:
                raise ValueError(f"{path.name}: {'; '.join(f.message for f in found)}")
            to = out / FOLDERS[kind] / f"{id}.json"
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(compiled.pack(kind, body, problems.lines, path.read_bytes()))


_DETECT = re.compile(rb"^\[detect\][^\n]*\n(?:(?!\[)[^\n]*(?:\n|\Z)|\[detect\.[^\n]*(?:\n|\Z))*", re.MULTILINE)


# --- reading ------------------------------------------------------------------------------------------------------


def load(path: Path, kind: str, library: Library) -> tuple[AnyContract | None, tuple[Finding, ...]]:
    """Read one contract file; returns it, or None, and every error in it."""
    data, base = library.parsed(kind, path)
    if data is None:
        return None, base.all()
    out, sure = Problems(base.label, lambda: base.lines), True
    out.found, out.more = [*base.found], base.more
    if "extends" in data:
        data, sure = _inherit(data, kind, path, library, out)
    elif "without" in data:
        out.add("CON108", ("without",), "no extends", expected="extends, and a tensor of the parent")
    if library.proven(kind, path):
        pass
    elif kind in ("family", "target"):
        _Check(kind, data, out, sure).all()
    elif kind == "scheme":
        _check_scheme(data, out)
    elif kind == "pair":
        _check_pair(data, out, library)
    elif kind == "acceptance":
        _check_accepted(data, out)
    elif kind == "engine":
        _check_engine(data, out, library)
    elif kind in ("profile", "class"):
        _check_reading(kind, data, out, library)
    elif kind == "trainer":
        _check_trainer(data, out, library)
    elif kind == "launch":
        _check_launch(data, out)
    elif kind == "configs":
        _check_configs(data, out)
    else:
        _check_model(data, out, library, path.stem)
    if out.found:
        return None, out.all()
    builders: Mapping[str, Callable[..., AnyContract]] = {
        "scheme": _scheme, "pair": _pair, "acceptance": _shared, "model": _model, "engine": _engine,
        "release": _release, "trainer": _trainer, "profile": _profile, "class": _class,
        "launch": _launches, "format": _format, "configs": _configs,
    }  # fmt: skip
    build: Callable[..., AnyContract] = builders.get(kind, _contract)
    return build(kind, path.stem, data, out), ()


def _parse(kind: str, path: Path, label: str, sealed: bool) -> tuple[dict[str, Any] | None, Problems]:
    data, out = read_toml(path, label, sealed)
    if data is None:
        return None, out
    schema = data.get("schema")
    if type(schema) is not int or schema != SCHEMA:
        out.add("CON109", ("schema",), data.get("schema", "nothing"), expected=f"schema = {SCHEMA}")
        if type(schema) is int:
            return None, out  # what it says cannot be judged
    for key, expected in (("kind", kind), ("id", path.stem)):
        if data.get(key) != expected:
            out.add("CON104", (key,), data.get(key, "nothing"), expected=f"{key} = {expected!r}")
        elif key == "id" and not re.fullmatch(ID, path.stem):
            out.add("CON104", (key,), path.stem, expected=f"a file name like {ID}")
    body = {k: v for k, v in data.items() if k not in ("schema", "kind", "id")}
    return read_value(KINDS[kind], body, (), out), out


def _inherit(
    child: dict[str, Any], kind: str, path: Path, library: Library, out: Problems
) -> tuple[dict[str, Any], bool]:
    """Merge a parent's tables under the child's; at most one level. Tells whether the parent was found."""
    parent_id = child["extends"]
    parent_path = library.files(kind).get(parent_id)
    if parent_id is None or parent_path is None or parent_path == path:
        known = [k for k in library.files(kind) if k != path.stem]
        if parent_id is not None:
            out.add("CON108", ("extends",), near=(parent_id, known), expected=f"another {kind}: {', '.join(known)}")
        return child, False
    parent, theirs = library.parsed(kind, parent_path)
    out.found += theirs.found
    if parent is None or "extends" in parent:
        if parent is not None:
            seen = f"{parent_id} itself extends {parent['extends']}"
            out.add("CON108", ("extends",), seen, expected="a parent that extends nothing")
        return child, False
    out.parent = theirs
    of = "params" if kind == "class" else "tensors"
    tensors = parent.get(of) or {}
    gone = [name for name in child.get("without") or () if name is not None]
    for n, name in enumerate(child.get("without") or ()):
        if name is not None and name not in tensors:
            out.add("CON108", ("without", n), near=(name, tensors), expected=f"a tensor of {parent_id}")
    merged = {**parent, of: {n: t for n, t in tensors.items() if n not in gone}}
    for key, value in child.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict) and key not in ("detect", "dialects")
        merged[key] = _merge(merged[key], value, key in ("roles", "sizes")) if both else value
    return merged, True


def _merge(parent: dict[str, Any], child: dict[str, Any], parts: bool) -> dict[str, Any]:
    """Lay a child's entries over a parent's; a part that one gives and the other has none of is as the child says."""
    if not parts:
        return {**parent, **child}
    none = child.get("none") or ()
    kept = tuple(part for part in parent.get("none") or () if part not in child)
    return {k: v for k, v in parent.items() if k not in none} | child | {"none": (*none, *kept)}


# --- checks of what parsed ----------------------------------------------------------------------------------------


def _says(node: ast.expr, yes_no: frozenset[str], numbers: frozenset[str]) -> bool | None:
    """Tell whether an expression says yes or no (True) or a number (False); None where that cannot be told."""
    match node:
        case ast.Compare():
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in PREDICATES
        case ast.BoolOp(values=parts):
            return all(_says(part, yes_no, numbers) is not False for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return _says(part, yes_no, numbers) is not False
        case ast.Name() | ast.Attribute():
            name = node.id if isinstance(node, ast.Name) else ast.unparse(node)
            return True if name in yes_no or name in ("true", "false") else False if name in numbers else None
    return False


def _depth(node: ast.AST) -> int:
    inner = [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)]
    return 1 + max(map(_depth, inner), default=0) if inner and not isinstance(node, ast.Attribute) else 1


class _Check:
    """Check what the parts of a family or a target say of each other; what is broken is None, and left out."""

    def __init__(self, kind: str, data: Mapping[str, Any], out: Problems, sure: bool) -> None:
        self.kind, self.data, self.out = kind, data, out
        self.table = "values" if kind == "scheme" else "dims"  # where the file has its dims
        self.scope = frozenset(data.get("dims") or ())
        self.sure = sure and (bool(self.scope) or not out.found)  # else every name would be unknown
        self.good: set[tuple[str, bool]] = set()  # expressions, and what they must say, that were looked at
        self.yes_no = frozenset(n for n, d in self.rows("dims") if d.get("type") == "bool")
        self.numbers = frozenset(n for n, d in self.rows("dims") if d and d.get("type", "int") == "int")

    def rows(self, table: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the entries of a table, an empty one for what is broken."""
        yield from ((name, entry or {}) for name, entry in (self.data.get(table) or {}).items())

    def all(self) -> None:
        """Run every check."""
        for table, most in (("dims", MAX_DIMS), ("tensors", MAX_TENSORS)):
            if (count := len(self.data.get(table) or ())) > most:
                self.out.add("CON104", (table,), count, expected=f"at most {most} entries")
                return
        self.dims()
        self.tensors()
        self.config()
        self.parts()
        self.codes()
        self.dialects()

    def expr(
        self,
        expr: Expr | None,
        path: Where,
        truth: bool,
        more: Iterable[str] = (),
        yes_no: Iterable[str] = (),
        numbers: Iterable[str] = (),
    ) -> None:
        """Check that an expression speaks of dims that exist, and says yes or no, or a number, as is wanted there."""
        plain = not (more or yes_no or numbers)
        if expr is None or (plain and (expr.text, truth) in self.good):
            return
        before = len(self.out.found) + self.out.more
        known = self.scope.union(more)
        for name in sorted(expr.names - known) if self.sure else ():
            seen = f"{name}{nearest(name, known)} in {expr}"
            self.out.add("CON107", path, seen, expected=f"one of {', '.join(sorted(known))}")
        if "it" not in known and any(f"{name}(" in expr.text for name in PREDICATES):
            self.out.add("CON106", path, expr, message="there are no elements here", expected="no predicate")
        says = _says(expr.tree, self.yes_no.union(yes_no), self.numbers.union(numbers))
        if says is not None and says is not truth:
            words = ("a number", "yes or no")
            message = f"says {words[says]}, not {words[truth]}"
            self.out.add("CON106", path, expr, message=message, expected=f"an expression that says {words[truth]}")
        if plain and len(self.out.found) + self.out.more == before:
            self.good.add((expr.text, truth))

    def dims(self) -> None:
        """Check names, sources, types and defaults of the dims."""
        for name, d in self.rows("dims"):
            path, truth = (self.table, name), name in self.yes_no
            if name in RESERVED or any(map(iskeyword, name.split("."))):
                self.out.add("CON104", path, name, expected="a name that is no word of the language")
            if self.data["dims"][name] is None:
                continue
            if not any(key in d and d[key] not in ((), {}) for key in ("drafter", "target", "texts", "default")):
                self.out.add("CON105", path, "nothing", expected="a source: drafter, target, texts or default")
            if d.get("texts") and not truth and d.get("type", "int") is not None:
                self.out.add("CON104", path, "texts, and no type", expected='type = "bool": texts say yes or no')
            for side in ("drafter", "target"):
                for n, source in enumerate(d.get(side) or ()):
                    says = _says(source.tree, frozenset(), frozenset()) if source else None
                    if says is not None and says is not truth:
                        expected = f"a source of type {'bool' if truth else 'int'}"
                        self.out.add("CON106", (*path, side, n), source, expected=expected)
            self.expr(d.get("default"), (*path, "default"), truth)
        defaults: dict[str, Expr | None] = {n: d.get("default") for n, d in self.rows("dims")}
        if circle := find_cycle(defaults):
            self.out.add("CON115", (self.table, circle[0]), " -> ".join(circle), expected="defaults that end")
            return
        lengths: dict[str, int] = {}

        def length(name: str) -> int:
            if name not in lengths:
                default = defaults.get(name)
                lengths[name] = 1 + _depth(default.tree) + max(map(length, default.names), default=0) if default else 0
            return lengths[name]

        if deep := next((n for n in defaults if length(n) > MAX_CHAIN), None):
            seen = f"{length(deep)} nested operations"
            expected = f"defaults of at most {MAX_CHAIN} nested operations, one in the other"
            self.out.add("CON115", (self.table, deep, "default"), seen, expected=expected)

    def tensors(self) -> None:
        """Check names, shapes and conditions of the tensors, and the rules over their values."""
        for name, t in self.rows("tensors"):
            path: Where = ("tensors", name)
            loops = t.get("for") or ()
            more = {loop[0] for loop in loops if loop}
            if t and None not in loops and sorted(re.findall(r"\{(.*?)\}|[{}]", name)) != sorted(x[0] for x in loops):
                self.out.add("CON104", path, name, expected="{i} once in the name for each for of i, and so for j")
            for n, axis in enumerate(t.get("shape") or ()):
                self.expr(axis, (*path, "shape", n), False, more, numbers=more)
            self.expr(t.get("when"), (*path, "when"), True, more, numbers=more)
            for n, loop in enumerate(loops):
                for end in (loop or ())[1:3]:
                    self.expr(end, (*path, "for", n), False)
        names = self.data.get("tensors") or {}
        for name, exprs in (self.data.get("values") or {}).items():
            self.name(name, ("values", name), names, "a tensor of [tensors]")
            for n, expr in enumerate(exprs or ()):
                self.expr(expr, ("values", name, n), True, ELEMENT_NAMES.union(names), numbers=("i", "count_true"))

    def config(self) -> None:
        """Check the rules about config keys, the aux conventions, and what stands in text."""
        for key, k in self.rows("config"):
            numbers = {"i", "count_true"} | ({"it"} if k.get("type") in ("int", "float", "ints") else set())
            self.expr(k.get("check"), ("config", key, "check"), True, ELEMENT_NAMES, numbers=numbers)
            self.expr(k.get("when"), ("config", key, "when"), True)
        for name, c in ((self.data.get("aux") or {}).get("conventions") or {}).items():
            path = ("aux", "conventions", name)
            for n, expr in enumerate((c or {}).get("default") or ()):
                self.expr(expr, (*path, "default", n), False)
            for end in ("low", "high"):
                self.expr((c or {}).get(end), (*path, end), False)
        self.expr((self.data.get("rope") or {}).get("rotary"), ("rope", "rotary"), False)
        for name, m in self.rows("meanings") if self.kind == "family" else ():
            self.expr(m.get("when"), ("meanings", name, "when"), True)
            for tensor in m.get("tells") or ():
                known = [re.escape(t).replace(r"\{i\}", r"\d+") for t in self.data.get("tensors") or ()]
                if self.sure and not any(re.fullmatch(t, tensor) for t in known):
                    self.out.add(
                        "CON107", ("meanings", name, "tells", tensor), tensor, expected="a tensor of [tensors]"
                    )
        for n, text in enumerate(self.data.get("summary") or ()):
            for inner in re.findall(r"\{(.*?)\}", text or ""):
                try:
                    self.expr(parse(inner), ("summary", n), False)
                except ExprError as error:
                    self.out.add("CON106", ("summary", n), inner, expected="an expression", note=visible(error))

    def name(self, name: str, path: Where, known: Iterable[str], expected: str) -> None:
        """Check that a name is one of those that are known."""
        if self.sure and name not in (names := list(known)):
            self.out.add("CON107", path, near=(name, names), expected=expected)

    def parts(self) -> None:
        """Check that each part of sizes, roles and keys is given, or said not to be, and is a name that exists."""
        for table, known in (("sizes", self.scope), ("roles", self.data.get("tensors") or {})):
            given: Mapping[str, Any] = self.data.get(table) or {}
            none = given.get("none") or ()
            for part, name in given.items():
                if part != "none" and name is not None:
                    expected = f"one of {', '.join(sorted(known))}" if table == "sizes" else "a tensor of [tensors]"
                    self.name(name, (table, part), known, expected)
                    if part in none:
                        self.out.add("CON104", (table, part), f"{part} in none too", expected="one of the two")
            parts = [part for part in KINDS[self.kind].fields[table].fields if part != "none"]
            self.missing(table, [part for part in parts if part not in given and part not in none], "none = [...]")
        keys = {"mask", *(self.data.get("keys") or ())}
        self.missing("keys", [part for part in KINDS[self.kind].fields["keys"].fields if part not in keys], "[]")

    def missing(self, table: str, parts: list[str], otherwise: str) -> None:
        """Report the parts of a table that are not given."""
        if parts and self.sure and self.data.get(table, {}) is not None:
            self.out.add("CON105", (table,), f"nothing for {', '.join(parts)}", expected=f"every part, or {otherwise}")

    def codes(self) -> None:
        """Check that the codes that rules report are in the rule table."""
        places = {"dims": ("differs",), "tensors": ("missing", "misfit"), "config": ("code",), "dialects": ("flag",)}
        for table, keys in places.items():
            for name, entry in self.rows(table):
                for key in keys:
                    if entry.get(key) and entry[key] not in RULES:
                        near = (entry[key], RULES)
                        self.out.add("CON116", (table, name, key), near=near, expected="a code of the rule table")

    def dialects(self) -> None:
        """Check that every dialect leads from each canonical name to one name on disk, and back."""
        names = [n.replace("{i}", "0").replace("{j}", "0") for n in self.data.get("tensors") or ()]
        for name, d in self.rows("dialects"):
            path = ("dialects", name)
            pairs = [*(d.get("rename") or {}).items(), *([(d["strip"], "")] if d.get("strip") is not None else [])]
            if any(new is None for _, new in pairs):
                continue
            for prefixes in zip(*pairs, strict=True):
                if twice := [prefix for prefix in prefixes if prefixes.count(prefix) > 1]:
                    self.out.add("CON104", path, f"{twice[0]!r} twice", expected="each prefix once")
                    break
            else:
                dialect = _dialect(name, d)
                if wrong := next((n for n in names if dialect.decode(dialect.encode(n)) != n), None):
                    disk = dialect.encode(wrong)
                    seen = f"{wrong} is written {disk}, which is read as {dialect.decode(disk) or 'nothing'}"
                    self.out.add("CON104", path, seen, expected="names that lead there and back")


def _check_scheme(data: Mapping[str, Any], out: Problems) -> None:
    """Check a scheme's expressions against its values, and each layout against itself; a value is a dim of its own."""
    rows = {name: row or {} for name, row in (data.get("values") or {}).items()}
    dims = {name: {"drafter" if k == "keys" else k: v for k, v in row.items()} for name, row in rows.items()}
    check = _Check("scheme", {"dims": dims}, out, not out.found)
    check.sure = not out.found
    check.dims()
    for name, row in rows.items():
        check.expr(row.get("check"), ("values", name, "check"), True, ("it",), numbers=("it",))
    for id, layout in (data.get("layouts") or {}).items():
        _check_layout(check, ("layouts", id), layout or {})


def _check_layout(check: _Check, path: Where, layout: Mapping[str, Any]) -> None:
    axes, logical = layout.get("axes") or (), layout.get("logical") or {}
    check.expr(layout.get("applies"), (*path, "applies"), True)
    for name, size in logical.items():
        check.expr(size, (*path, "logical", name), False, axes, numbers=axes)
    scope = {*axes, *logical}
    for suffix, row in (layout.get("tensors") or {}).items():
        where = (*path, "tensors", suffix)
        for shape in ((row or {}).get("shape"), *((row or {}).get("also") or ())):
            for axis in shape or ():
                check.expr(axis, (*where, "shape"), False, scope, numbers=scope)
        check.expr((row or {}).get("when"), (*where, "when"), True, scope, numbers=scope)
    for n, expr in enumerate(layout.get("checks") or ()):
        check.expr(expr, (*path, "checks", n), True, scope, numbers=scope)
    if layout.get("main") is not None and layout["main"] not in (layout.get("tensors") or {}):
        near = (layout["main"], list(layout.get("tensors") or {}))
        check.out.add("CON107", (*path, "main"), near=near, expected="one of the layout's own tensors")


def _check_pair(data: Mapping[str, Any], out: Problems, library: Library) -> None:
    for side in ("drafter", "target"):
        revision = (data.get(side) or {}).get("revision")
        if revision is not None and not re.fullmatch(r"[0-9a-f]{40}", revision):
            out.add("CON110", (side, "revision"), revision, expected="40 hex digits of a commit")
    known = list(library.files("family"))
    if (id := data.get("family")) and id not in known and not any(one.startswith(f"{id}-") for one in known):
        out.add("CON113", ("family",), near=(data["family"], known), expected=f"one of {', '.join(known)}")
    for n, id in enumerate(data.get("accepts") or ()):
        known = list(library.files("acceptance"))
        if id is not None and id not in known:
            out.add("CON113", ("accepts", n), near=(id, known), expected=f"one of {', '.join(known) or 'none yet'}")
    for id in data.get("launch") or ():
        known = list(library.files("launch"))
        if id not in known:
            out.add("CON113", ("launch", id), near=(id, known), expected=f"one of {', '.join(known)}")
    for n, spec in enumerate(data.get("engines") or ()):
        known = [*library.files("profile"), "all"]
        if spec is not None and (name := spec.partition("@")[0]) not in known:
            out.add("CON113", ("engines", n), near=(name, known), expected=f"one of {', '.join(known)}")
    _check_accepted(data, out)


def _check_accepted(data: Mapping[str, Any], out: Problems) -> None:
    for key in ("allow", "expect_unknown"):
        for n, row in enumerate(data.get(key) or ()):
            because, code = (row or {}).get("because"), (row or {}).get("code")
            if because is not None and not because.strip():
                out.add("CON111", (key, n, "because"), "nothing", expected="a reason")
            if code is not None and not any(fnmatchcase(known, code) for known in RULES):
                out.add("CON116", (key, n, "code"), near=(code, RULES), expected="a code of the rule table")


def _check_model(data: Mapping[str, Any], out: Problems, library: Library, stem: str) -> None:
    if data.get("repo") and data["repo"].replace("/", "--").lower() != stem:
        out.add("CON104", ("repo",), data["repo"], expected=f"the repo that the file {stem}.toml is named after")
    id, known = (data.get("contract") or {}).get("value"), [*library.files("family"), *library.files("target")]
    if id is not None and id not in known:
        out.add("CON113", ("contract", "value"), near=(id, known), expected=f"one of {', '.join(known)}")


def _check_engine(data: Mapping[str, Any], out: Problems, library: Library) -> None:
    _check_ids(data, out)
    for n, row in enumerate(data.get("rows") or ()):
        _check_when((row or {}).get("when"), ("rows", n, "when"), out, library)


# what is found
SAYS = (
    "version",
    "lifted",
    "read_as",
    "overrides",
    "runner",
    "method",
    "code",
    "architecture",
    "family",
    "line",
    "carried",
    "captured",
)


_SIDES = (
    "drafter",
    "target",
    "launch",
    "request",
    "theirs",
    "declared",
    "has",
    "rows",
    "columns",
    "written",
    "gguf",
    "whole",
    "stored",
    "held",
    "overrides",
    "cast",
    "json",
    "named",
)  # what stands before a key, a flag, a fact, a tensor


VALUES = ("int", "float", "bool", "text", "list", "table", "null", "any")  # kinds of what a config holds


def _check_configs(data: Mapping[str, Any], out: Problems) -> None:
    """Check that each key of a config class names kinds of value that there are, and one default at most."""
    rows = {("types", name): keys or {} for name, keys in (data.get("types") or {}).items()}
    for where, keys in rows.items():
        for key, row in keys.items():
            words = row[0].split() if row and isinstance(row[0], str) else []
            if not words or len(row or ()) > 2 or set(words) - set(VALUES):
                seen = visible(row)
                out.add("CON104", (*where, key), seen, expected=f"kinds ({', '.join(VALUES)}), and one default")


def _check_reading(kind: str, data: Mapping[str, Any], out: Problems, library: Library) -> None:
    """Check the names that a profile or a class of an engine uses: its own, another's of the engine, or a dim's."""
    profiles = [data] if kind == "profile" else _profiles_of(data, out, library)
    classes = library.files("class")
    own = {*SAYS, *(data.get("dims") or {})}.union(*(one.get("facts") or {} for one in profiles))
    if kind == "profile":  # its rows may speak of what a class reads
        for id in data.get("registry") or {}:
            own |= set(_dims_of(id, library)) if id in classes else set()
    constants: dict[str, Collection[str]] = {"code": data.get("registry") or {}} if kind == "profile" else {}
    for what in ("runner", "method") if kind == "profile" else ():
        constants[what] = {row["is"] for row in data.get(f"{what}s") or () if row and row.get("is")}
    for where, expr in [*_expressions(data, ()), *_shown(data, out)]:
        rows = (data["params"][where[1]].get("for") or ()) if where[0] == "params" and where[2] != "for" else ()
        known = own | {row[0] for row in rows if row}
        for name in sorted(_lacking(expr, known, library)):
            side, dot, key = name.partition(".")
            near = nearest(key, FACTS) if side == "declared" else nearest(side if dot else name, (*known, *_SIDES))
            expected = (
                "a fact of the profile, a dim of the class or of a family, or drafter., target., launch. and a key"
            )
            out.add("CON107", where, f"{name}{near} in {expr}", expected=expected)
        for name, text in _compared(expr):
            if name in constants and text and text not in constants[name]:
                expected = f"one of {', '.join(sorted(constants[name])) or 'none'}"
                out.add("CON107", where, near=(text, constants[name]), expected=expected)
    if kind == "profile":
        _check_profile(data, out, library)
    else:
        _check_class(data, profiles, out)


def _shown(data: Mapping[str, Any], out: Problems) -> Iterator[tuple[Where, Expr]]:
    """Yield the expressions in what the rows of a profile say to see."""
    for n, row in enumerate(data.get("rows") or ()):
        for inner in braced((row or {}).get("see") or ""):
            try:
                yield ("rows", n, "see"), parse(inner, True)
            except ExprError as error:
                out.add("CON106", ("rows", n, "see"), inner, expected="an expression", note=visible(error))


def _profiles_of(data: Mapping[str, Any], out: Problems, library: Library) -> list[Mapping[str, Any]]:
    """Return the profiles that lead to a class, or to one that adds to it; all, where none does."""
    id, read = Path(out.label).stem, {i: library.parsed("profile", p)[0] for i, p in library.files("profile").items()}
    profiles: list[Mapping[str, Any]] = [one for one in read.values() if one is not None]
    heirs = {id} | {i for i, p in library.files("class").items()
                    if (library.parsed("class", p)[0] or {}).get("extends") == id}  # fmt: skip
    return [one for one in profiles if heirs & set(one.get("registry") or {})] or profiles


def _dims_of(id: str, library: Library) -> Mapping[str, Any]:
    """Return the dims of a class, with those of the class that it adds to."""
    data = library.parsed("class", library.files("class")[id])[0] or {}
    parent = library.files("class").get(data.get("extends") or "")
    return {
        **((library.parsed("class", parent)[0] or {}).get("dims") or {} if parent else {}),
        **(data.get("dims") or {}),
    }


def _lacking(expr: Expr, known: Collection[str], library: Library) -> set[str]:
    """Return the names in an expression of an engine that nothing gives a meaning."""
    free = set()
    for name in expr.names - set(known):
        side, dot, key = name.partition(".")
        if not dot or side not in _SIDES or (side == "declared" and key.partition(".")[0] not in FACTS):
            free.add(name)
    return library.lacking(free)[0] if free else set()


def _compared(expr: Expr) -> Iterator[tuple[str, str]]:
    """Yield each name that an expression compares with a text, and the text."""
    for node in ast.walk(expr.tree):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name):
            for one in node.comparators:
                for text in one.elts if isinstance(one, ast.Tuple) else [one]:
                    if isinstance(text, ast.Constant) and isinstance(text.value, str):
                        yield node.left.id, text.value


def _check_profile(data: Mapping[str, Any], out: Problems, library: Library) -> None:
    _check_ids(data, out)
    for name, code in (data.get("codes") or {}).items():
        if code is not None and code not in RULES:
            out.add("CON116", ("codes", name), near=(code, RULES), expected="a code of the rule table")
    engine, engines = data.get("engine"), library.files("engine")
    if engine is not None and engine not in engines:
        out.add("CON113", ("engine",), near=(engine, engines), expected=f"one of {', '.join(engines)}")
    through = data.get("configs") or {}
    for key in ("stage", "unknown", "wrong") if through and not through.get("alone") else ():
        if key not in through:
            out.add("CON105", ("configs", key), "nothing", expected=f"{key}, unless a config is read alone")
    seen: dict[str, str] = {}
    ranges = data.get("ranges") or {}
    for table in ("registry", "ranges"):
        for id in data.get(table) or {}:
            if id not in library.files("class"):
                out.add("CON113", (table, id), near=(id, library.files("class")), expected="a class of an engine")
    for id, names in (data.get("registry") or {}).items():
        for n, name in enumerate(names or ()):
            if name is not None and seen.setdefault(name, id) != id and not {id, seen[name]} & set(ranges):
                out.add("CON104", ("registry", id, n), f"{name}, as of {seen[name]}", expected="one class for each")
    methods = {row["is"] for row in data.get("methods") or () if row and row.get("is")}
    for name in data.get("hooks") or {}:
        if name not in methods:
            out.add("CON107", ("hooks", name), near=(name, methods), expected=f"one of {', '.join(sorted(methods))}")
    for name, row in (data.get("loaders") or {}).items():
        for key in ("larger", "smaller"):
            if row and ("axis" in row) != (key in row):
                out.add(
                    "CON105", ("loaders", name, key), "one without the other", expected=f"axis and {key}, or neither"
                )
    rows = [(("rows", n), row) for n, row in enumerate(data.get("rows") or ())]
    asks = [(("requests", n), row) for n, row in enumerate(data.get("requests") or ())]
    bare = [(("hookless", n), row) for n, row in enumerate(data.get("hookless") or ())]
    for path, row in [*rows, *asks, *bare, *(((key,), data.get(key)) for key in ("unregistered", "unserved"))]:
        if row and "refuse" in str(row.get("outcome", row.get("does"))) and "error" not in row:
            out.add("CON105", (*path, "error"), "nothing", expected="error: the class of what is raised")


def _check_class(data: Mapping[str, Any], profiles: Iterable[Mapping[str, Any]], out: Problems) -> None:
    params = data.get("params") or {}
    loaders = {name: row for one in profiles for name, row in (one.get("loaders") or {}).items()}
    for name, row in params.items():
        loader, axis = (row or {}).get("loader"), 0
        if loader is not None and loader not in loaders:
            expected = f"one of {', '.join(sorted(loaders))}"
            out.add("CON104", ("params", name, "loader"), near=(loader, loaders), expected=expected)
        elif loader is not None:
            axis = (loaders[loader] or {}).get("axis") or 0
        if row and row.get("shape") is not None and axis >= len(row["shape"]):
            seen = f"{len(row['shape'])}: loader {loader} splits axis {axis}"
            out.add("CON104", ("params", name, "shape"), seen, expected=f"{axis + 1} axes or more")
        for n, other in enumerate((row or {}).get("gives") or ()):
            if other is not None and other not in params:
                out.add(
                    "CON107", ("params", name, "gives", n), near=(other, params), expected="a parameter of the class"
                )
        marks = set(re.findall(r"\{(\w+)\}", name))
        if row and (made := {one[0] for one in row.get("for") or () if one}) != marks:
            expected = f"for each of {', '.join(sorted(marks)) or 'none'}, as the name has"
            out.add("CON104", ("params", name, "for"), ", ".join(sorted(made)) or "nothing", expected=expected)
    for n, row in enumerate(data.get("names") or ()):
        if row and len(found := row.keys() & {"starts", "part", "match"}) != 1:
            seen = " and ".join(sorted(found)) or "neither"
            out.add("CON105", ("names", n), seen, expected="starts, part or match")


def _check_launch(data: Mapping[str, Any], out: Problems) -> None:
    """Check that each spelling belongs to one flag, and that what names a flag names one that is there."""
    flags = {id: row for id, row in (data.get("flags") or {}).items() if row is not None}
    dests = {row.get("dest") or id for id, row in flags.items()} | {"env"}
    spelt: dict[str, str] = {}
    for id, row in flags.items():
        for name in (*(row.get("names") or (_dashed(id),)), *(row.get("off") or ())):
            if name is not None and spelt.setdefault(name, id) != id:
                out.add(
                    "CON104", ("flags", id, "names"), f"{name}, as flags.{spelt[name]}", expected="a name of its own"
                )
    named: list[tuple[Where, str | None]] = [
        ((key, n), one)
        for key in ("target", "drafter", "target_revision", "drafter_revision", "unread")
        for n, one in enumerate(data.get(key) or ())
    ]
    named += [(("commands", n, "positional"), (row or {}).get("positional"))
              for n, row in enumerate(data.get("commands") or ())]  # fmt: skip
    named += [(("advice", n, "flag"), (row or {}).get("flag")) for n, row in enumerate(data.get("advice") or ())]
    for where, one in named:
        if one is not None and one.partition(".")[0] not in dests:
            out.add("CON107", where, near=(one, dests), expected="a flag of the file")


def _dashed(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _expressions(value: Any, path: Where) -> Iterator[tuple[Where, Expr]]:
    if isinstance(value, Expr):
        yield path, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _expressions(one, (*path, key))
    elif isinstance(value, tuple):
        for n, one in enumerate(value):
            yield from _expressions(one, (*path, n))


def _check_ids(data: Mapping[str, Any], out: Problems) -> None:
    ids: dict[str, int] = {}
    for n, row in enumerate(data.get("rows") or ()):
        id = (row or {}).get("id")
        if id is not None and ids.setdefault(id, n) != n:
            out.add("CON104", ("rows", n, "id"), f"{id}, as rows[{ids[id]}]", expected="an id of its own")


def _check_when(
    when: Expr | None, path: Where, out: Problems, library: Library, truth: bool = True, more: Iterable[str] = ()
) -> None:
    """Check an expression over the dims of whichever family it will meet."""
    if when is None:
        return
    lacking, seen = library.lacking(set(when.names) - set(more))
    for name in sorted(lacking):
        near = f"{name}{nearest(name, seen)} in {when}"
        out.add("CON107", path, near, expected=f"a dim of a family: {', '.join(sorted(seen))}")
    says = _says(when.tree, frozenset(), frozenset(more))
    if says is not None and says is not truth:
        words = ("a number", "yes or no")
        message = f"says {words[says]}, not {words[truth]}"
        out.add("CON106", path, when, message=message, expected=f"an expression that says {words[truth]}")


IDS = ("first", "last")  # of a list of layer ids, in the rules of a trainer's capture


def _check_trainer(data: Mapping[str, Any], out: Problems, library: Library) -> None:
    _check_ids(data, out)
    seen: dict[str, int] = {}
    for n, layout in enumerate(data.get("layouts") or ()):
        if layout:
            _check_trained(layout, n, seen, out, library)
    start = data.get("start") or {}
    if start.get("takes") == "folder" and not start.get("setting"):
        out.add("CON105", ("start", "setting"), "nothing", expected="the setting that names the folder")
    for n, file in enumerate((data.get("map") or {}).get("files") or ()):
        holds = (file or {}).get("holds") or {}
        if ("" in holds and len(holds) > 1) or ((file or {}).get("form") == "npy" and list(holds) != [""]):
            expected = 'one entry, "", for the whole file'
            out.add("CON104", ("map", "files", n, "holds"), ", ".join(holds), expected=expected)
    for n, capture in enumerate(data.get("captures") or ()):
        path: Where = ("captures", n)
        _check_families((capture or {}).get("families"), (*path, "families"), out, library)
        for m, expr in enumerate((capture or {}).get("default") or ()):
            _check_when(expr, (*path, "default", m), out, library, truth=False)
        for m, rule in enumerate((capture or {}).get("rules") or ()):
            _check_when((rule or {}).get("when"), (*path, "rules", m, "when"), out, library, more=IDS)
    for n, row in enumerate(data.get("rows") or ()):
        _check_when((row or {}).get("when"), ("rows", n, "when"), out, library)
        _check_families((row or {}).get("families"), ("rows", n, "families"), out, library)
        if row is not None and "when" not in row and "value" not in row:
            out.add("CON105", ("rows", n), "neither when nor value", expected="one of them")


def _check_families(ids: Iterable[str | None] | None, path: Where, out: Problems, library: Library) -> None:
    known = list(library.files("family"))
    for n, id in enumerate(ids or ()):
        if id is not None and id not in known:
            out.add("CON113", (*path, n), near=(id, known), expected=f"one of {', '.join(known)}")


def _check_trained(layout: Mapping[str, Any], n: int, seen: dict[str, int], out: Problems, library: Library) -> None:
    """Check that what a layout names is there in its family."""
    path: Where = ("layouts", n)
    id = layout.get("family")
    converts = [(row or {}).get("family") for row in layout.get("converts") or ()]
    for row, one in ((("family",), id), *(((("converts", m, "family")), c) for m, c in enumerate(converts))):
        if one is None:
            continue
        _check_families([one], (*path, *row), out, library)
        if seen.setdefault(one, n) != n or (one in converts and one == id):
            out.add("CON104", (*path, *row), f"{one} twice", expected="each family once")
    family, _ = library.get("family", id) if id in library.files("family") else (None, ())
    if family is None:
        return  # its own file says why
    known = [d.name for d in family.dialects]
    if (name := layout.get("dialect")) is not None and name not in known:
        out.add("CON107", (*path, "dialect"), near=(name, known), expected=f"one of {', '.join(known)}")
    for key in ("writes", "needs", "refuses", "replaces", "lacks"):
        for m, tensor in enumerate(layout.get(key) or ()):
            where = (*path, key, tensor if isinstance(layout[key], Mapping) else m)
            if tensor is not None and tensor not in family.tensors:
                out.add("CON107", where, near=(tensor, list(family.tensors)), expected=f"a tensor of {id}")
    for key in ("needs", "refuses"):
        for tensor, expr in (layout.get(key) or {}).items():
            for name in sorted((expr.names if expr else set()) - set(family.dims) - {"true", "false"}):
                out.add("CON107", (*path, key, tensor), near=(name, list(family.dims)), expected=f"a dim of {id}")


# --- building: only from what has no error ------------------------------------------------------------------------


def _dialect(name: str, d: Mapping[str, Any]) -> Dialect:
    rename = dict(d.get("rename") or {}) | ({d["strip"]: ""} if d.get("strip") is not None else {})
    bare = tuple(b for b in d.get("bare") or () if b is not None)
    return Dialect(name, rename, bare, d.get("flag") or "", d.get("format") or "")


def _contract(kind: str, id: str, data: Mapping[str, Any], out: Problems) -> Contract:
    dims = {
        name: Dim(
            name,
            sources={side: d[side] for side in ("drafter", "target") if side in d},
            first=d.get("pick") == "first",
            default=d.get("default"),
            bool_=d.get("type") == "bool",
            differs=d.get("differs", "DIM401"),
            texts=d.get("texts", {}),
            optional=d.get("optional", False),
            least=d.get("least", 1),
            line=out.line(("dims", name)),
        )
        for name, d in data.get("dims", {}).items()
    }
    tensors = {
        name: TensorRule(
            name,
            **{key: value for key, value in t.items() if key not in ("for", "dtype")},
            over=tuple(Loop(*loop) for loop in t.get("for", ())),
            dtype=tuple(d for word in t.get("dtype", ("float",)) for d in DTYPE_SETS.get(word, (word,))),
            line=out.line(("tensors", name)),
        )
        for name, t in data.get("tensors", {}).items()
    }
    config = {key: KeyRule(key, **k, line=out.line(("config", key))) for key, k in data.get("config", {}).items()}
    aux = data.get("aux", {})
    conventions = [Convention(n, **c) for n, c in aux.get("conventions", {}).items()]
    return Contract(
        kind,
        id,
        title=data["title"],
        source=data["source"],
        label=out.label,
        extends=data.get("extends", ""),
        detect=data.get("detect", {}),
        dims=dims,
        tensors=tensors,
        dialects=tuple(_dialect(name, d) for name, d in data.get("dialects", {"bare": {}}).items()),
        config=config,
        roles={part: name for part, name in data["roles"].items() if part != "none"},
        sizes={part: name for part, name in data["sizes"].items() if part != "none"},
        rope=data.get("rope", {}),
        keys=data["keys"],
        aux_keys=aux.get("keys", ()),
        conventions={c.name: c for c in sorted(conventions, key=lambda c: (c.offset, c.name))},
        nested=data.get("nested", ()),
        values=data.get("values", {}),
        summary=data.get("summary", ()),
        layer=data.get("layer", {}),
        head_lent=bool(data.get("head_lent")),
        standalone=bool(data.get("standalone")),
        serving=data.get("serving", ()),
        meanings=_meanings(data.get("meanings", {}), out),
    )


def _meanings(data: Mapping[str, Any], out: Problems) -> dict[str, Meaning]:
    """Return the meanings of a family; a target states each in one word."""
    rows: dict[str, dict[str, Any]] = {
        n: {"is": m, "because": ""} if isinstance(m, str) else m for n, m in data.items()
    }
    return {
        name: Meaning(name, **{f"{k}_" if k in ("is", "or") else k: v for k, v in m.items()},
                      line=out.line(("meanings", name)))
        for name, m in rows.items()
    }  # fmt: skip


def _scheme(kind: str, id: str, data: Mapping[str, Any], out: Problems) -> Scheme:
    values = data.get("values", {})
    dims = {
        name: Dim(
            name,
            sources={"drafter": v["keys"]} if "keys" in v else {},
            first=True,
            default=v.get("default"),
            bool_=v.get("type") == "bool",
            texts=v.get("texts", {}),
            line=out.line(("values", name)),
        )
        for name, v in values.items()
    }
    return Scheme(
        id,
        title=data["title"],
        label=out.label,
        methods=data["methods"],
        marks=data.get("marks", ()),
        modules=data["modules"],
        values=dims,
        checks={name: v["check"] for name, v in values.items() if "check" in v},
        layouts=tuple(_layout(name, row) for name, row in data["layouts"].items()),
        beside=data.get("beside", ()),
    )


def _layout(id: str, row: Mapping[str, Any]) -> Layout:
    stored = tuple(
        Stored(
            suffix,
            shapes=(*([t["shape"]] if "shape" in t else ()), *t.get("also", ())),
            dtype=tuple(d for word in t.get("dtype", ()) for d in DTYPE_SETS.get(word, (word,))),
            when=t.get("when"),
            presence=t.get("presence", "required"),
        )
        for suffix, t in row["tensors"].items()
    )
    return Layout(id, **{"logical": {}, "when": {}} | dict(row) | {"tensors": stored})


def _pair(kind: str, id: str, data: Mapping[str, Any], out: Problems) -> Pair:
    return Pair(
        id,
        title=data["title"],
        label=out.label,
        drafter=data["drafter"]["model"],
        target=data["target"]["model"],
        drafter_revision=data["drafter"].get("revision"),
        target_revision=data["target"].get("revision"),
        drafter_repo=data["drafter"].get("repo", ""),
        target_repo=data["target"].get("repo", ""),
        family=data.get("family", ""),
        facts=_facts(data.get("facts", {})),
        accepts=data.get("accepts", ()),
        engines=data.get("engines", ()),
        launch=data.get("launch", {}),
        lines=tuple(out.line(("accepts", n)) for n in range(len(data.get("accepts", ())))),
        **_accepted(data, out),
    )


def _shared(kind: str, id: str, data: Mapping[str, Any], out: Problems) -> Shared:
    return Shared(id, data["title"], out.label, data.get("provenance", ()), **_accepted(data, out))


def _accepted(data: Mapping[str, Any], out: Problems) -> dict[str, Any]:
    return {
        key: tuple(Acceptance(**row, line=out.line((key, n))) for n, row in enumerate(data.get(key, ())))
        for key in ("allow", "expect_unknown")
    }


def _facts(data: Mapping[str, Any]) -> dict[str, Fact]:
    """Return the declared facts; what a name or a key means stands under meanings.NAME."""
    found = {k: Fact(**v) for k, v in data.items() if k in FACTS and k != "meanings"}
    return found | {f"meanings.{k}": Fact(**v) for k, v in data.get("meanings", {}).items()}


def _model(kind: str, id: str, data: Mapping[str, Any], out: Problems) -> Model:
    contract = Fact(**data["contract"]) if "contract" in data else None
    return Model(id, data["repo"], _facts(data), data.get("aliases", ()), contract, **data.get("lineage", {}))


def _engine(kind: str, id: str, data: Mapping[str, Any], out: Problems) -> Engine:
    says = {"engine": data["title"], "version": data["version"]}
    rows = tuple(EngineRow(**says, **row) for row in data["rows"])
    return Engine(id, data["title"], data["version"], rows)


def _row(says: Mapping[str, str], row: Mapping[str, Any], out: Problems, *path: str | int) -> EngineRow:
    return EngineRow(**{"key": "", "when": parse("true"), **says, **row}, line=partial(out.line, path))


def _spanned(value: Any) -> Any:
    """Return what was read of a profile with the versions of each row folded into its condition."""
    if isinstance(value, tuple):
        return tuple(map(_spanned, value))
    row = {key: _spanned(one) if isinstance(one, dict) or (isinstance(one, tuple) and one and isinstance(one[0], dict))
           else one for key, one in value.items()}  # fmt: skip
    since, until = row.pop("since", ""), row.pop("until", "")
    return row | {"when": within(since, until, row.get("when"))} if since or until else row


def _profile(kind: str, id: str, data: Mapping[str, Any], out: Problems) -> Any:
    from draftproof import profiles as p  # noqa: PLC0415 (only where an engine is asked for)

    every = data["rows"]
    data = _spanned({key: value for key, value in data.items() if key != "rows"})
    says = {"engine": data["title"], "version": data["versions"][0]["is"]}
    none = data.get("unregistered")
    return p.Profile(
        id,
        title=data["title"],
        engine=data.get("engine", ""),
        versions=tuple(
            p.Version(row["is"], row.get("basis", "read"), row.get("also", ())) for row in data["versions"]
        ),
        codes=data["codes"],
        facts=data.get("facts", {}),
        runners=_chosen(data.get("runners", ())),
        methods=_chosen(data["methods"]),
        formats=data.get("formats", ()),
        lifts=data.get("lifts", ()),
        lift_with=data.get("lift_with", ""),
        **{key: data[key] for key in (
            "overrides", "overrides_of", "overrides_late", "overrides_stage", "index", "index_before", "instead",
            "serves", "makes",
        ) if key in data},
        lift_keeps=data.get("lift_keeps", ()),
        lift_by=data.get("lift_by", ""),
        lift_alone=data.get("lift_alone", {}),
        lift_copies=data.get("lift_copies", {}),
        lift_over=data.get("lift_over", False),
        renamings=tuple(p.Renaming(**{"when": None, **row}) for row in data.get("renamings", ())),
        registry=data["registry"],
        ranges={name: row["when"] for name, row in data.get("ranges", {}).items() if "when" in row},
        others=data.get("others", ()),
        unregistered=_row(says, none, out, "unregistered") if none else None,
        unnamed=_row(says, lone, out, "unnamed") if (lone := data.get("unnamed")) else None,
        unserved=_row(says, other, out, "unserved") if (other := data.get("unserved")) else None,
        first=data.get("first", False),
        configs=p.Through(**{f"{k}_" if k == "is" else k: v for k, v in read.items()})
        if (read := data.get("configs")) else None,
        hooks=data.get("hooks", {}),
        targets=data.get("targets", ()),
        alike=data.get("alike", {}),
        unstated=data.get("unstated", {}),
        unhooked=data.get("unhooked", ()),
        misread=data.get("misread", {}),
        hookless=tuple(_row(says, row, out, "hookless", n) for n, row in enumerate(data.get("hookless", ()))),
        beside=tuple(p.Beside(**row) for row in data.get("beside", ())),
        portable=data.get("portable", {}),
        captures=tuple(
            p.Capture(**{**row, "keys": tuple(p.AuxKey(**key) for key in row.get("keys", ())),
                         "default": row.get("default", ())})
            for row in data.get("captures", ())
        ),
        loaders={name: p.Loader(**row) for name, row in data.get("loaders", {}).items()},
        requests=tuple(
            p.Request(**row, line=partial(out.line, ("requests", n))) for n, row in enumerate(data.get("requests", ()))
        ),
        rows=p.Rows(compiled.grouped(every), getattr(every, "ids", None) or [row["id"] for row in every],
                    lambda n: _row(says, every[n], out, "rows", n)),
    )  # fmt: skip


def _launches(kind: str, id: str, data: Mapping[str, Any], out: Problems) -> Any:
    from draftproof import profiles as p  # noqa: PLC0415

    flags = tuple(
        p.Flag(**{"dest": name, "names": (_dashed(name),), **row}) for name, row in data["flags"].items()
    )  # fmt: skip
    rows = {key: value for key, value in data.items() if key not in ("flags", "commands", "advice")}
    return p.Launches(
        id,
        engine=data["title"],
        commands=tuple(p.Command(**row) for row in data["commands"]),
        flags=flags,
        advice=tuple(p.Advice(**{"when": None, **row}) for row in data.get("advice", ())),
        **rows,
    )


def _configs(kind: str, id: str, data: Mapping[str, Any], out: Problems) -> Any:
    from draftproof import profiles as p  # noqa: PLC0415

    head = (id, data["title"], data["version"], data["source"])
    return p.Configs(*head, data["types"], frozenset(data.get("known", ())), data.get("basis", "read"))


def _chosen(rows: Iterable[Mapping[str, Any]]) -> tuple[Any, ...]:
    from draftproof.profiles import Chosen  # noqa: PLC0415

    return tuple(
        Chosen(row["is"], row.get("when"), row.get("source", ""), row.get("idle", False), row.get("config"))
        for row in rows
    )


def _class(kind: str, id: str, data: Mapping[str, Any], out: Problems) -> Any:
    from draftproof import profiles as p  # noqa: PLC0415

    data = _spanned(data)
    params = {}
    for name, row in data["params"].items():
        loops = tuple(Loop(*loop) for loop in row.get("for", ()))
        params[name] = p.Param(name, over=loops, **{k: v for k, v in row.items() if k != "for"})
    skips = tuple(
        p.Skip(**{("as_" if k == "as" else k): v for k, v in row.items() if k != "for"},
               over=tuple(Loop(*loop) for loop in row.get("for", ())))
        for row in data.get("skips", ())
    )  # fmt: skip
    return p.DrafterClass(
        id,
        title=data["title"],
        source=data["source"],
        dims=data["dims"],
        names=tuple(p.Name(**row) for row in data.get("names", ())),
        skips=skips,
        unknown=data["unknown"],
        params=params,
        says=data.get("says", ""),
        spares=data.get("spares"),
        basis=data.get("basis", "read"),
        stage=data.get("stage", "load"),
        left=data.get("left", ""),
        twice=data.get("twice", ""),
        twice_says=data.get("twice_says", ""),
    )


def _format(kind: str, id: str, data: Mapping[str, Any], out: Problems) -> Any:
    from draftproof.profiles import Drafters, Format, KeyIn, TypeIn  # noqa: PLC0415

    def keys(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, KeyIn]:
        return {key: KeyIn(**{("from_" if k == "from" else k): v for k, v in row.items()}) for key, row in rows.items()}

    def types(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, TypeIn]:
        return {
            key: TypeIn(tuple(row["is"]), row.get("needed", False), row.get("where", {})) for key, row in rows.items()
        }

    kinds = {name: Drafters(row.get("set", {}), keys(row.get("keys", {})), row.get("target", False),
                            types(row.get("types", {})))
             for name, row in data["architectures"].items()}  # fmt: skip
    own = (data["title"], data["source"], data["suffix"], keys(data["keys"]))
    return Format(id, *own, kinds, types(data.get("types", {})))


def _release(kind: str, id: str, data: Mapping[str, Any], out: Problems) -> Release:
    rows = {"leftovers": Leftover, "secrets": Secret}
    made = {key: tuple(made(**row) for row in data[key]) for key, made in rows.items() if key in data}
    return Release(id, **{**data, **made})


def _trainer(kind: str, id: str, data: Mapping[str, Any], out: Problems) -> Any:
    from draftproof.courses import (  # noqa: PLC0415 (few commands need it)
        Capture,
        CaptureRule,
        Conversion,
        MapFile,
        MapRule,
        Start,
        TargetName,
        Trainer,
        TrainerLayout,
        TrainerRow,
    )  # fmt: skip

    layouts = [
        TrainerLayout(**{**row, "converts": tuple(Conversion(**c) for c in row.get("converts", ()))})
        for row in data["layouts"]
    ]  # fmt: skip
    rule = data["map"]
    captures = [Capture(**{**c, "rules": tuple(CaptureRule(**r) for r in c["rules"])}) for c in data["captures"]]
    return Trainer(
        id,
        title=data["title"],
        version=data["version"],
        source=data["source"],
        start=Start(**data["start"]),
        layouts=tuple(layouts),
        map=MapRule(**{**rule, "files": tuple(MapFile(**f) for f in rule.get("files", ()))}),
        captures=tuple(captures),
        names=tuple(TargetName(**row) for row in data.get("names", ())),
        rows=tuple(TrainerRow(**row, line=out.line(("rows", n))) for n, row in enumerate(data.get("rows", ()))),
    )
