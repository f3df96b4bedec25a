"""What engines really did with the cases, as recorded tables, and whether what is predicted agrees with it.

    from draftproof.testing import truth

    for table in truth.tables():             # tests/truth/tables, one per engine, version and runner
        print(truth.confusion(table))        # recorded outcome against predicted outcome

A table is made from the lines of a runner (run_vllm.py, run_sglang.py, run_llamacpp.py). An outcome is ``refuses``,
with the stage and the class of the error; ``degraded``, where it drafts other numbers than its twin; or ``meant``.
Prediction sees what metadata tells: configs, headers, names of files, the launch line. It never sees a value.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from draftproof.contracts import Fact
from draftproof.dims import ordered
from draftproof.hub import Source
from draftproof.testing import cases, fixtures
from draftproof.testing.cases import Case
from draftproof.testing.fixtures import Model

if TYPE_CHECKING:
    from draftproof.conform import View
    from draftproof.engines import Prediction
    from draftproof.library import Library

SCHEMA = 1
NEAR = 1e-3  # logits that differ by more are degraded
ROUND = 1.5e-3  # odds of tokens that differ by more: they are logged with three digits
OUTCOMES = ("refuses", "degraded", "meant")
SAID = {"refuses": "refuses", "degrades": "degraded", "as meant": "meant", "unknown": "unknown"}
FOLDERS = (Path(__file__).parent / "tables", Path(__file__).parents[3] / "tests" / "truth" / "tables")


class Row(NamedTuple):
    """Hold what became of one case: refusals with stage and class of the error, else how far it is from its twin."""

    id: str
    digest: str  # of the case as it was run
    outcome: str
    stage: str = ""
    error: str = ""
    message: str = ""
    by: str = ""  # "logits 0.52", "tokens", "accepted 12 of 75", "nan"


class Table(NamedTuple):
    """Hold what one engine at one version did with all its cases."""

    engine: str
    version: str
    runner: str
    date: str
    rows: Mapping[str, Row]

    @property
    def name(self) -> str:
        """Return the name of its file: sglang-0.5.23, vllm-0.33.0-V2."""
        return "-".join(filter(None, (self.engine, self.version, self.runner)))


class Compared(NamedTuple):
    """Hold a recorded row beside what is predicted for it."""

    row: Row
    predicted: str
    stage: str
    error: str
    hidden: bool  # metadata cannot tell what is wrong
    made: Prediction

    @property
    def agrees(self) -> bool:
        """Tell whether outcome, and for a refusal stage and class of the error, are those recorded."""
        if self.hidden and self.predicted != "refuses":  # it is as meant for that metadata, whatever the values do
            return self.predicted == "meant"
        same = self.predicted == self.row.outcome
        return same and (self.predicted != "refuses" or (self.stage, self.error) == (self.row.stage, self.row.error))


# --- recorded -----------------------------------------------------------------------------------------------------


def tables() -> list[Table]:
    """Return the recorded tables."""
    folder = next((folder for folder in FOLDERS if folder.is_dir()), None)
    return [read(path) for path in sorted(folder.glob("*.json"))] if folder else []


def read(path: Path) -> Table:
    """Read a table."""
    data = json.loads(path.read_text(encoding="utf-8"))
    if data["schema"] != SCHEMA:
        raise ValueError(f"{path.name}: schema {data['schema']}; this draftproof reads {SCHEMA}")
    rows = (Row(**row) for row in data["rows"])
    return Table(data["engine"], data["version"], data["runner"], data["date"], {row.id: row for row in rows})


def written(table: Table) -> str:
    """Return a table as JSON, a case on a line."""
    head = {"schema": SCHEMA, **{key: getattr(table, key) for key in ("engine", "version", "runner", "date")}}
    rows = [
        json.dumps({key: value for key, value in row._asdict().items() if value or key in ("id", "digest", "outcome")})
        for _, row in sorted(table.rows.items())
    ]
    return json.dumps(head)[:-1] + ', "rows": [\n' + ",\n".join(rows) + "\n]}\n"


def digest(case: Case, engine: str) -> str:
    """Return eight hex digits of all that a case is made of for an engine, values apart."""
    target, drafter = cases.models(case)
    parts = [
        [made.config, made.table, made.weights, sorted(made.files), *([made.gone] if made.gone else [])]
        for made in (target, drafter)
    ] + [case.launch[engine], case.env.get(engine, {}), case.twin, case.feature, case.folder]  # fmt: skip
    parts += [case.request] if case.request else []
    return f"{zlib.crc32(json.dumps(parts, sort_keys=True, default=str).encode()):08x}"


def table(lines: Iterable[Mapping[str, Any]], date: str) -> Table:
    """Make the table of a runner's lines; a case whose twin was not run, or did not run, has no row."""
    by_id = {line["id"]: line for line in lines}
    rows = [row for id, line in by_id.items() if (row := _judged(cases.case(id), line, by_id)) is not None]
    one = next(iter(by_id.values()))
    return Table(one["engine"], one["version"], one.get("runner", ""), date, {row.id: row for row in rows})


def _judged(case: Case, line: Mapping[str, Any], lines: Mapping[str, Mapping[str, Any]]) -> Row | None:
    row = Row(case.id, digest(case, line["engine"]), "meant")
    if line["outcome"] != "ran":
        message = (line["message"] or "").strip().splitlines()
        error = line["error"] or line["outcome"]
        return row._replace(outcome="refuses", stage=line["stage"], error=error, message=(message or [""])[0][:200])
    if not case.twin:
        return row
    twin = lines.get(case.twin)
    if twin is None or twin["outcome"] != "ran":
        return None
    by = _apart(line, twin)
    if case.feature:
        return row if by else row._replace(outcome="degraded", by="as without it")
    return row._replace(outcome="degraded" if by else "meant", by=by)


def _apart(line: Mapping[str, Any], twin: Mapping[str, Any]) -> str:
    """Say how a run is worse than its twin's; nothing if it is not."""
    if (count := line.get("accepted")) is not None and count < (whole := twin["accepted"]):
        return f"accepted {count} of {whole}"
    if "proposed" in line:
        return _otherwise(line["proposed"], twin["proposed"])
    rows, others = line.get("logits") or [], twin.get("logits") or []
    if len(rows) != len(others):
        return f"{len(rows)} rows of logits where there are {len(others)}"
    pairs: list[tuple[Any, Any]] = [
        pair for row in zip(rows, others, strict=True) for pair in zip_longest(*row, fillvalue="-inf")
    ]
    pairs = [(a, b) for a, b in pairs if a != b]  # -inf where there is no such token, in both
    if any(not isinstance(x, (int, float)) or not math.isfinite(x) for pair in pairs for x in pair):
        return "not finite"
    most = max((abs(a - b) for a, b in pairs), default=0.0)
    if most > NEAR:
        return f"logits {most:.3g}"
    return "" if line.get("tokens") == twin.get("tokens") else "tokens"


def _otherwise(rows: Sequence[Any], others: Sequence[Any]) -> str:
    """Say how proposals differ: rows of (token, odds), of which the engine tells three digits."""
    if any(not isinstance(odds, float) for row in rows for _, odds in row):
        return "not finite"
    if len(rows) != len(others):
        return f"{len(rows)} drafts where there are {len(others)}"
    most = max((_odds(*pair) for pair in zip(rows, others, strict=True)), default=0.0)
    return f"odds {most:.3g}" if most > ROUND else ""


def _odds(row: Sequence[tuple[int, float]], other: Sequence[tuple[int, float]]) -> float:
    """Return by how much the odds of a token differ at least: one that is not listed has no more than the last has."""
    mine, others = dict(row), dict(other)
    apart = [abs(odds - others[token]) for token, odds in row if token in others]
    apart += [odds - min(others.values(), default=0.0) for token, odds in row if token not in others]
    apart += [odds - min(mine.values(), default=0.0) for token, odds in other if token not in mine]
    return max(apart, default=0.0)


# --- predicted ----------------------------------------------------------------------------------------------------


def source(model: Model, name: str) -> Source:
    """Return the folder that a model would be written to, without values: data of the right size that is never read."""
    head = fixtures.header(model.tensors)
    files: dict[str, Any] = {"config.json": json.dumps(model.config).encode(), **model.files}
    size = len(head) + sum(fixtures.nbytes(tensor) for tensor in model.tensors.values())

    def content(file: str) -> bytes:
        made = files[file]
        return bytes(made() if callable(made) else made)

    def get(file: str, start: int, stop: int) -> bytes:
        return head[start:stop] if file == model.weights and file not in model.files else content(file)[start:stop]

    sizes = {file: len(content(file)) for file in files}
    if model.tensors:
        sizes.setdefault(model.weights, size)
    sizes = {file: n for file, n in sizes.items() if file not in model.gone}
    return Source(name, "folder", files=dict(sorted(sizes.items())), read=get)


@cache
def _library() -> Library:
    from draftproof.library import Library  # noqa: PLC0415

    return Library()


def predict(case: Case, engine: str, version: str = "", runner: str = "") -> Prediction:
    """Return what an engine is predicted to do with a case: from configs, headers, file names and the launch line."""
    from draftproof import engines  # noqa: PLC0415
    from draftproof.launch import flags_of, reads_own  # noqa: PLC0415

    library = _library()
    profile, _ = library.get("profile", engine)
    env = case.env.get(engine, {})
    words = [_placed(word, case) for word in case.launch[engine]]
    flags = flags_of(words, {name: _placed(value, case) for name, value in env.items()}, library)
    places = "".join((*case.launch[engine], *env.values()))
    alone = "{drafter}" not in places and (places.count("{target}") > 1 or reads_own(engine, flags, library))
    made = _examined(case.id, not alone)
    assert made.drafter is not None
    asked = {"max_tokens": case.tokens, **case.request}
    return engines.predict(profile, library, made.drafter, made.target, made.couple, version=version, runner=runner,
                           flags=flags, facts=facts(case), request=asked)  # fmt: skip


def _placed(text: str, case: Case) -> str:
    return text.replace("{target}", "target").replace("{drafter}", case.folder)


@cache
def _examined(id: str, own: bool = True) -> Any:
    """Return what rungs 1 and 2 know of a case; where its launch names no drafter, the target stands for it."""
    from draftproof import api  # noqa: PLC0415

    case = cases.case(id)
    target, drafter = cases.models(case)
    drafter = drafter if own else target
    sides = (source(drafter, case.folder), source(target, "target"))
    made = api.examine(*sides, _library(), facts=facts(case))
    if made.drafter is None or made.drafter.contract is None:  # too broken to be told: what its family is then
        made = api.examine(*sides, _library(), family=family_of(case.family), facts=facts(case))
    return made


@cache
def family_of(family: str) -> str:
    """Return the id of the contract of a family of cases, which recognises its healthy drafter; or ""."""
    if named := cases.contract(family):
        return named
    contract = view(cases.models(cases.case(f"{family}/{cases.HEALTHY}"))[1]).contract
    return contract.id if contract else ""


def view(drafter: Model) -> View:
    """Return a drafter as the contract that recognises it sees it."""
    from draftproof import api  # noqa: PLC0415

    made = api.examine(source(drafter, "drafter"), None, _library())
    assert made.drafter is not None
    return made.drafter


def facts(case: Case) -> dict[str, Fact]:
    """Return what is declared of a case's drafter: the layers it was trained on, in a convention of its family."""
    said = {key: value for key, value in case.facts.items() if key != "aux"} | {"prompt": len(cases.prompt(case))}
    if "aux" in case.facts:  # boundaries
        contract, _ = _library().get("family", family_of(case.family))
        conventions = contract.conventions if contract is not None else {}
        by = next((name for name, one in conventions.items() if not one.offset), next(iter(conventions), "boundary"))
        offset = conventions[by].offset if by in conventions else 0
        said |= {"aux_layers": [layer - offset for layer in case.facts["aux"]], "aux_convention": by}
    return {key: Fact(value, "the case") for key, value in said.items()}


def compared(table: Table) -> Iterator[Compared]:
    """Yield each recorded row beside what is predicted for it."""
    for id, row in sorted(table.rows.items()):
        case = cases.case(id)
        made = predict(case, table.engine, table.version, table.runner)
        refusal = made.refusal
        yield Compared(row, SAID[made.outcome], refusal.stage if refusal else "", refusal.error if refusal else "",
                       case.hidden, made)  # fmt: skip


def confusion(table: Table, found: Sequence[Compared] | None = None) -> str:
    """Return the confusion table of an engine, hidden cases apart, and each row on which it does not agree."""
    found = list(compared(table)) if found is None else found
    seen = [one for one in found if not one.hidden]
    said = [*OUTCOMES, "unknown"]
    count = {(r, p): sum((o.row.outcome, o.predicted) == (r, p) for o in seen) for r in OUTCOMES for p in said}
    agree = sum(one.agrees for one in seen)
    lines = [f"{table.name}: {agree} of {len(seen)} agree; {len(found) - len(seen)} whose fault no metadata shows"]
    lines.append(f"  {'recorded':<10}" + "".join(f"{p:>10}" for p in said))
    lines += [f"  {r:<10}" + "".join(f"{count[r, p]:>10}" for p in said) for r in OUTCOMES]
    for one in found:
        if not one.agrees:
            was = " ".join(filter(None, (one.row.outcome, one.row.stage, one.row.error, one.row.by)))
            now = " ".join(filter(None, (one.predicted, one.stage, one.error)))
            lines.append(f"  {one.row.id}: was {was}, predicted {now}")
    return "\n".join(lines)


# --- run again ----------------------------------------------------------------------------------------------------


class NotRun(RuntimeError):
    """Say why an engine's cases could not be run."""


class Change(NamedTuple):
    """Hold what became of a case before and now."""

    before: Row
    now: Row

    def __str__(self) -> str:
        return f"{self.now.id}: {_told(self.before)} → {_told(self.now)}"


def _told(row: Row) -> str:
    if row.outcome == "refuses":
        return f"refuses at {row.stage} ({row.error}{f': {row.message}' if row.message else ''})"
    return f"degraded, without a word ({row.by})" if row.outcome == "degraded" else "as meant"


_HELD = """
import importlib.metadata, sys
for name in sys.argv[1:]:
    try:
        sys.exit(print(importlib.metadata.version(name)))
    except importlib.metadata.PackageNotFoundError:
        pass
sys.exit("none of " + ", ".join(sys.argv[1:]) + " is installed there")
"""  # before cases are built: whether the interpreter is one, and has the engine


def _spoken(words: Sequence[str]) -> str:
    """Run a program to its end and return what it prints; raises NotRun."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise NotRun(f"{words[0]}: {error.strerror or error}") from None
    if done.returncode:
        said = " / ".join(done.stderr.strip().splitlines()[-3:]) or "it said nothing"
        raise NotRun(f"{words[0]} {'' if words[1] == '-c' else Path(words[1]).name + ' '}"
                     f"ended with exit code {done.returncode}: {said}")  # fmt: skip
    return done.stdout


def run(python: str, engine: str, runner: str = "", only: str = "", folder: Path | None = None) -> Table:
    """Run an engine's cases, those whose ids match, in the build that an interpreter holds; raises NotRun."""
    script = Path(__file__).parent / f"run_{re.sub('[^a-z0-9]', '', engine)}.py"
    chosen = {case.id: case for case in cases.cases(engine) if re.search(only, case.id)}
    chosen |= {case.twin: cases.case(case.twin) for case in list(chosen.values()) if case.twin}
    if not script.is_file() or not chosen:
        known = ", ".join(dict.fromkeys(e for case in cases.cases() for e in case.launch))
        raise NotRun(f"no case of {engine} holds {only!a}" if script.is_file() else f"cases run in {known}")
    launches, _ = _library().get("launch", engine)
    if not _spoken([python, "-c", _HELD, *(launches.packages if launches else ())]).strip():
        raise NotRun(f"{python} is no Python interpreter: it answers nothing")
    with tempfile.TemporaryDirectory() as made:
        place = folder or Path(made)
        for case in chosen.values():
            cases.build(case, place)
        out = Path(made) / "lines.json"
        words = [python, str(script), str(place), "--out", str(out), *(["--runner", runner] if runner else [])]
        _spoken(words)
        lines = [json.loads(text) for text in out.read_text("utf-8").splitlines()] if out.exists() else []
        if not lines:
            raise NotRun(f"{python} {script.name} wrote no line")
    return table(lines, datetime.now(tz=UTC).date().isoformat())


def recorded(now: Table) -> Table | None:
    """Return the recorded table of the same engine and runner, of the nearest version."""
    same = [one for one in tables() if (one.engine, one.runner) == (now.engine, now.runner)]
    exact = [one for one in same if one.version == now.version]
    return next(iter(exact or sorted(same, key=lambda one: ordered(one.version), reverse=True)), None)


def changes(before: Table, now: Table) -> list[Change]:
    """Return the cases that end in another way than they did, the worst turn first."""
    rank = {"degraded": 0, "refuses": 1, "meant": 2}
    both = [Change(before.rows[id], row) for id, row in sorted(now.rows.items()) if id in before.rows]
    found = [c for c in both if c.before[2:5] != c.now[2:5]]
    return sorted(found, key=lambda c: (rank[c.now.outcome], c.now.id))


# --- told ---------------------------------------------------------------------------------------------------------


class Told(NamedTuple):
    """Hold an answer for the command line: text, the same as data, and the exit code."""

    text: str
    data: dict[str, Any]
    exit_code: int


def agreement(engine: str | None = None) -> Told:
    """Say of each recorded table, or of one engine's, how far what is predicted agrees."""
    found = [(one, list(compared(one))) for one in tables() if engine in (None, one.engine)]
    if not found:
        known = ", ".join(dict.fromkeys(one.engine for one in tables())) or "none"
        which = f"table of {ascii(engine)[1:-1]}" if engine else "table"
        return Told(f"no {which} is recorded; there are: {known}\n", {"tables": []}, 4)
    text = "\n\n".join(confusion(one, rows) for one, rows in found)
    data = [
        {
            "table": one.name, "date": one.date, "cases": len(rows), "hidden": sum(r.hidden for r in rows),
            "agree": sum(r.agrees for r in rows), "disagree": [r.row.id for r in rows if not r.agrees],
        }
        for one, rows in found
    ]  # fmt: skip
    whole = sum(len(rows) for _, rows in found)
    good = all(row.agrees for _, rows in found for row in rows)
    text += f"\n\n{whole} recorded outcomes in {len(found)} tables\n"
    return Told(text, {"tables": data, "outcomes": whole}, 0 if good else 1)


def again(python: str, engine: str, runner: str | None, only: str, record: Path | None) -> Told:
    """Run an engine's cases in another build, and say what changed against what is recorded."""
    profile, _ = _library().get("profile", engine)
    runners = dict.fromkeys(row.is_ for row in profile.runners) if profile else {}
    lines: list[str] = []
    data: list[dict[str, Any]] = []
    codes = set()
    for name in [runner] if runner else list(runners) or [""]:
        try:
            now = run(python, engine, name, only)
        except NotRun as error:
            said = f"not run: {ascii(str(error))[1:-1]}"
            lines += [said] if said not in lines else []  # the same for each runner
            codes.add(4)
            continue
        if record is not None:
            record.mkdir(parents=True, exist_ok=True)
            (record / f"{now.name}.json").write_text(written(now), encoding="utf-8")
        before = recorded(now)
        if before is None:
            lines.append(
                f"{now.name}: {len(now.rows)} cases were run; nothing is recorded that they can be compared with"
            )
            codes.add(4)
            continue
        found = changes(before, now)
        new = [id for id in now.rows if id not in before.rows]
        more = f"; {len(new)} are new" if new else ""
        lines.append(f"{now.name}, beside {before.name} of {before.date}: {len(found)} of "
                     f"{len(now.rows) - len(new)} cases end in another way{more}")  # fmt: skip
        lines += [f"  {change}" for change in found]
        turned = [{"id": c.now.id, "before": c.before._asdict(), "now": c.now._asdict()} for c in found]
        data.append({"table": now.name, "recorded": before.name, "cases": len(now.rows), "new": new, "changes": turned})
        codes.add(1 if found else 0)
    return Told("\n".join(lines) + "\n", {"tables": data}, max(codes) if 4 not in codes else 4)
