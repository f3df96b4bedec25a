"""One question, answered whole: open both sides, run the rungs, apply what a pair accepts, return one Report."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftproof.checkpoint import Checkpoint, listed, parse_config
from draftproof.conform import View, conform, expectations, last_layers, layout
from draftproof.contracts import Acceptance, Contract, Dialect, Fact, Pair, Shared
from draftproof.dims import Expr, Unknown, like
from draftproof.findings import Finding, Report, Section, Side, finding, nearest, unknown, visible
from draftproof.hub import (
    COMMIT,
    RECORDING_SCHEMA,
    REPO,
    Source,
    Taken,
    in_memory,
    open_folder,
    open_model,
    read_plain,
    read_recording,
    recorded_at,
    recorded_files,
    recorded_repos,
    recording_name,
    snapshot_name,
    unreadable,
)
from draftproof.language import FOLDERS
from draftproof.library import Library, load
from draftproof.pair import Couple, declared_facts, fits
from draftproof.recognise import readings, recognise
from draftproof.rules import RULES
from draftproof.strict import CONFIG_LIMIT

if TYPE_CHECKING:
    from draftproof.launch import Launch


class Connection:
    """Open repos over the network in one mode; the Hub's client is imported when a repo is first asked for."""

    def __init__(self, mode: str = "auto") -> None:
        self.mode = mode
        self._hub: Any = None

    def _made(self) -> Any:
        if self._hub is None:
            from draftproof.remote import Hub  # noqa: PLC0415 (only where a repo is asked for)

            self._hub = Hub(self.mode)
        return self._hub

    @property
    def offline(self) -> bool:
        """Tell whether no socket may be opened."""
        return bool(self._made().offline)

    def open(self, repo: str, revision: str, role: str, patience: float | None) -> Source | Finding:
        """Return a repo at a revision, or why it could not be opened."""
        opened: Source | Finding = self._made().open(repo, revision, role, patience)
        return opened

    def list_files(self, source: Source) -> Finding | None:
        """Fill in the files of a repo that was opened without its file list; returns why not."""
        lacking: Finding | None = self._made().list_files(source)
        return lacking

    def taken(self) -> Taken:
        """Return what was moved since this was last asked."""
        return Taken() if self._hub is None else self._hub.taken()

    def total(self) -> Taken:
        """Return all that was moved."""
        return Taken() if self._hub is None else self._hub.total()


RUNGS = ("contract", "conforms", "fits", "launch")  # and one "loads ENGINE" for each engine that is asked about
Model = str | Path | Mapping[str, Any]  # a folder, ORG/NAME[@COMMIT], or {"config": …, "state_dict": …}


@dataclass
class Case:
    """Hold everything that was read and found of one question, for the report, for adapt and for show."""

    library: Library
    drafter: View | None = None
    target: View | None = None
    couple: Couple | None = None
    contract: list[Finding] = field(default_factory=list)  # of contract files
    source: list[Finding] = field(default_factory=list)  # of getting bytes and telling the family
    fits: list[Finding] | None = None
    launch: list[Finding] = field(default_factory=list)  # of launch lines
    loads: dict[str, list[Finding]] = field(default_factory=dict)  # of each engine that is asked about
    paired: bool = False  # whether a target was asked for
    bare: View | None = None  # a drafter's folder that holds no checkpoint: an engine may be started with it
    bare_target: View | None = None  # a target's file that cannot be opened
    otherwise: bool = False  # other engines, or another launch, are asked about than the pair names


def recordings(library: Library) -> tuple[Path, ...]:
    """Return the folders of recordings that belong to the library's folders of contracts."""
    return tuple(root / "recordings" for root in library.roots)


def open_side(
    model: Any, role: str, library: Library, revision: str | None = None, base: Path | None = None
) -> Checkpoint | Finding:
    """Open what the user gave for one side: a path, an id, a mapping with config and state_dict, or a Source.

    A path that begins with a dot is below base, if base is given: the folder of the pair contract that names it.
    """
    if isinstance(model, Source):
        return Checkpoint(model, role)
    if isinstance(model, Mapping):
        config, tensors = model.get("config"), model.get("state_dict", model.get("tensors"))
        if not {"config", "state_dict", "tensors"} & set(model):
            config, tensors = None, model
        name = visible(model.get("name", f"{role} in memory"))
        try:
            config = getattr(config, "to_dict", lambda: config)()
        except Exception as error:  # whatever a caller's config object raises
            return finding(
                "SRC117", f"{name}: config", expected="a config", observed=f"to_dict raised {visible(error)}"
            )
        made = in_memory(name, config, tensors)
        if isinstance(made, Finding):
            return made
        made.repo = made.name if REPO.fullmatch(made.name) else ""  # the caller says what it is
        return Checkpoint(made, role)
    if not isinstance(model, (str, Path)) or not str(model):
        expected = 'a folder, ORG/NAME, or {"config": …, "state_dict": …}'
        return finding("SRC117", role, expected=expected, observed=visible(model, 60) or "nothing")
    spec = str(model)
    if base is not None and spec.startswith("."):
        spec = str(base / spec)
    if (opened := _foreign(spec, library, role)) is not None:
        return opened if isinstance(opened, Finding) else Checkpoint(opened, role)
    source = open_model(full_name(spec, library), recordings(library), revision, library.hub, role)
    if isinstance(source, Finding) and source.code in ("SRC112", "SRC117"):
        source = _by_alias(spec, library, revision) or source
    return source if isinstance(source, Finding) else Checkpoint(source, role)


def _foreign(spec: str, library: Library, role: str) -> Source | Finding | None:
    """Open a file of another format that a contract says how to read; None for anything else."""
    formats = library.files("format")
    suffix = Path(spec).suffix.lower()
    if not any(suffix == f".{id}" for id in formats) or not Path(spec).is_file():
        return None
    format, found = library.get("format", suffix[1:])
    from draftproof.ggufs import open_gguf  # noqa: PLC0415 (rare)

    return open_gguf(Path(spec), spec, format, role) if format is not None else found[0]


def full_name(spec: str, library: Library) -> str:
    """Return the ORG/NAME that an alias stands for, before a network is asked for a name that is none."""
    name, _, at = spec.partition("@")
    repos = [model.repo for model in library.called(name)] if library.hub is not None and "/" not in name else []
    return (f"{repos[0]}@{at}" if at else repos[0]) if len(repos) == 1 and not os.path.exists(spec) else spec


def _by_alias(spec: str, library: Library, revision: str | None) -> Source | Finding | None:
    """Open the model that goes by another name, if one does."""
    name, _, at = spec.partition("@")
    repos = [model.repo for model in library.called(name)]
    if len(repos) > 1:
        seen = f"{' and '.join(repos)} both go by it"
        return finding("SRC117", visible(spec), expected="the name of one model", observed=seen)
    if not repos or repos == [name]:
        return None
    return open_model(f"{repos[0]}@{at}" if at else repos[0], recordings(library), revision)


def examine(
    drafter: Any,
    target: Any | None,
    library: Library,
    *,
    family: str = "",
    revisions: tuple[str | None, str | None] = (None, None),
    repos: tuple[str, str] = ("", ""),
    facts: Mapping[str, Fact] | None = None,
    base: Path | None = None,
) -> Case:
    """Run rungs 1 and 2 on a drafter and, if there is one, its target."""
    case = Case(library, paired=target is not None)
    sides: dict[str, Checkpoint] = {}
    given = (("drafter", drafter, revisions[0], repos[0]), ("target", target, revisions[1], repos[1]))
    for role, model, revision, repo in given:
        if model is None and role == "target":
            continue
        opened = open_side(model, role, library, revision, base)
        if isinstance(opened, Finding):
            case.source.append(replace(opened, subject=f"{role} {opened.subject}"))
            bare = _bare(model, base, library)
            if role == "drafter":
                case.bare = bare
            elif bare is not None and bare.checkpoint.source.stated:
                case.bare_target = bare
        else:
            opened.source.repo = repo or opened.source.repo
            sides[role] = opened
    same = len(sides) == 2 and _same(sides["drafter"].source, sides["target"].source)
    inner = recognise(library, sides["drafter"], "family", family, in_target=True)[0] if same else None
    if same and not (inner and inner.in_target):
        name = sides["target"].source.name
        inside = [one for one in library.files("family") if library.detect("family", one).get("in_target")]
        seen = f"one, and no drafter inside it (of {', '.join(inside)})"
        case.source.append(finding("SRC118", visible(name), expected="two models", observed=seen))
        return case
    if "drafter" in sides:
        case.drafter = view_of(case, sides["drafter"], "family", inner.id if inner else family)
    if "target" in sides:
        case.target = _target_of(case, sides["target"])
    if [f.code for f in case.source] == ["PAIR422", "PAIR422"]:
        swapped = [visible(sides[role].source.name) for role in ("target", "drafter")]
        case.source = [
            replace(f, help=f"the two are swapped: --drafter {swapped[0]} --target {swapped[1]}") for f in case.source
        ]
    if case.drafter and case.target and case.drafter.contract and case.target.contract:
        repo = case.drafter.checkpoint.source.repo
        case.couple = Couple(case.drafter, case.target, library, declared_facts(library, repo, facts))
        case.fits = fits(case.couple)
    return case


def _bare(model: Any, base: Path | None, library: Library) -> View | None:
    """Return the view of a folder that holds no checkpoint, or of a file that cannot be opened as one."""
    try:
        path = Path(model if base is None or not str(model).startswith(".") else base / model).expanduser()
        format = library.get("format", path.suffix[1:])[0] if path.suffix[1:] in library.files("format") else None
        if format is not None and path.is_file():
            from draftproof.ggufs import bare_gguf  # noqa: PLC0415 (rare)

            bare = bare_gguf(path, str(model), format)
            return View(Checkpoint(bare, "drafter")) if bare is not None else None
        return View(Checkpoint(open_folder(path, str(model)), "drafter")) if path.is_dir() else None
    except (OSError, TypeError, ValueError, RuntimeError):  # it is no path
        return None


def _same(a: Source, b: Source) -> bool:
    if a.folder is not None and b.folder is not None and a.folder.resolve() == b.folder.resolve():
        return "gguf" not in (a.kind, b.kind) or (a.kind == b.kind and a.files == b.files)  # one file among others
    if a.kind == b.kind == "recording":
        return (a.name, a.revision) == (b.name, b.revision)
    return bool(a.repo) and a.repo.lower() == b.repo.lower() and "memory" not in (a.kind, b.kind)


def _target_of(case: Case, checkpoint: Checkpoint) -> View:
    """Return a target's view; that of a recording is kept, for many pairs share a target."""
    source, kept = checkpoint.source, case.library.kept
    if source.kind != "recording":
        return view_of(case, checkpoint, "target")
    key = ("target", source.repo, source.name, source.revision)
    old = kept.get(key)
    if old is None or any(getattr(old.checkpoint.source, part) != getattr(source, part) for part in _CONTENT):
        old = view_of(case, checkpoint, "target")
        if old.contract is not None:  # else the next case must hear why, too
            kept[key] = old
    return old


_CONTENT = ("config", "tensors", "unknown", "respelled", "provenance", "normalised", "origin")


def view_of(case: Case, checkpoint: Checkpoint, kind: str, id: str = "") -> View:
    """Return a side as the contract of an id sees it, or the one that recognises it; else the case says why not."""
    contract, found = recognise(case.library, checkpoint, kind, id)
    if contract is not None:
        return conform(contract, checkpoint, library=case.library)
    for f in (*checkpoint.findings, *found):
        (case.contract if f.code.startswith("CON") else case.source).append(f)
    return View(checkpoint)


def ask_engines(case: Case, engines: Sequence[str], launches: Sequence[Launch] = ()) -> None:
    """Add rung 3 to a case: what each of the engines, launched so, will do with the drafter."""
    if not (engines or launches):
        return
    from draftproof.engines import judge  # noqa: PLC0415 (only where an engine is asked about)

    flags = {made.engine: made.flags for made in launches if made.engine}
    specs = named_engines(engines, case.library) or [made.spec for made in launches if made.engine]
    case.launch += [f for made in launches for f in at_versions(made, specs, case.library)]
    drafter = case.drafter or case.bare
    if drafter is None:
        return  # what conforms says of it comes first
    target, kept = case.target or case.bare_target, case.library.kept
    same = None if flags else _told_of(drafter, case.couple)
    for engine in specs:
        old = kept.get(("judged", engine, same))
        if same is None or old is None or old[0] is not target:
            old = target, judge((engine,), case.library, drafter, target, case.couple, flags)
            if same is not None:
                kept["judged", engine, same] = old
        case.loads[engine] = list(old[1])


def _told_of(drafter: View, couple: Couple | None) -> tuple[Any, ...] | None:
    """Return all that engines are told of a recorded drafter without tensors: of many nothing more is known than that.

    None of any other, which is asked about by itself.
    """
    source = drafter.checkpoint.source
    if source.kind != "recording" or source.tensors:
        return None
    told = [repr(getattr(source, part)) for part in _CONTENT if part != "origin"]
    facts = couple.facts if couple is not None else {}
    return (*told, drafter.contract and drafter.contract.id, *((name, repr(fact)) for name, fact in facts.items()))


def read_launches(
    lines: Iterable[str], library: Library, engines: Sequence[str] = (), drafter: str = "", target: str = ""
) -> list[Launch]:
    """Read launch lines, and say where one speaks of another model, or of another engine, than the question does."""
    if not (lines := list(lines)):
        return []
    from draftproof.launch import contradictions, parse  # noqa: PLC0415 (only where a line is given)
    from draftproof.versions import resolve  # noqa: PLC0415

    asked = {one.engine for one in resolve(engines, library)[0]}
    sides = {role: (name, [n for m in library.called(name) for n in (m.repo, *m.aliases)] if name else [])
             for role, name in (("drafter", drafter), ("target", target))}  # fmt: skip
    out = []
    for line in lines:
        made = parse(line, library)
        found = contradictions(made, asked, **sides) if made.engine else ()
        out.append(replace(made, findings=(*made.findings, *found)))
    return out


def at_versions(made: Launch, engines: Sequence[str], library: Library) -> list[Finding]:
    """Return what is wrong with a line; which flags there are is known of the version that was read alone."""
    from draftproof.versions import resolve  # noqa: PLC0415

    launches = library.get("launch", made.engine)[0] if made.engine else None
    asked = [one for one in resolve(engines, library)[0] if one.engine == made.engine]
    same = not asked or any(launches is not None and one.version == launches.version for one in asked)
    return [f if same or f.code not in ("CLI657", "CLI658", "CLI659") else replace(f, level="unknown")
            for f in made.findings]  # fmt: skip


def named_engines(engines: Sequence[str], library: Library) -> list[str]:
    """Return the engines that are asked about, each once; all stands for every one that is known."""
    return list(dict.fromkeys(one for s in engines for one in (library.files("profile") if s == "all" else (s,))))


def report(case: Case, subject: str, rerun: str = "", pair: Pair | None = None) -> Report:
    """Make the report of a case; what a pair accepts is marked, and an acceptance that matches nothing is a finding."""
    found: dict[str, list[Finding]] = {rung: [] for rung in RUNGS}
    shared = shared_by(case, pair) if pair is not None else []
    found["contract"] += [*case.contract, *case.library.broken()]
    found["conforms"] += case.source
    for view in (case.drafter, case.target):
        found["conforms"] += _about(view) if view and view.contract else []
    if case.fits is not None:
        found["fits"] += case.fits
    elif case.paired:
        why, help = "the fit was not judged: a side could not be", "mend what conforms says above, then ask again"
        found["fits"].append(unknown("PAIR422", "pair", why, expected="two sides", observed="see above", help=help))
    found["launch"] += case.launch
    found |= {f"loads {engine}": rows for engine, rows in case.loads.items()}
    if pair is not None:
        every = [f for rows in found.values() for f in rows]
        found = {rung: accept(rows, pair, shared) for rung, rows in found.items()}
        if case.fits is not None:  # else what it accepts was not looked for
            found["contract"] += stale(pair, shared, every, case.otherwise)
    views = [v for v in (case.drafter, case.target) if v]
    over = case.library.hub.taken() if case.library.hub is not None else Taken()
    return Report(
        subject=subject,
        sections=tuple(Section.of(rung, rows) for rung, rows in found.items() if rows),
        sides=tuple(side(v) for v in views),
        bytes_read=sum(v.checkpoint.source.bytes_read for v in views) + over.bytes,
        requests=over.requests,
        cached=over.cached,
        rerun=rerun,
    )


def _about(view: View) -> list[Finding]:
    """Return a view's findings with the side named, where the subject does not tell."""
    role = view.checkpoint.role
    return [f if f.subject.startswith(role) else f.but(subject=f"{role} {f.subject}") for f in view.findings]


def side(view: View) -> Side:
    """Describe one side for the report: what it is, and how well it is known."""
    source, contract = view.checkpoint.source, view.contract
    table = view.table if contract else view.checkpoint.seen()
    parameters = table.parameters
    if parameters is None and table.complete and table.tensors:
        parameters = sum(_numel(t.shape) for n, t in table.tensors.items() if t.dtype not in ("I64", "I32", "BOOL"))
    return Side(
        view.checkpoint.role,
        source.name,
        source.revision,
        "config read, weights not" if source.has_files and table.basis else source.provenance,
        source.normalised,
        contract.id if contract else "",
        view.dialect.name if view.dialect else "",
        source.origin,
        table.count if table.count is not None else (len(table.tensors) if table.complete and table.tensors else None),
        parameters,
        view.dims.table(list(contract.dims)) if contract else (),
    )


def _numel(shape: tuple[int, ...]) -> int:
    out = 1
    for n in shape:
        out *= n
    return out


def shared_by(case: Case, pair: Pair) -> list[Shared]:
    """Return what a pair accepts with others, empty where no side has the provenance that it speaks of."""
    sides = {view.checkpoint.source.provenance for view in (case.drafter, case.target) if view}
    named = [case.library.get("acceptance", id)[0] or Shared(id, "", "") for id in pair.accepts]
    return [one if not one.provenance or sides & set(one.provenance) else Shared(one.id, "", "") for one in named]


_ACCEPTED_BY = {"error": "allow", "warning": "allow", "unknown": "expect_unknown"}


def accept(found: Iterable[Finding], pair: Pair, shared: Sequence[Shared] = ()) -> list[Finding]:
    """Mark the findings that a pair accepts, alone or with others: failures by allow, unknowns by expect_unknown."""
    out = []
    of: dict[tuple[str, str], list[Acceptance]] = {}  # of many findings with one code
    for f in found:
        key = _ACCEPTED_BY.get(f.level)
        if key and (key, f.code) not in of:
            rows = (row for one in (pair, *shared) for row in getattr(one, key, ()))
            of[key, f.code] = [row for row in rows if like(f.code, row.code)]
        entry = next((row for row in of[key, f.code] if row.covers(f)), None) if key else None
        out.append(f.but(accepted=entry.because) if entry else f)
    return out


def stale(pair: Pair, shared: Sequence[Shared], found: list[Finding], otherwise: bool = False) -> list[Finding]:
    """Return a finding for each acceptance that no longer matches anything, a shared one as a whole.

    Where other engines are asked about than the pair names, what it accepts of engines was not looked for.
    """
    idle = [
        finding("CON112", f"{pair.id}: accepts {one.id}", expected="a finding that it accepts", observed="none",
                contract=line)
        for one, line in zip(shared, pair.lines, strict=True)
        if not any(row.covers(f) for f in found for row in getattr(one, _ACCEPTED_BY.get(f.level, ""), ()))
    ]  # fmt: skip
    levels: tuple[tuple[str, tuple[Acceptance, ...], tuple[str, ...]], ...] = (
        ("allow", pair.allow, ("error", "warning")),
        ("expect_unknown", pair.expect_unknown, ("unknown",)),
    )
    return idle + [
        finding(
            "CON112",
            f"{pair.id}: {key} {row.code}",
            expected=f"a finding of {row.code} that {'fails' if key == 'allow' else 'is unknown'}",
            observed="none",
            contract=row.line,
        )
        for key, rows, wanted in levels
        for row in rows
        if not any(f.level in wanted and row.covers(f) for f in found) and not (otherwise and _of_engines(row.code))
    ]


def _of_engines(code: str) -> bool:
    """Tell whether a code, or a glob over codes, speaks of engines alone."""
    return all(rule.rung == "loads" for rule in RULES.values() if fnmatchcase(rule.code, code))


# --- the questions ------------------------------------------------------------------------------------------------


def check(
    drafter: Model, target: Model | None = None, *, family: str = "", contracts: Path | str | None = None
) -> Report:  # fmt: skip
    """Check a drafter, and its fit with a target: folders, ids, or {"config": …, "state_dict": …}; raises nothing."""
    return check_models(drafter, target, Library(*([Path(contracts)] if contracts else [])), family)


def check_pair(
    pair: Pair,
    library: Library,
    rerun: str = "",
    base: Path | None = None,
    engines: Sequence[str] = (),
    line: str = "",
) -> Report:
    """Check a pair contract, with what it accepts, and what engines do with it: those given, else those it names.

    A line says how one of them is launched, in the place of what the pair says of that.
    """
    case = examine_pair(pair, library, base)
    _ask_of_pair(case, pair, engines, line)
    return report(case, pair.id, rerun, pair)


def _ask_of_pair(case: Case, pair: Pair, engines: Sequence[str] = (), line: str = "") -> None:
    """Add rung 3 to the case of a pair: of the engines given, else of those that it names, launched as it says."""
    library, case.otherwise = case.library, bool(engines or line)
    names = (pair.drafter_repo or pair.drafter, pair.target_repo or pair.target)
    launches = read_launches([line] if line else (), library, engines, *names)
    asked = engines or (tuple(made.spec for made in launches if made.engine) if line else pair.asks)
    for id in dict.fromkeys(one.split("@")[0] for one in named_engines(asked, library)):
        if id in pair.launch and all(id != made.engine for made in launches):
            launches += read_launches([pair.launch[id]], library, (id,), *names)
    ask_engines(case, asked, launches)


def examine_pair(pair: Pair, library: Library, base: Path | None = None) -> Case:
    """Run rungs 1 and 2 on a pair contract; paths in it are below base, the folder that holds it."""
    case = examine(
        pair.drafter,
        pair.target,
        library,
        family=pair.family,
        revisions=(pair.drafter_revision, pair.target_revision),
        repos=(pair.drafter_repo, pair.target_repo),
        facts=pair.facts,
        base=base,
    )
    case.source += _recorded_elsewhere(pair, library, case.source)
    return case


def _recorded_elsewhere(pair: Pair, library: Library, said: Sequence[Finding]) -> Iterable[Finding]:
    """Say of a side that a pair pins that only other commits of it are recorded, wherever it was read."""
    for role in ("drafter", "target"):
        name, revision = getattr(pair, role), getattr(pair, f"{role}_revision")
        if not revision or any(f.code == "SRC119" and f.subject.startswith(role) for f in said):
            continue
        repo = full_name(name, library)
        known = library.model(repo)[0] if repo == name else None
        repo = known.repo if known else repo
        at = recorded_at(repo, recordings(library)) if REPO.fullmatch(repo) else []
        if at and revision[:8] not in at:
            seen = f"recorded at {' and '.join(sorted(set(at)))}".replace("unknown", "an unknown revision")
            help = f"draftproof record {repo}@{revision}: until then, what reads recordings alone cannot judge the pair"
            yield finding("SRC119", f"{role} {visible(repo)}@{revision[:7]}", level="warning",
                          expected=f"a recording of {revision}", observed=seen, help=help)  # fmt: skip


def check_config(path: Path, library: Library, target: Any | None = None, family: str = "") -> Report:
    """Check a config file alone, before anything is trained; with a target, what configs tell of the fit."""
    subject = visible(path)
    words = ["draftproof", "check", "--config", str(path)]
    if path.is_dir():
        help = f"give {path / 'config.json'}"
        return _only(
            "conforms", subject, finding("SRC117", subject, expected="a config file", observed="a folder", help=help)
        )
    if not path.exists():
        return _only("conforms", subject, finding("SRC111", subject, expected="a config file", observed="no such file"))
    raw = read_plain(path, CONFIG_LIMIT)
    if isinstance(raw, Finding):
        return _only("conforms", subject, raw)
    data, found = parse_config(raw, subject)
    if data is None:
        return _only("conforms", subject, *found)
    checkpoint = Checkpoint(
        Source(str(path), "config", config=data, provenance="config only", bytes_read=len(raw)), "drafter"
    )
    checkpoint.findings += found
    case = Case(library, paired=target is not None)
    contract, problems = recognise(library, checkpoint, "family", family)
    case.drafter = conform(contract, checkpoint, tensors=False, library=library) if contract else View(checkpoint)
    if contract is None:
        case.source += [*checkpoint.findings, *problems]
    if target is not None:
        words += ["--target", str(target)]
        opened = open_side(target, "target", library)
        if isinstance(opened, Finding):
            case.source.append(replace(opened, subject=f"target {opened.subject}"))
        else:
            case.target = view_of(case, opened, "target", "")
            if contract and case.target.contract:
                case.couple = Couple(case.drafter, case.target, library, {})
                case.fits = [f for f in fits(case.couple) if f.code != "PAIR417"]  # nothing is trained yet
    return report(case, subject, shlex.join(words))


def _only(rung: str, subject: str, *found: Finding) -> Report:
    return Report(visible(subject), (Section.of(rung, found),))


def declared_target(checkpoint: Checkpoint, contract: Contract | None, library: Library) -> str:
    """Return the target that a drafter declares: by its config, else by what is known of its repo; or ""."""
    for key in contract.keys["verifier"] if contract else ():
        if declared := checkpoint.config.text(key):
            return declared
    fact = declared_facts(library, checkpoint.source.repo).get("trained_on")
    return str(fact.value) if fact else ""


def _subject(drafter: Any, target: Any | None) -> str:
    named = [m if isinstance(m, (str, Path)) else m.get("name", "in memory") if isinstance(m, Mapping) else "?"
             for m in (drafter, target) if m is not None]  # fmt: skip
    return " with ".join(visible(n) for n in named)


def _rerun(drafter: Any, target: Any | None, family: str, engines: Sequence[str] = ()) -> str:
    if not isinstance(drafter, (str, Path)) or not isinstance(target, (str, Path, type(None))):
        return ""
    words = ["draftproof", "check", "--drafter", str(drafter)]
    words += ["--target", str(target)] if target is not None else []
    words += ["--family", family] if family else []
    return shlex.join([*words, *(word for engine in engines for word in ("--engine", engine))])


def check_models(
    drafter: Model, target: Model | None, library: Library, family: str = "", engines: Sequence[str] = ()
) -> Report:
    """Check a drafter with a target, and what engines do with it; by default with the target that it declares."""
    case, target = examine_models(drafter, target, library, family)
    ask_engines(case, engines)
    return report(case, _subject(drafter, target), _rerun(drafter, target, family, engines))


def check_launch(
    line: str,
    library: Library,
    drafter: Model | None = None,
    target: Model | None = None,
    family: str = "",
    engines: Sequence[str] = (),
) -> Report:
    """Check what a launch line starts: the models that it names, or those given, and what its engine does with them."""
    named = [str(side) if isinstance(side, (str, Path)) else "" for side in (drafter, target)]
    (made,) = read_launches([line], library, engines, *named)
    idle: list[Finding] = []
    target = target if target is not None else _pinned("target", made.target, made.target_revision, idle) or None
    if drafter is None:
        drafter = _pinned("drafter", made.drafter, made.drafter_revision, idle) or (target if family else None)
    if drafter is None and isinstance(target, str) and _brings_target(target, library, made.engine):
        drafter, target = target, None
    made = replace(made, findings=(*made.findings, *idle))
    launches = [made]
    if target is None and drafter is None:
        lacking = finding("CLI663", "launch", expected="a model", observed="no model is named") if made.engine else None
        return _only("launch", line, *made.findings, *([lacking] if lacking else []))
    if drafter is None:
        case = _alone(target, library, made.own)
    else:
        case, target = examine_models(drafter, target, library, family)
    ask_engines(case, engines, launches)
    case.drafter = case.drafter if drafter is not None else None
    words = shlex.join(["--launch", re.sub(r"\s*(\\\r?)?\n\s*", " ", line).strip()])  # on one line, to be pasted
    given = [*(["--drafter", named[0]] if named[0] else []), *(["--target", named[1]] if named[1] else []),
             *(["--family", family] if family else []), *(w for e in engines for w in ("--engine", e))]  # fmt: skip
    rerun = f"draftproof check {words}" + (f" {shlex.join(given)}" if given else "")
    return report(case, _subject(drafter if drafter is not None else target, target if drafter else None), rerun)


def _pinned(role: str, model: str, revision: str, idle: list[Finding]) -> str:
    """Return a model that a line names at the commit that it pins; of a path, or by a branch, none is: that is told."""
    model = os.path.expanduser(model)
    if revision in ("", "main") or not model:  # its default
        return model
    if REPO.fullmatch(model) and not os.path.isdir(model):
        if COMMIT.fullmatch(revision):
            return f"{model}@{revision}"
        seen = f"{visible(revision, 80)}: what is read is not pinned to it"
        idle.append(finding("CLI662", f"launch: {role}", expected="a commit of 40 hex digits", observed=seen))
        return model
    seen = f"{visible(revision, 80)}, of {visible(model, 80)}: what lies there is read as it stands"
    message = "a revision has no meaning beside a path"
    idle.append(finding("CLI662", f"launch: {role}", message, level="info", expected="ORG/NAME", observed=seen))
    return model


def examine_models(
    drafter: Any, target: Any | None, library: Library, family: str = "", facts: Mapping[str, Fact] | None = None
) -> tuple[Case, Any | None]:
    """Run rungs 1 and 2 on a drafter and a target, by default the one it declares; returns that, too."""
    lacking: Finding | None = None
    if target is None:
        opened = open_side(drafter, "drafter", library)
        contract = None if isinstance(opened, Finding) else recognise(library, opened, "family", family)[0]
        declared = "" if isinstance(opened, Finding) else declared_target(opened, contract, library)
        if contract is not None and contract.in_target:
            if isinstance(drafter, Mapping):
                drafter = {"name": "in memory", **drafter}  # of both sides: it is one checkpoint
            target = drafter
        elif declared:
            other = open_side(declared, "target", library)
            if isinstance(other, Finding):
                lacking = replace(other, subject=f"declared target {other.subject}", level="unknown")
            else:
                target = declared
    case = examine(drafter, target, library, family=family, facts=facts)
    if lacking is not None:
        case.source.append(lacking)
    return case, target


def make_launch(
    drafter: Model, target: Model | None, engine: str, library: Library, family: str = ""
) -> tuple[dict[str, Any], Report]:
    """Return how an engine is to be launched for a pair, with the reason of each flag, and what it then does."""
    from draftproof.engines import advise  # noqa: PLC0415
    from draftproof.launch import quote, words_of  # noqa: PLC0415
    from draftproof.versions import resolve  # noqa: PLC0415

    case, target = examine_models(drafter, target, library, family)
    named, found = resolve([engine], library)
    read, why = ([], "") if family else _only_readings(case, drafter, target, library)
    if len(read) == 1:
        family = read[0]
        inside = bool(library.detect("family", family).get("in_target"))
        case, target = examine_models(drafter, drafter if inside and target is None else target, library, family)
    subject = _subject(drafter, target)
    words = ["draftproof", "launch", "--drafter", str(drafter), *(["--target", str(target)] if target else [])]
    rerun = shlex.join([*words, "--engine", engine, *(["--family", family] if family else [])])
    launches = library.get("launch", named[0].engine)[0] if len(named) == 1 and named[0].engine in library.files(
        "launch") else None  # fmt: skip
    if len(named) > 1:
        found.append(finding("CLI651", "engine", expected="one engine at one version", observed=visible(engine)))
    if len(read) > 1:
        ways = " or ".join(f"--family {one}" for one in read)
        several = unknown("TEN409", f"drafter {visible(drafter)}", expected="one family", observed=listed(read),
                          note=why, help=f"say which is meant: {ways}")  # fmt: skip
        case.source = [*(f for f in case.source if f.code not in ("PAIR422", "TEN408")), several]
    elif target is None:
        expected = "--target MODEL, or a drafter that declares its own"
        found.append(finding("CLI664", "launch", "no target is known", expected=expected, observed="none"))
    if launches is None or target is None or case.drafter is None or case.drafter.contract is None:
        case.launch += found
        return {}, report(case, subject, rerun)
    profile, given = library.get("profile", named[0].engine)[0], {"drafter": str(drafter), "target": str(target)}
    rows = advise(profile, launches, case.drafter, case.target, case.couple, named[0].version, given)
    none = [row for row in rows if row.value == ""]
    if none:
        seen = f"{profile.title} {named[0].version} has none for {case.drafter.contract.id}"
        lacking = finding("CLI664", "launch", expected=f"a value of {none[0].flag}", observed=seen)
        case.launch += [*found, lacking]
        return {}, report(case, subject, rerun)
    flags: dict[str, Any] = {}
    env: dict[str, str] = {}
    shown = []
    open_: list[tuple[str, str, Unknown]] = []
    for row in rows:
        dest, _, key = row.flag.partition(".")
        flag = None if dest == "env" else launches.flag(dest)
        what: dict[str, Any] = {"flag": f"{flag.names[0]}{key and '.'}{key}" if flag else key, "because": row.because,
                "source": row.source, "basis": row.basis}  # fmt: skip
        if isinstance(row.value, Unknown):
            shown.append(what | {"value": None, "unknown": row.value.why} | ({"find": row.find} if row.find else {}))
            if not row.sure:
                continue
            open_.append((dest, key, row.value))
            found.append(
                unknown(
                    "CLI662",
                    f"launch: {what['flag']}",
                    "the line is not whole: what this should be is not known",
                    expected="a value",
                    observed=row.value.why,
                    help=row.find,
                )
            )
            continue
        if flag is not None and not key and row.value == flag.default:
            continue
        shown.append(what | {"value": row.value})
        if flag is None:
            env[key] = str(row.value)
        elif key:
            flags.setdefault(dest, {})[key] = row.value
        else:
            flags[dest] = row.value
    line = quote(env, words_of(launches, flags))
    case.launch += found
    ask_engines(case, [engine], [_with(one, open_) for one in read_launches([line], library)])
    data = {"engine": named[0].engine, "version": named[0].version, "command": line, "env": env, "flags": shown}
    if read:
        data["family"] = {"value": family, "because": why}
    told = report(case, subject, rerun)
    kept = tuple(s for s in told.sections if s.rung not in ("conforms", "fits") or s.verdict == "fail")
    return data, replace(told, sections=kept)


def _with(made: Launch, lacking: Iterable[tuple[str, str, Unknown]]) -> Launch:
    """Return a launch in which what is not known of it is so, rather than not given."""
    flags: dict[str, Any] = dict(made.flags)
    for dest, key, why in lacking:
        held = flags.get(dest)
        flags[dest] = {**(held if isinstance(held, Mapping) else {}), key: why} if key else why
    return replace(made, flags=flags)


def _only_readings(case: Case, drafter: Model, target: Model | None, library: Library) -> tuple[list[str], str]:
    """Return the families as which a drafter of none that is recognised can be launched with this target, and why.

    Of several those count that nothing speaks against: neither its own names and sizes nor its target.
    """
    view = case.drafter
    if view is None or view.contract is not None or view.checkpoint.config.broken:
        return [], ""
    found = readings(library, view.checkpoint)
    if target is None:  # of one that stands in its target it is known
        found = [id for id in found if library.detect("family", id).get("in_target")]
    if target is None or len(found) > 1:
        pair = (drafter, drafter if target is None else target, library)
        fit = [id for id in found if report(examine(*pair, family=id), "").verdict != "fail"]
        found = fit if fit or target is None else found
    said = f"architectures {visible(view.checkpoint.config.texts('architectures'))} are those of whole models"
    return found, f"{said}; its tensors and its target leave no other reading" if len(found) == 1 else said


def _brings_target(model: str, library: Library, engine: str) -> bool:
    """Tell whether what a line serves is a drafter of the format that an engine reads a drafter's target from."""
    profile = library.get("profile", engine)[0] if engine in library.files("profile") else None
    opened = open_side(model, "drafter", library) if profile is not None and profile.lift_with else None
    return isinstance(opened, Checkpoint) and profile is not None and profile.lift_with in opened.config.data


def _alone(target: Any, library: Library, own: bool) -> Case:
    """Return what is known where a line names no drafter: only if own does the engine look for one in the target."""
    case, opened = Case(library), open_side(target, "target", library)
    if isinstance(opened, Finding):
        case.source.append(replace(opened, subject=f"target {opened.subject}"))
        return case
    case.target = view_of(case, opened, "target")
    if own:
        source = Checkpoint(opened.source, "drafter")
        case.drafter = View(source, config=source.config, table=case.target.table)
    seen = f"{opened.source.name} alone" + ("; it is read for a drafter, too" if own else "; nothing drafts")
    help = "a family whose drafters lie in the target is asked for with --family" if own else ""
    case.launch.append(finding("CLI663", "launch", expected="a drafter", observed=seen, help=help))
    return case


def check_pair_id(id: str, library: Library, engines: Sequence[str] = (), line: str = "") -> Report:
    """Check the pair of an id, or of a TOML file, and what engines do with it."""
    pair, path, found = find_pair(id, library)
    if pair is None:
        return _only("conforms" if found[0].code == "SRC111" else "contract", id, *found)
    words = ["draftproof", "check", id, *(word for engine in engines for word in ("--engine", engine))]
    words += ["--launch", line] if line else []
    return check_pair(pair, library, shlex.join(words), path.parent, engines, line)


def find_pair(id: str, library: Library) -> tuple[Pair | None, Path, tuple[Finding, ...]]:
    """Return the pair of an id, or of a TOML file, with its file; or what is wrong."""
    if id.endswith(".toml"):
        path = Path(id)
        if not path.exists():
            seen = f"no such file{nearest(path.stem, library.files('pair'))}"
            return None, path, (finding("SRC111", id, expected="a pair contract", observed=seen),)
        pair, found = load(path, "pair", library)
    else:
        pair, found = library.get("pair", id)
        path = library.files("pair").get(id, Path())
    return pair if isinstance(pair, Pair) else None, path, found


# --- what is known ------------------------------------------------------------------------------------------------


def listing(library: Library, kind: str | None = None) -> dict[str, Any]:
    """Return the ids of contracts, recordings and rules, each with its title."""
    out: dict[str, Any] = {}
    for one, folder in FOLDERS.items():
        if one != "model":
            rows = library.all(one)
            out[folder] = {id: _title(c) if c else f"broken: {found[0].code}" for id, c, found in rows}
    out["recordings"] = {}
    for repo, path in sorted(recorded_repos(recordings(library)).items(), key=lambda row: row[0].lower()):
        source = read_recording(path)
        out["recordings"][repo] = _known(source)
    out["rules"] = {rule.code: rule.summary for rule in RULES.values()}
    return {kind: out[kind]} if kind else {k: v for k, v in out.items() if k != "rules"}


def _known(source: Source | Finding) -> str:
    if isinstance(source, Finding):
        return f"broken: {source.observed}"
    normalised = ", normalised" if source.normalised else ""
    return f"{source.provenance}{normalised}, revision {source.revision or 'unknown'}"


def _title(contract: Any) -> str:
    version = getattr(contract, "version", "")
    return f"{contract.title} {version}".strip()


def show(id: str, library: Library) -> dict[str, Any] | Report:
    """Return a contract or a recording as plain data, resolved; or a report that says why not."""
    for kind in FOLDERS:
        if id in library.files(kind):
            contract, found = library.get(kind, id)
            return _only("contract", id, *found) if contract is None else plain(contract)
    source = open_model(id, recordings(library))
    if isinstance(source, Finding):
        known = [i for kind in FOLDERS for i in library.files(kind)]
        return _only("conforms", id, replace(source, observed=f"no contract, {source.observed}{nearest(id, known)}"))
    checkpoint = Checkpoint(source, "model")
    tensors = dict(source.tensors or {})
    if source.has_files:
        tensors = {"named": {n: [t.dtype, list(t.shape)] for n, t in sorted(checkpoint.table().tensors.items())}}
    config = checkpoint.config.data
    broken = [f for f in checkpoint.findings if f.level in ("error", "unknown")]
    if broken:
        return _only("conforms", id, *broken)
    return {
        "repo": source.repo or source.name, "revision": source.revision, "provenance": source.provenance,
        "normalised": source.normalised, "source": source.origin, "unknown": sorted(source.unknown),
        "files": dict(source.files), "config": dict(config), "tensors": tensors,
    }  # fmt: skip


def pair_view(pair: Pair, library: Library) -> dict[str, Any]:
    """Return the resolved view of a pair for review: tensors, dialect, bindings, verdicts; no paths or dates."""
    case = examine_pair(pair, library)
    _ask_of_pair(case, pair)
    made = report(case, pair.id, pair=pair)
    out: dict[str, Any] = {"pair": pair.id, "drafter": pair.drafter, "target": pair.target}
    pinned = {"drafter": pair.drafter_revision, "target": pair.target_revision}
    out |= {f"{role} revision": revision for role, revision in pinned.items() if revision}
    for view in (case.drafter, case.target):
        if view is not None and view.contract is not None:
            dims = case.couple.dims if case.couple and view is case.drafter else view.dims
            out[f"{view.checkpoint.role} side"] = {
                "contract": view.contract.id,
                "dialect": view.dialect.name if view.dialect else None,
                "provenance": view.checkpoint.source.provenance,
                "bindings": dict(row.split("=", 1) for row in dims.table(list(view.contract.dims))),
                "tensors": {
                    name: {
                        "presence": want.presence,
                        "shape": f"[{', '.join(map(str, want.rule.shape))}]",
                        "value": list(shape),
                        "dtype": list(want.rule.dtype),
                    }
                    for name, (want, shape) in layout(view.contract, dims, optional=True).items()
                },
            }
    out["verdicts"] = {section.rung: section.verdict for section in made.sections}
    out["findings"] = [
        {k: getattr(f, k) for k in ("code", "level", "subject", "expected", "observed", "accepted") if getattr(f, k)}
        for f in made.findings
        if f.level != "pass"
    ]
    return out


def plain(value: Any) -> Any:
    """Return a contract as plain data: expressions as text, empty fields left out."""
    if isinstance(value, Expr):
        return str(value)
    if callable(value):  # where a row stands, which is looked up when it is asked
        return value()
    if is_dataclass(value) or hasattr(value, "_fields"):
        names = [f.name for f in fields(value)] if is_dataclass(value) else value._fields
        named = {n: plain(getattr(value, n)) for n in names}
        return {k: v for k, v in named.items() if v not in ("", {}, [], None, False) and k != "name"}
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, frozenset):
        return sorted(map(plain, value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        if value and all(isinstance(v, Dialect) for v in value):
            return {v.name: plain(v) for v in value}
        return [plain(v) for v in value]
    return value


def beside(library: Library, checkpoint: Checkpoint, contract: Contract, names: set[str]) -> set[str]:
    """Return the names that may stand for weights of these names where the config declares them quantised."""
    from draftproof.quantised import companions, declared  # noqa: PLC0415 (rare)

    seen = View(checkpoint, contract, lookup=checkpoint.config.under(contract.nested)).stated("quantisation")
    out = declared(library, checkpoint, seen)
    return companions(out.scheme, names) if out and out.scheme else set()


def record(path: str, name: str, library: Library) -> tuple[dict[str, Any] | None, Report]:
    """Make the recording of a local checkpoint: config, tensor table, sizes and hashes; returns it with its file name.

    A commit must be known: by name, as ORG/NAME@COMMIT, or because the folder is a snapshot in a Hub cache.
    """
    source = open_model(path, recordings(library))
    if isinstance(source, Finding):
        return None, _only("conforms", path, source)
    repo, revision = snapshot_name(source)
    if name:
        repo, _, revision = name.partition("@")
    if not (REPO.fullmatch(repo) and COMMIT.fullmatch(revision or "")) or source.folder is None:
        seen = name or "neither --as nor a snapshot in a Hub cache"
        problem = finding(
            "SRC117",
            path,
            "what was read is not known",
            expected="--as ORG/NAME@COMMIT, 40 hex digits",
            observed=visible(seen),
        )
        return None, _only("conforms", path, problem)
    snapshot = (repo, revision) == snapshot_name(source)
    origin = "a snapshot in a Hub cache" if snapshot else "a local folder; its name and commit were given by hand"
    return record_source(source, path, repo, str(revision), origin, library)


def hub_origin(source: Source) -> str:
    """Say from which Hub a source is: its host alone, for an address may hold a password."""
    from urllib.parse import urlsplit  # noqa: PLC0415 (rare)

    host = urlsplit(source.origin).netloc.rpartition("@")[2]
    return f"the Hub at {visible(host)}"


def record_source(
    source: Source, subject: str, repo: str, revision: str, origin: str, library: Library
) -> tuple[dict[str, Any] | None, Report]:
    """Make the recording of a repo at a commit from a source of its files; returns it with its file name.

    Of a target only the tensors that a contract names are kept, with counts. Nothing is kept of what is not whole.
    """
    import hashlib  # noqa: PLC0415 (both are slow to import)
    from datetime import date  # noqa: PLC0415

    checkpoint = Checkpoint(source, "drafter")
    contract, _ = recognise(library, checkpoint, "family")
    target, _ = (None, []) if contract else recognise(library, checkpoint, "target")
    table = checkpoint.table()
    keep = named_of_target(source, checkpoint, target, library) if target else set(table.tensors)
    found = [f for f in checkpoint.findings if f.level in ("error", "unknown")]  # reading the config comes first
    if not table.read or checkpoint.config.broken or found:
        return None, _only("conforms", subject, *(found or [unknown("TEN400", subject, observed=table.basis)]))
    try:
        files = recorded_files(source, set(table.files.values()))
    except OSError as error:
        return None, _only("conforms", subject, unreadable(subject, error, source.label))
    names = "\n".join(sorted(table.tensors)).encode("utf-8", "surrogatepass")
    data = {
        "schema": RECORDING_SCHEMA, "repo": repo, "revision": revision, "provenance": "recorded", "normalised": False,
        "read": {"date": date.today().isoformat(), "source": origin},
        "unknown": [], "respelled": [], "config": dict(checkpoint.config.data),
        "tensors": {
            "complete": len(keep & set(table.tensors)) == len(table.tensors), "count": len(table.tensors),
            "parameters": _parameters(checkpoint, contract or target, library),
            **({"absent": sorted(keep - table.tensors.keys())} if target else {}),
            "names_sha256": hashlib.sha256(names).hexdigest(),
            "named": {n: [t.dtype, list(t.shape)] for n, t in sorted(table.tensors.items()) if n in keep},
        },
        "files": files,
    }  # fmt: skip
    return {"file": recording_name(repo, revision), "recording": data}, _only("conforms", subject)


def _parameters(checkpoint: Checkpoint, contract: Contract | None, library: Library) -> int | None:
    """Count the parameters of a whole table, quantised weights as what they stand for; None where that is not known.

    Maps of ids are none; nor are scales.
    """
    from draftproof.quantised import declared, logical  # noqa: PLC0415 (only record needs it)

    table, tensors, out = checkpoint.table(), checkpoint.table().tensors, None
    if contract is not None:
        seen = View(checkpoint, contract, lookup=checkpoint.config.under(contract.nested)).stated("quantisation")
        out = declared(library, checkpoint, seen)
    if out is not None:
        made = logical(out, table, lambda name: "", checkpoint.source.label) if out.scheme else None
        if made is None or made.unknown or any(f.level in ("error", "unknown") for f in made.findings):
            return None
        tensors = made.tensors
    counted = [t for t in tensors.values() if t.dtype not in _NO_PARAMETERS]
    packed = any(len(t.shape) > 1 for t in tensors.values() if t.dtype in _NO_PARAMETERS)
    return None if packed else sum(_numel(t.shape) for t in counted)


_NO_PARAMETERS = ("I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL")


def named_of_target(source: Source, checkpoint: Checkpoint, target: Contract, library: Library) -> set[str]:
    """Return the names that contracts speak of in a target's checkpoint: its own, and a drafter's that stands inside.

    Of a weight that is declared quantised, the parts that may stand for it are among them.
    """
    keep: set[str] = set()
    inner, _ = recognise(library, checkpoint, "family", in_target=True)
    for contract, role in ((target, "target"), (inner, "drafter")):
        if contract is not None:
            view = conform(contract, Checkpoint(source, role), library=library)
            names = [*(want.name for want in expectations(contract, view.dims)), *last_layers(view).values()]
            dialects = [view.dialect] if view.dialect else contract.dialects
            named = {dialect.encode(name) for dialect in dialects for name in names}
            keep |= named | beside(library, view.checkpoint, contract, named)
    return keep
