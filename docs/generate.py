"""Write what the docs say of rules and contract files, from the code that reads them.

`python docs/generate.py` writes docs/rules/, docs/schema/, docs/models.md, docs/engines.md, docs/corpus.md,
docs/faults.md and the outputs in the README and the guides; with `--check` it writes nothing, and exits with 1 if a
file is stale, missing or an orphan.
"""

from __future__ import annotations

import ast
import io
import math
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

from draftproof import api, cli
from draftproof.checkpoint import Checkpoint
from draftproof.conform import View, conform, layout
from draftproof.engines import DOES
from draftproof.findings import Finding, verdict_of
from draftproof.hub import Source, recorded_repos
from draftproof.language import KINDS, json_schema
from draftproof.library import Library
from draftproof.pair import declared_facts
from draftproof.recognise import recognise
from draftproof.render import as_json, rule_text
from draftproof.rules import BANDS, RULES
from draftproof.testing import cases, corpus, truth

os.environ["HF_HUB_OFFLINE"] = "1"  # the docs are the same everywhere
DOCS = Path(__file__).resolve().parent
MADE = ("rules", "schema")  # folders that hold nothing else
ALONE = ("models.md", "engines.md", "corpus.md", "faults.md")  # files that are made, beside them
SHOWING = ("../README.md", "review.md")  # files written by hand, with outputs in them


def index_text() -> str:
    """Return docs/rules/README.md: every code by band, with a link to its page."""
    out = ["# Rules", "", "Codes are stable and never reused. `draftproof explain CODE` prints the same pages."]
    for prefix, band in BANDS.items():
        rows = [r for r in RULES.values() if r.code.startswith(prefix)]
        out += ["", f"## {prefix}: {band}", "", "| code | name | rung | level | summary |", "|---|---|---|---|---|"]
        out += [f"| [{r.code}]({r.code}.md) | {r.name} | {r.rung} | {r.severity} | {r.summary} |" for r in rows]
    return "\n".join(out) + "\n"


def shown_text(old: str) -> str:
    """Return a page with the output of each `<!-- draftproof ... -->` in the block below it."""

    def output(found: re.Match[str]) -> str:
        out = io.StringIO()
        with redirect_stdout(out):
            cli.main([*shlex.split(found[1])[1:], "--hub", "recordings"])  # the same with and without a network
        return f"<!-- {found[1]} -->\n```text\n{out.getvalue()}```\n"

    return re.sub(r"<!-- (draftproof .*?) -->\n```text\n.*?```\n", output, old, flags=re.DOTALL)


MODELS = """# Models

The {} models of which something is recorded in `contracts/recordings/`, and what draftproof says of each.
`draftproof show ORG/NAME` prints a recording, with its source. None of these checkpoints was read: a config is *whole*
(the recording is `derived`), or *partial*: only some keys are published, and the others are unknown, not absent.

**Names.** A model is called by its repository, ORG/NAME. A file of a repository that is no checkpoint, as a trainer's
config, is called by the repository and its path: ORG/REPO/PATH. A model whose repository is not known for certain
stands under `unknown/`, so that no such name is mistaken for an address; its recording says what is known of the name.
Other names that people use for a target are its `aliases` in `contracts/models/`.

**Reading the tables.** *holds*, *fails* or *unknown* is the verdict of a rung, with how many checks of it hold; an
unknown is never a pass, also where a pair expects it. The codes after it are those that decide it, with how often;
(accepted) is a failure that the pair accepts, with the reason in its file. A dialect is told by the names of tensors,
so it is not known where none were published. Codes are explained in [rules](rules/README.md).
"""
WORDS = {"pass": "holds", "fail": "fails", "unknown": "unknown"}
BASIS = {"derived": "whole", "partial": "partial", "recorded": "recorded"}


def cell(found: Iterable[Finding]) -> str:
    """Return the verdict of a rung, what holds, and the codes that decide: "unknown, 3 hold: CFG313, PAIR410 x3"."""
    rows = list(found)
    verdict = verdict_of(rows)
    level = {"fail": ("error",), "unknown": ("unknown",)}.get(verdict, ("",))
    codes = Counter(f.code for f in rows if f.level in level and (verdict == "unknown" or not f.accepted))
    text = ", ".join(code + (f" x{n}" if n > 1 else "") for code, n in sorted(codes.items()))
    also = sorted({f.code for f in rows if f.accepted and f.level in ("error", "warning")})
    held = sum(f.level == "pass" for f in rows)
    known = f", {held} hold{'' if held != 1 else 's'}" if verdict != "pass" else f", all {held}"
    return f"{WORDS[verdict]}{known}{': ' if text else ''}{text}" + "".join(f", {code} (accepted)" for code in also)


def unknown_of(view: View) -> str:
    """Return what is not known: how many config keys that matter were not published, and whether tensors were read."""
    keys = [f"{len(view.unpublished)} keys"] if view.unpublished else []
    return ", ".join(keys + ([] if view.table.read else ["tensors"])) or "-"


def asked(view: View) -> str:
    """Return how many tensors and parameters a config asks for, or a dash where its sizes are not all known."""
    contract = view.contract
    if contract is None or contract.open or view.unpublished:
        return "-"
    rows = layout(contract, view.dims)
    floats = sum(math.prod(shape) for want, shape in rows.values() if "I64" not in want.rule.dtype)
    return f"{len(rows)}; {floats:,}"


def table(*rows: Iterable[str]) -> list[str]:
    """Return a Markdown table; the first row is its head."""
    head, *rest = [" | ".join(row) for row in rows]
    return [f"| {head} |", "|" + "---|" * (head.count(" | ") + 1), *(f"| {row} |" for row in rest), ""]


@cache
def models_text() -> str:
    """Return docs/models.md: every pair and every recorded model, with its verdicts."""
    library = Library(DOCS.parent / "contracts", shipped=False)
    pairs = [("pair", "drafter", "target", "family", "dialect", "conforms", "fits")]
    for id, pair, _ in library.all("pair"):
        case = api.examine_pair(pair, library)
        found = {s.rung: s.findings for s in api.report(case, id, pair=pair).sections}
        dialect = case.drafter.dialect.name if case.drafter and case.drafter.dialect else "-"
        family = case.drafter.contract.id if case.drafter and case.drafter.contract else "-"
        pairs.append(
            (id, pair.drafter, pair.target, family, dialect, cell(found["conforms"]), cell(found.get("fits", ())))
        )
    drafters = [("drafter", "family", "config", "verdict", "not known")]
    configs = [("training config", "family", "verdict", "tensors; parameters asked for")]
    targets = [("target", "contract", "config", "verdict", "not known")]
    others = [("model", "config", "verdict")]
    for repo in sorted(recorded_repos(api.recordings(library)), key=str.lower):
        source = api.open_model(repo, api.recordings(library))
        if not isinstance(source, Source):
            raise SystemExit(f"{repo}: {source.observed}")
        basis = BASIS[source.provenance]
        if repo.count("/") > 1:
            checkpoint = Checkpoint(source, "drafter")
            contract, found = recognise(library, checkpoint, "family")
            view = conform(contract, checkpoint, tensors=False) if contract else View(checkpoint, findings=found)
            configs.append((repo, contract.id if contract else "-", cell(view.findings), asked(view)))
            continue
        sides = [("target", "target", targets), ("drafter", "family", drafters)]
        if "trained_on" in declared_facts(library, repo):
            sides.reverse()
        for role, kind, rows in sides:
            view = api.view_of(api.Case(library), Checkpoint(source, role), kind)
            if view.contract is not None:
                rows.append((repo, view.contract.id, basis, cell(view.findings), unknown_of(view)))
                break
        else:
            others.append((repo, basis, "unknown: no contract tells what it is"))
    count = sum(len(rows) - 1 for rows in (drafters, targets, configs, others))
    out = [MODELS.replace("{}", str(count), 1), f"## Pairs ({len(pairs) - 1})", "", *table(*pairs)]
    for title, rows in (
        ("Drafters", drafters),
        ("Targets", targets),
        ("Training configs", configs),
        ("Others", others),
    ):
        out += [f"## {title} ({len(rows) - 1})", "", *table(*rows)] if len(rows) > 1 else []
    return "\n".join(out).rstrip() + "\n"


ENGINES = """# Engines

What is known of each engine, and how well. `draftproof check --engine NAME[@VERSION]` says what it will do with a
drafter: *refuses* (when, and with which error), *runs degraded* (it drafts, but not what was trained), runs *as meant*,
or *unknown*: it cannot be told from what is at hand, or has not been read. Unknown is never a pass.

**run** means that the fact was seen to happen in the engine itself, **read** that it stands in its code at the place
that the finding names, **in part** that of this version only what rows say is known. What cannot be run on a plain
machine (tensor parallelism above 1, CUDA kernels, quantised loads) is read.

**Recorded** are tiny models, whole and broken, that ran in the engine (`benchmarks/truth/` makes its environment). A
drafter is *degraded* where its logits differ from those of its unbroken twin by more than 1e-3 or are not finite, or,
in llama.cpp, where what it proposes differs or less of it is accepted. `draftproof truth` prints what is predicted
beside each, and ends with 1 if one differs. Cases that change values alone show nothing in the metadata: they are
predicted as meant, and counted apart.

Facts are data: `contracts/engines/`. [CONTRIBUTING.md](../CONTRIBUTING.md) says how to add one.
"""


@cache
def engines_text() -> str:
    """Return docs/engines.md: of each engine the versions, what was recorded, and the classes of drafters."""
    library = Library(DOCS.parent / "contracts", shipped=False)
    out = [ENGINES.rstrip("\n"), ""]
    for _, profile, _ in library.all("profile"):
        held = {"run": "run", "read": "read", "part": "read in part"}
        versions = [f"{v.is_} ({held[v.basis]})" for v in profile.versions]
        out += [f"## {profile.title}", "", f"Versions: {', '.join(versions)}.", ""]
        rows: list[tuple[str, ...]] = [
            ("recorded", "date", "cases", *truth.OUTCOMES, "of them with values alone changed")
        ]
        for one in truth.tables():
            if one.engine == profile.id:
                counts = Counter(row.outcome for row in one.rows.values())
                hidden = sum(cases.case(id).hidden for id in one.rows)
                numbers = [len(one.rows), *(counts[outcome] for outcome in truth.OUTCOMES), hidden]
                rows.append((one.name, one.date, *map(str, numbers)))
        out += table(*rows)
        rows = [("class", "architectures", "basis", "source")]
        for id, architectures in sorted(profile.registry.items()):
            class_, _ = library.get("class", id)
            if class_ is not None:
                basis = held["run" if class_.basis == "run" else "read"]
                rows.append((class_.title, ", ".join(architectures), basis, f"`{class_.source}`"))
        out += table(*rows)
        rows = [("while it drafts, with a request's", "it", "basis", "source")]
        for row in sorted(profile.requests, key=lambda row: list(DOES).index(row.does)):
            more = ", ".join(filter(None, (row.error, row.see)))
            does = DOES[row.does].format("it") + (f" ({more})" if more else "")
            rows.append((", ".join(row.asks), does, held[row.basis], f"`{row.source}`"))
        out += table(*rows) if len(rows) > 1 else []
    return "\n".join(out).rstrip() + "\n"


CORPUS = """# The corpus

Public reports of drafters that did not load, or loaded and were silently of no use, as the smallest checkpoint pairs
that show them: facts only, each with the address of its report. What must be found in each, the code and the numbers,
was written from the report before there was a rule, and next to each stands the twin without the fault, which must show
nothing above info. `tests/corpus/` holds draftproof to both, and to variants of each kind.

```console
$ python -m draftproof.testing.corpus
```

prints what is caught, missed and a false alarm per class of fault, and exits with 1 on any of the last two. The corpus
is part of the installed package, so that the tests of an engine or a trainer can run over the same files:

```python
from draftproof.testing import cases, corpus, truth

for case in corpus.CASES:
    folder = corpus.build(case, tmp_path)  # broken/ and right/, each with drafter/, target/ and pair.toml
```

configs, headers and tokenizers are whole; weights are holes in the file, and read as zeros. A drafter that stands in
its target's checkpoint has no target/ of its own. Where a report is about what an engine does, `pair.toml` names the
engine, and the line by which it is launched, at the version that the report names, else the last before its fix, else
one that was read.

To add a report, add its line to `[report]` in `src/draftproof/testing/corpus.toml`, and a case, or what it needs; then
run `python docs/generate.py`.
"""


def corpus_text() -> str:
    """Return docs/corpus.md: every report with its case, or with what it takes to judge it."""
    out = [CORPUS.rstrip("\n")]
    built: dict[str, list[corpus.Case]] = {}
    for case in corpus.CASES:
        built.setdefault(case.fault_class, []).append(case)
    for name, group in sorted(built.items()):
        out += [
            "",
            f"## {name[2:].replace('_', ' ').capitalize()}",
            "",
            "| report | fault | found as |",
            "|---|---|---|",
        ]
        for case in group:
            codes = {e.code: " info" if e.level == "info" else "" for e in case.expect}
            found = ", ".join(f"[{code}](rules/{code}.md){level}" for code, level in codes.items())
            found = found or "nothing: a guard against false alarms"
            found += f" by `{asked}`" if (asked := case.said("engine", "broken")) else ""
            out.append(f"| [{case.id}]({case.url}) | {case.fault} | {found} |")
    out += ["", "## Not here", "", "| it takes | reports |", "|---|---|"]
    for needs in dict.fromkeys(corpus.ELSEWHERE.values()):
        links = [f"[{id}]({url})" for id, url in corpus.URLS.items() if corpus.ELSEWHERE.get(id) == needs]
        out.append(f"| {needs} | {', '.join(links)} |")
    return "\n".join(out) + "\n"


FAULTS = """# Faults and attacks

What a Hub, its CDN, a proxy, a cache, a machine or a repo can do to a read, and what is then said. Each row is a test
in `tests/faults/`, named by the row: it asserts the code and the words, and that no more was moved, no file was written
outside the cache, and no token went to another origin than the endpoint. This page is made of those tests.

There are three outcomes, and they are never mixed: **the contract is broken**, proved by bytes of one commit; **the
repo is malformed** (`STF`, `IDX`, `CFG`); and **it could not be judged** (`SRC`), which says nothing about the repo. A
row without a code must not change the verdict, or its words say what is asserted.

Beyond the rows, a hostile Hub answers each request with a random one of {} faults: {}. Every read must end at its
deadline, nothing may be raised, and a verdict is that of the true bytes, or unknown. 200 runs are part of the tests;

```console
$ python tests/faults/fuzz.py --runs 2000
```

prints the seeds of runs that go wrong, and exits with 1 if there are any; `--seed N --runs 1` repeats one.
"""
GROUPS = {
    "P": "The way to the bytes",
    "G": "What makes it hard",
    "A": "A hostile repo, mirror or neighbour",
    "X": "Beyond",
}


def faults_text(folder: Path = DOCS.parent / "tests" / "faults") -> str:
    """Return docs/faults.md: the rows of the fault tests, from their marks and docstrings."""
    rows: dict[str, list[tuple[str, ...]]] = {}
    for path in sorted(folder.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            marks = [d for d in getattr(node, "decorator_list", ()) if ast.unparse(d).startswith("fault(")]
            if isinstance(node, ast.FunctionDef) and marks:
                row, what, codes = (ast.literal_eval(arg) for arg in marks[0].args)
                links = [" or ".join(f"[{c}](rules/{c}.md)" for c in one.split("|")) for one in codes.split()]
                does = " ".join((ast.get_docstring(node) or "").split())
                rows.setdefault(row[0], []).append((row, what, does, ", ".join(links) or "-", f"`{node.name}`"))
    tree = ast.parse((folder / "fuzz.py").read_text(encoding="utf-8"))
    found = next(n.value for n in tree.body if isinstance(n, ast.AnnAssign) and ast.unparse(n.target) == "FAULTS")
    names = [ast.literal_eval(key) for key in found.keys]
    out = [FAULTS.format(len(names), ", ".join(names)).rstrip("\n"), ""]
    for letter, title in GROUPS.items():
        out += [f"## {title}", "", *table(("row", "what goes wrong", "what is done", "said", "test"), *rows[letter])]
    return "\n".join(out).rstrip() + "\n"


def pages() -> dict[str, str]:
    """Return every generated file: its path below docs/, and its text."""
    made = {"rules/README.md": index_text()}
    made |= {f"rules/{rule.code}.md": rule_text(rule) for rule in RULES.values()}
    made |= {f"schema/{kind}.schema.json": as_json(json_schema(kind)) for kind in KINDS}
    made["models.md"] = models_text()
    made["engines.md"] = engines_text()
    made["corpus.md"] = corpus_text()
    made["faults.md"] = faults_text()
    return made


def problems(docs: Path = DOCS) -> list[str]:
    """Return what is not as generated: missing, stale or orphaned files."""
    made = pages()
    files = [*(docs / name for name in ALONE), *(p for folder in MADE for p in (docs / folder).rglob("*"))]
    there = {p.relative_to(docs).as_posix(): p for p in files if p.is_file()}
    for name in SHOWING:
        if (path := docs / name).is_file():
            made[name], there[name] = shown_text(path.read_text(encoding="utf-8")), path
    out = [f"{name}: missing" for name in made.keys() - there.keys()]
    out += [f"{name}: orphan" for name in there.keys() - made.keys()]
    out += [f"{n}: stale" for n in made.keys() & there.keys() if there[n].read_text(encoding="utf-8") != made[n]]
    return sorted(out)


def write(docs: Path = DOCS) -> None:
    """Write every generated file, and remove the orphans."""
    for problem in problems(docs):
        path = docs / problem.rpartition(": ")[0]
        if problem.rpartition(": ")[0] in SHOWING:
            path.write_text(shown_text(path.read_text(encoding="utf-8")), encoding="utf-8")
        elif problem.endswith("orphan"):
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(pages()[path.relative_to(docs).as_posix()], encoding="utf-8")


def main() -> int:
    """Write, or with --check only look; returns the exit code."""
    found = problems()
    if sys.argv[1:] == ["--check"]:
        print("\n".join(found) or "docs are current")
        return int(bool(found))
    if sys.argv[1:]:
        print(__doc__)
        return 2
    write()
    print(f"{len(pages())} files, {len(found)} of them new, changed or removed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
