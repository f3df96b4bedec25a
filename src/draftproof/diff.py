"""Review of a new version: two checkpoints, or two views of a pair, compared in the field's terms.

``compare`` reads top to bottom: what they are, sizes and config, tensors, values of the maps, files, verdicts. What was
not read on a side is said as such and is never counted as unchanged. Only maps and small files are read here.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from draftproof.answers import Difference, Review
from draftproof.api import Model, open_side, side
from draftproof.checkpoint import WHOLE, Checkpoint, Config, Table, listed
from draftproof.conform import View, conform, dtype_of, rope_of, rope_unknown
from draftproof.contracts import Contract, Fact, Pair
from draftproof.dims import Absent, Known, Seen, Unknown
from draftproof.findings import (
    LEVELS,
    LONGEST,
    VERDICTS,
    Finding,
    Report,
    Section,
    finding,
    unknown,
    verdict_of,
    visible,
)
from draftproof.hub import Source, read_recording, read_tensor
from draftproof.library import Library
from draftproof.pair import Couple, declared_facts, fits, same_model
from draftproof.recognise import recognise

SIDES = ("old", "new")
VALUES_LIMIT = 64 << 20  # bytes of a map that are read
FILE_LIMIT = 16 << 20  # bytes of another file that are compared
MOST = 200  # lines of one kind
_ROLES = {  # what a dim is called by the part it plays, where the contract's summary has no word for it
    "hidden": "hidden {}", "target_hidden": "target's hidden {}", "draft_vocab": "draft vocabulary {}",
    "target_vocab": "target's vocabulary {}", "vocab": "vocabulary {}", "layers": "layers {}",
    "target_layers": "target's layers {}", "context": "context {}", "target_context": "target's context {}",
    "tied": "head tied to the embedding {}", "use_aux": "aux hidden states {}",
}  # fmt: skip
_NOT_JUDGED = ("values", "files")  # topics of which no rung here judges anything


# --- the answer ---------------------------------------------------------------------------------------------------


def diff(
    old: Model | Source,
    new: Model | Source,
    library: Library,
    *,
    family: str = "",
    targets: Sequence[str] = (),
    repo: str = "",
) -> Report:
    """Compare two versions of a drafter, or of a target: folders, ids, or files of recordings; raises nothing.

    What is known of repo counts for a side that does not say what it is, such as a folder.
    """
    subject = " → ".join(visible(_name(m)) for m in (old, new))
    found: list[Finding] = []
    views: list[View] = []
    for label, model in zip(SIDES, (old, new), strict=True):
        opened = _open(model, library)
        if isinstance(opened, Finding):
            found.append(replace(opened, subject=f"{label} {opened.subject}"))
        else:
            opened.source.repo = opened.source.repo or repo
            views.append(_view(opened, library, family))
    if len(views) < 2:
        lead = f"cannot be compared: {found[0].subject}: {found[0].message} ({found[0].observed})"
        return _answer(subject, [Section.of("compare", found)], _sides(views, found), Review("unknown", lead), views)
    kinds = [v.contract.kind if v.contract else "" for v in views]
    if set(kinds) == {"family", "target"}:
        seen = " and ".join(f"{label}: a {'drafter' if k == 'family' else k} ({v.contract.id if v.contract else ''})"
                            for label, k, v in zip(SIDES, kinds, views, strict=True))  # fmt: skip
        odd = finding("PAIR455", subject, expected="two versions of one model", observed=seen)
        lead = f"cannot be compared: {odd.message}"
        return _answer(subject, [Section.of("compare", [odd])], _sides(views, []), Review("unknown", lead), views)
    partners = list(_partners(views, library, targets))
    differences, new_failures = compare(views[0], views[1], partners, _own_targets(views, library))
    for label, view in zip(SIDES, views, strict=True):
        found += [replace(f, subject=f"{label} {f.subject}") for f in view.findings if view.contract is None]
    ids = [v.contract.id for v in views if v.contract]
    if len(set(ids)) == 2:
        found.append(finding("PAIR456", subject, expected=f"{ids[0]} (old)", observed=f"{ids[1]} (new)"))
    sections = [Section.of("contract", library.broken()), Section.of("compare", found), *new_failures]
    words = [str(m) for m in (old, new)]
    words += [w for t in targets for w in ("--target", t)] + (["--family", family] if family else [])
    words += ["--as", repo] if repo else []
    read = (*views, *(p.view for p in partners if p.view))
    made = _answer(subject, sections, _sides(views, []), _review(differences), read)
    typed = all(isinstance(m, (str, Path)) for m in (old, new))
    return replace(made, rerun=shlex.join(["draftproof", "diff", *words]) if typed else "")


def _open(model: Model | Source, library: Library) -> Checkpoint | Finding:
    """Open one version: what names a model, or the file of a recording, wherever it lies."""
    path = Path(model) if isinstance(model, (str, Path)) and str(model).endswith(".json") else None
    if path is not None and os.path.isfile(path):
        source = read_recording(path)
        return source if isinstance(source, Finding) else Checkpoint(source, "drafter")
    return open_side(model, "drafter", library)


def _answer(subject: str, sections: Iterable[Section], sides: Any, review: Review, read: Iterable[View]) -> Report:
    sources = {id(v.checkpoint.source): v.checkpoint.source for v in read}
    return Report(
        subject,
        tuple(s for s in sections if s.findings),
        sides,
        review=review,
        bytes_read=sum(s.bytes_read for s in sources.values()),
    )


def _name(model: Any) -> str:
    if isinstance(model, Source):
        return model.name + (f"@{model.revision[:7]}" if model.revision else "")
    return str(model.get("name", "in memory") if isinstance(model, Mapping) else model)


def _sides(views: Sequence[View], found: Sequence[Finding]) -> tuple[Any, ...]:
    labels = [label for label in SIDES if not any(f.subject.startswith(f"{label} ") for f in found)]
    return tuple(replace(side(view), role=label) for label, view in zip(labels, views, strict=False))


def _view(opened: Checkpoint, library: Library, family: str) -> View:
    """Return a checkpoint as the contract of a family sees it, else as that of a target, else as no contract does."""
    contract, found = recognise(library, opened, "family", family)
    if contract is None and not family:
        other = Checkpoint(opened.source, "target")
        target, _ = recognise(library, other, "target")
        if target is not None:
            return conform(target, other)
    if contract is not None:
        return conform(contract, opened)
    view = View(opened, config=opened.config, table=opened.table())
    view.findings = [*opened.findings, *found]
    return view


def _review(differences: Sequence[Difference]) -> Review:
    count = {kind: sum(d.kind == kind for d in differences) for kind in ("changed", "worse", "unknown")}
    open_ = [d for d in differences if d.kind == "unknown" and d.topic not in _NOT_JUDGED]
    changes = [d for d in differences if d.kind in ("changed", "worse")]
    own = sum(d.topic != "verdicts" for d in changes)
    said = (
        f"{own} change{'s' if own != 1 else ''}" if own else "no change but of verdicts" if changes else "no difference"
    )
    lacking = f"; {count['unknown']} not compared" if count["unknown"] else ""
    if count["worse"]:
        return Review("worse", f"got worse: a check fails that did not; {said}{lacking}", tuple(differences))
    if open_:
        seen = said if changes else "no difference in what was compared"
        return Review("unknown", f"could not be judged whole: {seen}{lacking}", tuple(differences))
    if changes:
        return Review("differs", f"{said}, and no check fails that did not{lacking}", tuple(differences))
    return Review("same", f"no difference{lacking}", tuple(differences))


# --- with whom ----------------------------------------------------------------------------------------------------


@dataclass
class Partner:
    """Hold one model with which both versions are paired: its view, or why there is none, and what pairs declare."""

    name: str
    library: Library
    view: View | None
    problem: Finding | None = None
    facts: Sequence[tuple[str, Mapping[str, Fact]]] = ()  # repo of a drafter -> facts that a pair declares of it


def _partners(views: Sequence[View], library: Library, targets: Sequence[str]) -> Iterator[Partner]:
    """Yield the known targets of two drafters: those given, those declared, those of pairs that name either.

    Of two targets, the drafters of pairs that name either are yielded.
    """
    kind = next((v.contract.kind for v in views if v.contract), "")
    role = "target" if kind == "family" else "drafter"
    asked: dict[str, tuple[str, str | None, Path | None, str]] = {}  # name -> spec, revision, base, repo
    facts: dict[str, list[tuple[str, Mapping[str, Fact]]]] = {}
    for spec in targets:
        asked.setdefault(spec.lower(), (spec, None, None, ""))
    repos = list(dict.fromkeys(r for v in views if (r := v.checkpoint.source.repo)))
    for id in sorted({i for repo in repos for i in library.mentioning("pair", [repo])}):
        pair, _ = library.get("pair", id)
        if not isinstance(pair, Pair):
            continue
        ends = {"drafter": (pair.drafter, pair.drafter_revision, pair.drafter_repo)}
        ends["target"] = (pair.target, pair.target_revision, pair.target_repo)
        own = ends.pop("drafter" if role == "target" else "target")
        ((spec, revision, repo),) = ends.values()
        if any(same_model(library, own[2] or own[0], r) for r in repos):
            folder = library.files("pair")[id].parent
            asked.setdefault((repo or spec).lower(), (spec, revision, folder, repo))
            facts.setdefault((repo or spec).lower(), []).append((pair.drafter_repo or pair.drafter, pair.facts))
    for view in views if role == "target" else ():
        stated = view.stated("verifier")
        fact = declared_facts(library, view.checkpoint.source.repo).get("trained_on")
        for name in (stated.value if isinstance(stated, Known) else "", fact.value if fact else ""):
            if name:
                asked.setdefault(str(name).lower(), (str(name), None, None, ""))
    for key, (spec, revision, base, repo) in asked.items():
        opened = open_side(spec, role, library, revision, base)
        if isinstance(opened, Finding):
            yield Partner(repo or spec, library, None, opened)
            continue
        opened.source.repo = repo or opened.source.repo
        contract, found = recognise(library, opened, "family" if role == "drafter" else "target")
        if contract is None:
            said = [*opened.findings, *found]
            problem = said[0] if said else unknown("TEN410", visible(repo or spec))
            yield Partner(repo or spec, library, None, problem)
        else:
            yield Partner(repo or spec, library, conform(contract, opened), None, facts.get(key, ()))


def _own_targets(views: Sequence[View], library: Library) -> list[Partner]:
    """Return the target of each version, where both are of a family that stands in its target's checkpoint."""
    if not all(view.contract and view.contract.in_target for view in views):
        return []
    out = []
    for view in views:
        source = view.checkpoint.source
        inside = Checkpoint(source, "target")
        contract, found = recognise(library, inside, "target")
        problem = next((f for f in (*inside.findings, *found) if contract is None), None)
        out.append(Partner(source.name, library, conform(contract, inside) if contract else None, problem))
    return out


# --- what differs -------------------------------------------------------------------------------------------------


def compare(
    old: View, new: View, partners: Sequence[Partner] = (), own: Sequence[Partner] = ()
) -> tuple[list[Difference], list[Section]]:
    """Return every difference of two views, in order, and the findings that fail in the new one alone.

    Both are judged with each partner; with own, each with the target in whose checkpoint it stands.
    """
    out = [*_what(old, new), *_config(old, new), *_tensors(old, new), *_values(old, new), *_files(old, new)]
    asked = [(f"fits {visible(p.name)}", p, p) for p in partners]
    asked += [("fits its own target", *own)] if len(own) == len(SIDES) else []  # type: ignore[list-item]
    verdicts, failures = _verdicts(old, new, asked)
    return [*out, *verdicts], failures


def _line(
    topic: str, subject: str, sides: Sequence[object] = ("", ""), text: str = "", kind: str = "changed"
) -> Difference:
    old, new = map(visible, sides)
    return Difference(topic, kind, visible(text or f"{subject} {old} → {new}", LONGEST), visible(subject), old, new)


def _what(old: View, new: View) -> Iterator[Difference]:
    """Say whether contract and commit changed."""
    ids = [v.contract.id if v.contract else "not known" for v in (old, new)]
    if None in (old.contract, new.contract):
        yield _line("family", "family", ids, kind="unknown")
    elif ids[0] != ids[1]:
        yield _line("family", "family", ids)


# --- sizes and config ---------------------------------------------------------------------------------------------


def phrases(contract: Contract) -> dict[str, str]:
    """Return dim -> how it is told, {} standing for its value: by the contract's summary, else by the part it plays."""
    out: dict[str, str] = {}
    for part in contract.summary:
        names = re.findall(r"\{([^{}]*)\}", part)
        if len(names) == 1 and names[0] in contract.dims:
            out[names[0]] = part.replace(f"{{{names[0]}}}", "{}")
    fusion = contract.roles.get("fusion", "").removesuffix(".weight")
    for role, dim in contract.sizes.items():
        words = _ROLES.get(role, "")
        if role == "aux":
            words = f"{fusion} reads {{}} hidden states" if fusion else "aux hidden states {}"
        if words:
            out.setdefault(dim, words)
    return {name: out.get(name, f"{name.replace('_', ' ')} {{}}") for name in contract.dims}


def _tell(words: str, old: object, new: object) -> str:
    return words.replace("{}", f"{_word(old)} → {_word(new)}", 1)


def _word(value: object) -> object:
    return ("no", "yes")[value] if isinstance(value, bool) else value


class _Told:
    """Gather what was told of two configs: the keys that need no line of their own, and what is not known of a side."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.lacking: dict[tuple[str, ...], list[str]] = {}  # sides -> what is not known

    def cover(self, keys: Sequence[Iterable[str]]) -> None:
        self.keys.update(key for row in keys for key in row)

    def covers(self, path: str) -> bool:
        return any(path == key or path.startswith(f"{key}.") for key in self.keys)

    def unknown(self, seen: Sequence[Seen], what: str) -> bool:
        """Note what is not known, and tell whether it is not known on a side."""
        sides = tuple(label for label, one in zip(SIDES, seen, strict=True) if isinstance(one, Unknown))
        if sides:
            self.lacking.setdefault(sides, []).append(what)
        return bool(sides)


def _config(old: View, new: View) -> Iterator[Difference]:
    """Compare sizes, what else the contracts give a meaning to, and then every other config key, plainly."""
    broken = [f"{label}: {v.checkpoint.config.broken}" for label, v in zip(SIDES, (old, new), strict=True)
              if v.checkpoint.config.broken]  # fmt: skip
    if broken:
        yield _line("config", "config", ("", ""), f"config cannot be compared: {'; '.join(broken)}", "unknown")
        return
    for label, view in zip(SIDES, (old, new), strict=True):
        if view.checkpoint.config.partial:
            count = sum(1 for _ in _walk("", view.checkpoint.config.data, {}))
            keys = f"only {count} config key{'s' * (count != 1)}" if count else "no config key"
            text = f"of {label} {keys} {'are' if count > 1 else 'is'} published: of all others nothing is known"
            yield _line("config", "config", ("", ""), text, "unknown")
    told = _Told()
    if old.contract is not None and new.contract is not None:
        yield from _sizes(old, new, told)
        yield from _facets(old, new, told)
    yield from _other_keys(old, new, told)
    for sides, names in told.lacking.items():
        text = f"cannot be compared: {listed(dict.fromkeys(names), 40)}: not known of {' and '.join(sides)}"
        yield _line("config", "config", ("", ""), text, "unknown")


def _sizes(old: View, new: View, told: _Told) -> Iterator[Difference]:
    assert old.contract is not None
    assert new.contract is not None
    words = phrases(old.contract) | phrases(new.contract)
    for name in dict.fromkeys((*new.contract.dims, *old.contract.dims)):
        seen: list[Seen] = []
        keys: list[list[str]] = []
        alias = True
        for view in (old, new):
            assert view.contract is not None
            dim = view.contract.dims.get(name)
            seen.append(view.dims(name) if dim else Absent(f"no dim of {view.contract.id}"))
            sources = dim.sources.get(view.checkpoint.role, ()) if dim else ()
            keys.append([*(key for s in sources for key in sorted(s.names)), *(dim.texts if dim else ())])
            stands_for = dim is not None and dim.default is not None and bool(dim.default.name)
            alias &= stands_for and isinstance(seen[-1], Known) and seen[-1].witness.startswith("default:")
        if all(isinstance(one, Unknown) and one.told for one in seen) and not any(keys):
            continue  # only the other side of a pair states it
        if told.unknown(seen, words[name].replace(" {}", "")):
            told.cover(keys)
            continue
        values = [one.value if isinstance(one, Known) else None for one in seen]
        if _same(*values):
            continue
        told.cover(keys)
        if not alias:
            shown = [_word(v) if v is not None else "not stated" for v in values]
            yield _line("config", name, shown, _tell(words[name], *shown))


_Facet = tuple[str, Callable[[View], Seen], Callable[[View], Sequence[str]]]  # its name, what a side says, where


def _facets(old: View, new: View, told: _Told) -> Iterator[Difference]:
    """Compare what the contracts give a meaning to, and is no size."""
    special = [k for v in (old, new) for k in v.keys("special")]
    facets: list[_Facet] = [
        ("architecture", _architecture, lambda v: ["architectures"]),
        ("aux layers", _aux, lambda v: v.contract.aux_keys if v.contract else ()),
        *((key, lambda v, key=key: v.lookup(key), lambda v, key=key: [key]) for key in dict.fromkeys(special)),
        ("norm epsilon", lambda v: v.stated("eps"), lambda v: v.keys("eps")),
        ("dtype", lambda v: dtype_of(v)[0], lambda v: v.keys("dtype")),
        ("quantisation", _quantisation, lambda v: v.keys("quantisation")),
        ("declared target", lambda v: v.stated("verifier"), lambda v: v.keys("verifier")),
    ]
    for name, ask, where in facets:
        seen = [ask(v) for v in (old, new)]
        keys = [where(v) for v in (old, new)]
        if told.unknown(seen, name):
            told.cover(keys)
            continue
        values = [one.value if isinstance(one, Known) else None for one in seen]
        if not _same(*values):
            told.cover(keys)
            yield _line("config", name, ["none" if v is None else _shown(v) for v in values])
    yield from _ropes(old, new, told)


def _architecture(view: View) -> Seen:
    seen = view.lookup("architectures")
    if isinstance(seen, Known) and isinstance(seen.value, list):
        return Known(", ".join(map(str, seen.value)), seen.witness)
    return seen


def _aux(view: View) -> Seen:
    found: Seen = Absent("no aux layers are named")
    for key in view.contract.aux_keys if view.contract else ():
        found = view.lookup(key)
        if not isinstance(found, Absent):
            break
    return found


def _quantisation(view: View) -> Seen:
    seen = view.stated("quantisation")
    return Known(seen.value.get("quant_method") or "unnamed", seen.witness) if isinstance(seen, Known) else seen


def _ropes(old: View, new: View, told: _Told) -> Iterator[Difference]:
    keys = [
        [key for part in (v.contract.keys.get("rope", {}) if v.contract else {}).values() for key in part]
        for v in (old, new)
    ]
    unread = [rope_unknown(v, "theta", "tables", "partial", "interleaved") or Absent("") for v in (old, new)]
    if told.unknown(unread, "rope"):
        told.cover(keys)
        return
    ropes = [rope_of(v)[0] for v in (old, new)]
    parts = sorted(ropes[0].keys() | ropes[1].keys(), key=lambda k: (k != "theta", k != "type", k))
    changed = []
    for part in parts:
        values = [rope[part].value if part in rope else None for rope in ropes]
        if not _same(*values):
            changed.append(f"{part} " + " → ".join("none" if v is None else str(_word(_shown(v))) for v in values))
    if changed:
        told.cover(keys)
        texts = [", ".join(f"{k} {_shown(rope[k].value)}" for k in parts if k in rope) or "none" for rope in ropes]
        yield _line("config", "rope", texts, f"rope {', '.join(changed)}")


_MISSING: Any = object()


def _other_keys(old: View, new: View, told: _Told) -> Iterator[Difference]:
    """List every config key that differs and was not told yet; a key that was not published is not known."""
    (data, tables), (others, other_tables) = _lifted(old.config), _lifted(new.config)
    if tables != other_tables:
        names = [listed(side) or "the top level" for side in (tables, other_tables)]
        yield _line("config", "config", names, f"the model's own keys stand in {names[0]} → {names[1]}")
    lines = 0
    for path, *sides in _walk("", data, others):
        if told.covers(path):
            continue
        hidden = [
            _hidden(view.config, path) if value is _MISSING else _hidden(view.config, path, published=True)
            for view, value in zip((old, new), sides, strict=True)
        ]
        if _MISSING in sides and any(_spelt(v.config, path) for v in (old, new)):
            hidden = [value is _MISSING for value in sides]  # under another name it may be there
        if told.unknown([Unknown("not published") if h else Absent("") for h in hidden], path):
            continue
        lines += 1
        if lines <= MOST:
            shown = ["not there" if v is _MISSING else _json(v) for v in sides]
            yield _line("config", path, shown, f"{path}: {shown[0]} → {shown[1]}")
    if lines > MOST:
        yield _line("config", "config", ("", ""), f"and {lines - MOST} more config keys")


def _lifted(config: Config) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a config whose nested tables stand at its top level, as its contract reads it; and those tables.

    What a table states for itself, or again, keeps a name of its own.
    """
    out, tables = dict(config.data), []
    for name in reversed(config.nested):
        if isinstance(table := config.data.get(name), Mapping):
            del out[name]
            again = {f"{k} (outside {name})": out[k] for k in table if k in out and k not in WHOLE}
            out |= {f"{name}.{k}" if k in WHOLE else k: v for k, v in table.items()} | again
            tables.append(name)
    return out, tuple(reversed(tables))


def _hidden(config: Config, path: str, *, published: bool = False) -> bool:
    """Tell whether a key may be there, or be another, though it was not published."""
    paths = [path, *(f"{table}.{path}" for table in config.nested)]
    return (config.partial and not published) or any(
        p == k or p.startswith(f"{k}.") for k in config.unknown for p in paths
    )


def _spelt(config: Config, path: str) -> bool:
    """Tell whether a library renamed a key when it printed the config."""
    paths = [path, *(f"{table}.{path}" for table in config.nested)]
    return any(p == k or k.startswith(f"{p}.") or p.startswith(f"{k}.") for k in config.respelled for p in paths)


def _walk(path: str, a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield path, old and new value of each leaf that differs; a table that one side lacks is walked, too."""
    tables = [isinstance(v, Mapping) for v in (a, b)]
    if all(tables) or (any(tables) and _MISSING in (a, b) and {} not in (a, b)):
        a, b = ({} if v is _MISSING else v for v in (a, b))
        for key in dict.fromkeys((*a, *b)):
            below = f"{path}.{key}" if path else str(key)
            yield from _walk(below, a.get(key, _MISSING), b.get(key, _MISSING))
    elif (a is _MISSING) != (b is _MISSING) or not _same(a, b):
        yield path, a, b


def _same(a: Any, b: Any) -> bool:
    """Tell whether two JSON values are the same; 1 is 1.0, and true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a == b or (a != a and b != b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    return bool(type(a) is type(b) and a == b)


def _json(value: Any) -> str:
    return visible(json.dumps(value, ensure_ascii=False, default=str), 80)


def _shown(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


# --- tensors ------------------------------------------------------------------------------------------------------


def _tensors(old: View, new: View) -> Iterator[Difference]:
    """Compare the tensor tables under canonical names: renamed by dialect only, removed, added, re-shaped, re-typed."""
    unread = [f"{label}: {v.table.basis}" for label, v in zip(SIDES, (old, new), strict=True) if not v.table.read]
    if unread:
        text = f"tensors cannot be compared: {'; '.join(unread)}"
        yield _line("tensors", "tensors", [v.table.basis or "read" for v in (old, new)], text, "unknown")
        return
    known = old.contract is not None and new.contract is not None
    rows = [_canonical(v) if known else {disk: disk for disk in v.table.tensors} for v in (old, new)]
    common = [name for name in rows[0] if name in rows[1]]
    yield from _renamed(old, new, [(rows[0][n], rows[1][n]) for n in common])
    for n, word in ((0, "removed"), (1, "added")):
        yield from _gone(word, rows[n], rows[1 - n], (old, new)[n], (old, new)[1 - n])
    shapes, types = [], dict[tuple[str, str], list[str]]()
    for name in common:
        disk, (a, b) = rows[1][name], (v.table.tensors[r[name]] for v, r in zip((old, new), rows, strict=True))
        if a.shape != b.shape:
            shapes.append((disk, list(a.shape), list(b.shape)))
        if a.dtype != b.dtype:
            types.setdefault((a.dtype, b.dtype), []).append(disk)
    for disk, first, second in shapes[:MOST]:
        yield _line("tensors", disk, (first, second))
    if len(shapes) > MOST:
        yield _line("tensors", "tensors", ("", ""), f"and {len(shapes) - MOST} more of another shape")
    for (first_type, second_type), names in types.items():
        count = "" if len(names) == 1 else f"{len(names)} tensors: "
        text = f"{count}{listed(names)} {first_type} → {second_type}"
        yield _line("tensors", listed(names), (first_type, second_type), text)


def _canonical(view: View) -> dict[str, str]:
    """Return canonical name -> name on disk of every tensor; one that no rule speaks of keeps its own."""
    out = dict(view.names)
    for disk in view.table.tensors.keys() - view.names.values():
        out[f"{disk} as it stands" if disk in out else disk] = disk
    order = {disk: n for n, disk in enumerate(view.table.tensors)}
    return dict(sorted(out.items(), key=lambda row: order[row[1]]))


def _renamed(old: View, new: View, disks: Sequence[tuple[str, str]]) -> Iterator[Difference]:
    other = [(a, b) for a, b in disks if a != b]
    names = [v.dialect.name if v.dialect else "no" for v in (old, new)]
    if other and names[0] != names[1]:
        text = f"dialect {names[0]} → {names[1]}: {len(other)} of {len(disks)} common tensors renamed, as "
        yield _line("tensors", "dialect", names, text + " → ".join(map(visible, other[0])))
    else:
        for a, b in other[:MOST]:
            yield _line("tensors", b, (a, b), f"renamed {visible(a)} → {visible(b)}")


def _gone(
    word: str, rows: Mapping[str, str], others: Mapping[str, str], view: View, other: View
) -> Iterator[Difference]:
    gone = [name for name in rows if name not in others]
    encode = other.dialect.encode if other.dialect else str
    open_ = [] if _whole(other.table, other) else [name for name in gone if not other.table.decides([encode(name)])]
    if open_:
        label = "new" if word == "removed" else "old"
        text = f"tensors that {label} does not list, and its list is not whole: {listed(rows[n] for n in open_)}"
        yield _line("tensors", "tensors", ("", ""), text, "unknown")
        gone = [name for name in gone if name not in open_]
    for name in gone[:MOST]:
        tensor = view.table.tensors[rows[name]]
        shown = f"{tensor.dtype} {list(tensor.shape)}"
        sides = (shown, "") if word == "removed" else ("", shown)
        yield _line("tensors", rows[name], sides, f"{word} {rows[name]} {shown}")
    if len(gone) > MOST:
        yield _line("tensors", "tensors", ("", ""), f"and {len(gone) - MOST} more {word}")


def _whole(table: Table, view: View) -> bool:
    """Tell whether a table shows what is missing: it is complete, or every wanted name was looked for."""
    return table.complete or (view.contract is not None and view.contract.open and bool(view.checkpoint.source.folder))


# --- values -------------------------------------------------------------------------------------------------------


def _values(old: View, new: View) -> Iterator[Difference]:
    """Compare the values of the draft vocabulary's map and mask, where both sides have them and their bytes."""
    yield _line("values", "weights", ("", ""), "values of the weights are not compared", "same")
    parts: tuple[tuple[str, Callable[..., Iterator[Difference]]], ...] = (("map", _maps), ("mask", _masks))
    if not (old.table.read and new.table.read):
        return
    for part, ask in parts:
        if old.role(part) is None or new.role(part) is None:
            continue
        assert new.contract is not None
        name = new.contract.roles[part]
        read = [_ints(view, part) for view in (old, new)]
        unread = [f"{label}: {one}" for label, one in zip(SIDES, read, strict=True) if isinstance(one, str)]
        if unread:
            text = f"{name}: values cannot be compared: {'; '.join(unread)}"
            yield _line("values", name, ("", ""), text, "unknown")
        else:
            yield from ask(name, *read)


def _maps(name: str, old: Sequence[int], new: Sequence[int]) -> Iterator[Difference]:
    ids = [[i + offset for i, offset in enumerate(side)] for side in (old, new)]
    shared = len(set(ids[0]) & set(ids[1]))
    if len(old) != len(new):
        text = f"{name}: {len(old)} → {len(new)} targets, {shared} of them in both"
        yield _line("values", name, (len(old), len(new)), text)
    elif changed := sum(a != b for a, b in zip(*ids, strict=True)):
        yield _line("values", name, ("", ""), f"{name}: {changed} of {len(new)} targets changed, {shared} are in both")


def _masks(name: str, old: Sequence[int], new: Sequence[int]) -> Iterator[Difference]:
    counts = [sum(map(bool, side)) for side in (old, new)]
    said = f"{counts[0]} → {counts[1]}" if counts[0] != counts[1] else f"{counts[0]}"
    if len(old) != len(new):
        yield _line("values", name, counts, f"{name}: {said} tokens in, of {len(old)} → {len(new)}")
    elif changed := sum(bool(a) != bool(b) for a, b in zip(old, new, strict=True)):
        yield _line("values", name, counts, f"{name}: {changed} of {len(new)} tokens changed, {said} are in")


_CODES = {"I64": "q", "I32": "i", "BOOL": "B", "U8": "B"}


def _ints(view: View, part: str) -> Sequence[int] | str:
    """Return the integers of the tensor that plays a part, or why they are not at hand."""
    tensor, source = view.role(part), view.checkpoint.source
    assert tensor is not None
    assert view.contract is not None
    disk = view.names[view.contract.roles[part]]
    file = view.table.files.get(disk, "")
    if not source.has_files:
        return f"{'a recording' if source.kind == 'recording' else source.kind} holds no values"
    if not file.endswith(".safetensors"):
        return f"{visible(file)} is no safetensors file"
    if tensor.dtype not in _CODES:
        return f"stored as {tensor.dtype}"
    size = tensor.end - tensor.start
    if size > VALUES_LIMIT:
        return f"{size} bytes, more than {VALUES_LIMIT}"
    try:
        raw = read_tensor(source, file, tensor).data
    except OSError as error:
        return f"{visible(file)}: {error.strerror or error}"
    values = array(_CODES[tensor.dtype])
    if len(raw) != size or size % values.itemsize:
        return f"{visible(file)} ends early"
    values.frombytes(raw)
    if sys.byteorder == "big":
        values.byteswap()
    return values


# --- files --------------------------------------------------------------------------------------------------------


def _files(old: View, new: View) -> Iterator[Difference]:
    """Compare how the weights are cut into files, and which other files stand beside them."""
    sources = [v.checkpoint.source for v in (old, new)]
    unread = [label for label, s in zip(SIDES, sources, strict=True) if s.folder is None]
    if unread:
        text = f"files cannot be compared: of {' and '.join(unread)} none are at hand"
        yield _line("files", "files", ("", ""), text, "unknown")
        return
    cuts, others, parts = [], [], []
    for view, source in zip((old, new), sources, strict=True):
        weights = sorted(set(view.table.files.values()))
        parts.append(weights)
        index = sorted(n for n in source.files if n.endswith(".index.json"))
        many = f"{len(weights)} shards" if len(weights) > 1 else listed(weights) or "none"
        cuts.append(f"{many}{f' and {listed(index)}' if index else ''}")
        others.append({n: size for n, size in source.files.items() if n not in (*weights, *index, "config.json")})
    if cuts[0] != cuts[1]:
        yield _line("files", "weights", cuts)
    elif parts[0] != parts[1]:
        only = [listed((n for n in parts[k] if n not in parts[1 - k]), 3) for k in (0, 1)]
        yield _line("files", "weights", only, f"weights in files of other names: {only[0]} → {only[1]}")
    for n, word in ((0, "removed"), (1, "added")):
        if gone := [name for name in others[n] if name not in others[1 - n]]:
            yield _line("files", listed(gone), ("", ""), f"files {word}: {listed(gone, 40)}")
    for name in sorted(others[0].keys() & others[1].keys()):
        sizes = [side[name] for side in others]
        if sizes[0] != sizes[1]:
            yield _line("files", name, sizes, f"{visible(name)} {sizes[0]} → {sizes[1]} bytes")
            continue
        raw = [source.take(name, FILE_LIMIT) for source in sources]
        if any(isinstance(one, Finding) for one in raw):
            yield _line(
                "files", name, ("", ""), f"{visible(name)} cannot be compared: too large, or not readable", "unknown"
            )
        elif raw[0] != raw[1]:
            yield _line("files", name, ("", ""), f"{visible(name)} changed, {sizes[0]} bytes as before")


# --- verdicts -----------------------------------------------------------------------------------------------------


def _verdicts(
    old: View, new: View, asked: Iterable[tuple[str, Partner, Partner]]
) -> tuple[list[Difference], list[Section]]:
    """Say rung by rung how the verdicts stand: of each side alone, then each with its partner."""
    out, failed = [], []
    line, worse = _verdict("conforms", old, new, old.findings, new.findings)
    out.append(line)
    failed += [Section.of("conforms", worse)] if worse else []
    for rung, *partners in asked:
        if lacking := next((p for p in partners if p.view is None), None):
            seen = lacking.problem
            why = f"{seen.message} ({seen.observed})" if seen else "not at hand"
            out.append(_line("verdicts", rung, ("", ""), f"{rung}: could not be judged: {why}", "unknown"))
            continue
        if old.contract is None or new.contract is None:
            which = " and ".join(s for s, v in zip(SIDES, (old, new), strict=True) if v.contract is None)
            text = f"{rung}: could not be judged: the family of {which} is not known"
            out.append(_line("verdicts", rung, ("", ""), text, "unknown"))
            continue
        found = [_fits(view, partner) for view, partner in zip((old, new), partners, strict=True)]
        line, worse = _verdict(rung, old, new, *found)
        out.append(line)
        failed += [Section.of(rung, worse)] if worse else []
    return out, failed


def _fits(view: View, partner: Partner) -> list[Finding]:
    assert partner.view is not None
    drafter, target = (view, partner.view) if view.checkpoint.role == "drafter" else (partner.view, view)
    repo = drafter.checkpoint.source.repo
    over: dict[str, Fact] = {}
    for name, facts in partner.facts:
        over |= facts if same_model(partner.library, name, repo) else {}
    return fits(Couple(drafter, target, partner.library, declared_facts(partner.library, repo, over)))


def _verdict(
    rung: str, old: View, new: View, first: Sequence[Finding], second: Sequence[Finding]
) -> tuple[Difference, list[Finding]]:
    """Make the line of one rung; returns also the findings that fail in the new version and did not in the old."""
    sets = [{_key(view, f): f for f in found if f.level not in ("pass", "info")}
            for view, found in ((old, first), (new, second))]  # fmt: skip
    came = [f for key, f in sets[1].items() if key not in sets[0]]
    gone = [f for key, f in sets[0].items() if key not in sets[1]]
    verdicts = [VERDICTS[verdict_of(found)] for found in (first, second)]
    worse = [f for f in came if f.level == "error"]
    parts = [f"{word} {_codes(rows)}" for word, rows in (("new:", came), ("gone:", gone)) if rows]
    if came or gone or verdicts[0] != verdicts[1]:
        doubt = any(f.level == "unknown" for f in came) or (verdicts[0] == "holds" and verdicts[1] != "holds")
        kind = "worse" if worse else "unknown" if doubt else "changed"
        stands = f"{verdicts[0]} → {verdicts[1]}" if verdicts[0] != verdicts[1] else f"{verdicts[1]}, as before"
        text = "; ".join([f"{rung}: {stands}", *parts])
    else:
        kind, held = "same", _codes(sets[1].values())
        text = f"{rung}: {verdicts[1]}, as before" + (f": {held}" if held else "")
    return _line("verdicts", rung, verdicts, text, kind), worse


def _key(view: View, f: Finding) -> tuple[str, str, str]:
    """Return what makes a finding the same in both versions: code, level, and its subject whatever the dialect."""
    name = view.dialect.decode(f.subject) if view.dialect else None
    if name and view.contract is not None and next(view.contract.rules_for(name), None):
        return f.code, f.level, name
    return f.code, f.level, re.sub(r"^\d+ ", "", f.subject.replace(visible(view.checkpoint.source.name), "it"))


def _codes(found: Iterable[Finding]) -> str:
    """Return codes with their subjects, errors first: "PAIR403 context, PAIR408 [unknown] aux layers"."""
    rows = sorted(found, key=lambda f: f.order)
    by: dict[tuple[str, str], list[str]] = {}
    for f in rows:
        by.setdefault((f.level, f.code), []).append(f.subject)
    return ", ".join(
        f"{code}{'' if level == 'error' else f' [{level}]'} {listed(dict.fromkeys(subjects), 3)}"
        for (level, code), subjects in sorted(by.items(), key=lambda row: (LEVELS.index(row[0][0]), row[0][1]))
    )


# --- views of a pair ----------------------------------------------------------------------------------------------


def failing(view: Mapping[str, Any]) -> list[str]:
    """Return what fails in the view of a pair and is not accepted: such a view must not become a snapshot."""
    rows = [f for f in view.get("findings", ()) if f.get("level") == "error" and not f.get("accepted")]
    return [visible(f"{f['code']} {f['subject']}: {_seen(f)}", LONGEST) for f in rows]


def _seen(row: Mapping[str, Any]) -> str:
    return f"expected {row.get('expected', '')}, observed {row.get('observed', '')}"


def view_changes(old: Mapping[str, Any], new: Mapping[str, Any], library: Library) -> list[Difference]:
    """Compare two views of a pair, as snapshots hold them, in the field's terms; no line only where they are equal."""
    views = [json.loads(json.dumps(view)) for view in (old, new)]
    out: list[Difference] = []
    for role in ("drafter", "target"):
        if sides := _both(views, f"{role} side", dict):
            out += _side_changes(role, sides, library)
    verdicts = _both(views, "verdicts", dict) or [{}, {}]
    for rung in dict.fromkeys((*verdicts[0], *verdicts[1])):
        told = [VERDICTS.get(str(v.get(rung)), str(v.get(rung, "not asked"))) for v in verdicts]
        if told[0] != told[1]:
            kind = "worse" if told[1] == VERDICTS["fail"] else "changed"
            out.append(_line("verdicts", rung, told, f"{rung}: {told[0]} → {told[1]}", kind))
    if rows := _both(views, "findings", list):
        out += _finding_changes(*rows)
    for path, *values in _walk("", *views):
        out.append(_line("other", path, [_told(v) for v in values]))
    if not out and old != new:
        out.append(_line("other", "view", ("", ""), "the same findings or tensors, in another order"))
    return out


def _both(views: Sequence[dict[str, Any]], key: str, kind: type) -> list[Any]:
    """Take a part out of both views, where both have it and of that kind; a list or table of tables, if it is one."""
    parts = [view.get(key) for view in views]
    inner = [v for part in parts if isinstance(part, (dict, list)) for v in (part if isinstance(part, list) else ())]
    if not all(isinstance(part, kind) for part in parts) or not all(isinstance(v, dict) for v in inner):
        return []
    return [view.pop(key) for view in views]


def _told(value: Any) -> str:
    """Return a value of a view as text."""
    return "not there" if value is _MISSING else value if isinstance(value, str) else _json(value)


def _side_changes(role: str, sides: Sequence[dict[str, Any]], library: Library) -> Iterator[Difference]:
    """Compare one side of two views: sizes with who states them, tensors, and then contract, names and provenance."""
    words: dict[str, str] = {}
    for id in [one.get("contract") for one in sides]:
        kind = "family" if role == "drafter" else "target"
        contract = library.get(kind, str(id))[0] if str(id) in library.files(kind) else None
        words |= phrases(contract) if contract else {}
    bindings = _both(sides, "bindings", dict) or [{}, {}]
    for name in dict.fromkeys((*bindings[0], *bindings[1])):
        values, witnesses = zip(*(str(b.get(name, "not known")).partition(" (")[::2] for b in bindings), strict=True)
        phrase = words.get(name, f"{name} {{}}")
        if values[0] != values[1]:
            shown = [{"True": "yes", "False": "no"}.get(v, v) for v in values]
            yield _line("config", name, shown, f"{role}: {_tell(phrase, *shown)}")
        elif witnesses[0] != witnesses[1]:
            stated = [w.removesuffix(")") or "nobody" for w in witnesses]
            text = f"{role}: {phrase.replace('{}', values[0])}, now by {stated[1]}; before by {stated[0]}"
            yield _line("config", name, stated, text)
    tables = _both(sides, "tensors", dict) or [{}, {}]
    for name in dict.fromkeys((*tables[0], *tables[1])):
        rows = [table.get(name, _MISSING) for table in tables]
        if _MISSING in rows and all(row is _MISSING or isinstance(row, dict) for row in rows):
            row, word = (rows[1], "added") if rows[0] is _MISSING else (rows[0], "removed")
            yield _line("tensors", name, ("", ""), f"{role}: {word} {name} {row.get('value')}, {row.get('presence')}")
            continue
        for path, *values in _walk("", *({"": row} if not isinstance(row, dict) else row for row in rows)):
            told = [_told(v) for v in values]
            said = " ".join([name, *([path] if path not in ("", "value") else [])])
            yield _line("tensors", name, told, f"{role}: {said} {told[0]} → {told[1]}")
    for path, *values in _walk("", *sides):
        yield _line("family", path, [_told(v) for v in values], f"{role}: {path} {' → '.join(map(_told, values))}")


def _finding_changes(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> Iterator[Difference]:
    """Compare what was found: what came, what went, what of it reads otherwise."""

    def keyed(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, ...], dict[str, Any]]:
        out: dict[tuple[str, ...], dict[str, Any]] = {}
        for row in rows:
            key = tuple(str(row.get(k, "")) for k in ("code", "level", "subject"))
            while key in out:
                key = (*key, "again")
            out[key] = row
        return out

    before, after = keyed(old), keyed(new)
    for key in dict.fromkeys((*before, *after)):
        rows = [before.get(key), after.get(key)]
        name = f"{key[0]} [{key[1]}] {key[2]}"
        if rows[0] is None or rows[1] is None:
            row, word = (rows[1] or {}, "new") if rows[0] is None else (rows[0], "gone")
            held = f"; accepted: {row['accepted']}" if row.get("accepted") else ""
            bad = word == "new" and key[1] == "error" and not held
            text = f"{word}: {name}: {_seen(row)}{held}"
            yield _line("findings", key[0], ("", ""), text, "worse" if bad else "changed")
            continue
        for field in dict.fromkeys((*rows[0], *rows[1])):
            told = [_told(row.get(field, _MISSING)) for row in rows if row is not None]
            if told[0] != told[1]:
                bad = field == "accepted" and key[1] == "error" and told[1] == "not there"
                text = f"{name}: {field} {told[0]} → {told[1]}"
                yield _line("findings", key[0], told, text, "worse" if bad else "changed")
