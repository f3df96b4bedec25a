"""The generated docs are current, and the JSON Schemas refuse what the reader refuses, where a schema can say it."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from draftproof.language import FOLDERS, KINDS
from draftproof.library import Library, load
from draftproof.rules import BANDS, RULES

DOCS = Path(__file__).parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("generate_docs", DOCS / "generate.py")
assert SPEC
assert SPEC.loader
generate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(generate)

FILES = [(kind, path) for kind in FOLDERS for path in Library().files(kind).values()]

# the smallest contract of each kind, and edits that the reader refuses with a code and the schema refuses too
KEYS = (
    "[keys]\nspecial = []\neps = []\ndtype = []\nquantisation = []\n{verifier}"
    "rope = {{ theta = [], tables = [], partial = [], interleaved = [] }}\n"
)
NONE = {
    kind: {table: sorted(set(KINDS[kind].fields[table].fields) - {"none"}) for table in ("sizes", "roles")}
    for kind in ("family", "target")
}
EMPTY = {
    kind: "".join(f"[{table}]\nnone = {json.dumps(parts)}\n" for table, parts in NONE[kind].items())
    + KEYS.format(verifier="verifier = []\n" if kind == "family" else "")
    for kind in NONE
}
CODES = "\n".join(f'{kind} = "VLLM601"' for kind in KINDS["profile"].fields["codes"].fields)
SMALLEST = {
    "profile": 'title = "t"\nversions = [{ is = "1.0" }]\nmethods = [{ is = "m" }]\nrows = []\n'
    f"[registry]\n[codes]\n{CODES}\n",
    "class": 'title = "t"\nsource = "s"\nunknown = "dropped"\n[dims]\nn = "drafter.n"\n[params]\n',
    "pair": 'title = "t"\ndrafter = { model = "a/b" }\ntarget = { model = "c/d" }\n',
    "family": 'title = "t"\nsource = "s"\n[dims]\nn = { drafter = "n" }\n[tensors]\n"w" = { shape = ["n"] }\n'
    + EMPTY["family"],
    "target": 'title = "t"\nsource = "s"\n[dims]\nn = { target = "n" }\n[config]\nn = { type = "int" }\n'
    + EMPTY["target"],
    "acceptance": 'title = "t"\nprovenance = "partial"\nallow = [{ code = "TEN401", because = "y" }]\n',
    "scheme": 'title = "t"\nsource = "s"\nmethods = ["m"]\n[modules]\nlinear = []\n[layouts.one]\nmain = ".q"\n'
    'axes = ["a"]\n[layouts.one.tensors]\n".q" = { shape = ["a"] }\n',
    "model": 'repo = "a/b"\n[trained_on]\nvalue = "c/d"\nsource = "card"\n',
    "engine": 'title = "t"\nversion = "1"\n[[rows]]\nid = "r"\nkey = "k"\nwhen = "context < 2"\n'
    'outcome = "refuses"\nsee = "s"\nbasis = "run"\nsource = "f"\n',
    "release": 'title = "t"\nsource = "s"\n',
    "configs": 'title = "t"\nversion = "1"\nsource = "s"\n[types.t]\nk = ["int", 1]\n',
    "format": 'title = "t"\nsource = "s"\nsuffix = ".x"\n[keys]\nhidden_size = { from = ["w"] }\n'
    "[architectures]\nm = {}\n",
    "launch": 'title = "t"\nversion = "1"\nsource = "s"\ncommands = [{ words = ["w"] }]\n[flags]\nmodel = {}\n',
    "trainer": 'title = "t"\nversion = "1"\nsource = "s"\n'
    + "".join(
        f'{table}\n{keys}see = "s"\nbasis = "read"\nsource = "f"\n'
        for table, keys in {
            "[start]": 'takes = "nothing"\n',
            "[map]": 'otherwise = "kept"\n',
            "[[layouts]]": 'family = "eagle3"\ndialect = "bare"\narchitectures = ["A"]\n',
            "[[captures]]\n[[captures.rules]]": "offset = 1\n",
        }.items()
    ),
}
REFUSED = {
    "unknown key": ("pair", 'title = "t"', 'title = "t"\ntitel = "t"', "CON103"),
    "unknown key of a table": ("pair", 'model = "a/b"', 'model = "a/b", commit = "x"', "CON103"),
    "unknown key of a tensor": ("family", 'shape = ["n"]', 'shape = ["n"], shap = ["n"]', "CON103"),
    "name of a dim": ("family", "n = { drafter", '"N!" = { drafter', "CON103"),
    "missing key": ("pair", 'target = { model = "c/d" }', "", "CON105"),
    "missing key of a table": ("model", 'source = "card"', "", "CON105"),
    "missing reason": ("pair", 'title = "t"', 'title = "t"\nallow = [{ code = "TEN401" }]', "CON105"),
    "number for text": ("pair", 'title = "t"', "title = 1", "CON104"),
    "text for a table": ("pair", 'drafter = { model = "a/b" }', 'drafter = "a/b"', "CON104"),
    "text for a list": ("family", 'shape = ["n"]', 'shape = "n"', "CON104"),
    "no such fate of a map": ("trainer", '"kept"', '"lost"', "CON104"),
    "text for an offset": ("trainer", "offset = 1", 'offset = "1"', "CON104"),
    "no architecture": ("trainer", '["A"]', "[]", "CON104"),
    "no rule of layers": ("trainer", "[[captures.rules]]", "[[captures.rule]]", "CON103"),
    "not a choice": ("engine", '"refuses"', '"explodes"', "CON104"),
    "not a repo": ("model", 'repo = "a/b"', 'repo = "a b"', "CON104"),
    "not a code": ("pair", 'title = "t"', 'title = "t"\nallow = [{ code = "x", because = "y" }]', "CON104"),
    "not a presence": ("family", 'shape = ["n"]', 'shape = ["n"], presence = "maybe"', "CON104"),
    "not a JSON type": ("target", 'type = "int"', 'type = "number"', "CON104"),
    "another schema": ("pair", "schema = 1", "schema = 2", "CON109"),
    "another kind": ("pair", 'kind = "pair"', 'kind = "family"', "CON104"),
    "not an id": ("pair", 'id = "a--b"', 'id = "A--b"', "CON104"),
}


def schema(kind: str) -> Draft202012Validator:
    rules = json.loads((DOCS / "schema" / f"{kind}.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(rules)
    return Draft202012Validator(rules)


def judged(kind: str, text: str, folder: Path) -> tuple[list[str], list[Any]]:
    """Return the codes of the reader, and the errors of the schema."""
    path = folder / "a--b.toml"
    path.write_text(text, encoding="utf-8")
    _, found = load(path, kind, Library())
    return [f.code for f in found], list(schema(kind).iter_errors(tomllib.loads(text)))


def smallest(kind: str) -> str:
    return f'schema = 1\nkind = "{kind}"\nid = "a--b"\n{SMALLEST[kind]}'


def test_generated_docs_are_current() -> None:
    assert generate.problems() == [], "run: python docs/generate.py"


def test_stale_missing_and_orphaned_files_are_named_and_mended(tmp_path: Path) -> None:
    generate.write(tmp_path)
    assert generate.problems(tmp_path) == []
    (tmp_path / "rules" / "TEN401.md").write_text("old")
    (tmp_path / "rules" / "TEN000.md").write_text("gone")
    (tmp_path / "schema" / "pair.schema.json").unlink()
    named = ["rules/TEN000.md: orphan", "rules/TEN401.md: stale", "schema/pair.schema.json: missing"]
    assert generate.problems(tmp_path) == named
    generate.write(tmp_path)
    assert generate.problems(tmp_path) == []


def test_output_in_a_guide_is_held_to_what_the_command_prints(tmp_path: Path) -> None:
    generate.write(tmp_path)
    guide = tmp_path / "review.md"
    guide.write_text("# A guide\n\n<!-- draftproof explain TEN403 -->\n```text\nold\n```\n\nmore\n")
    assert generate.problems(tmp_path) == ["review.md: stale"]
    generate.write(tmp_path)
    assert generate.problems(tmp_path) == []
    assert "# TEN403 " in guide.read_text()
    assert guide.read_text().endswith("```\n\nmore\n")


def test_index_lists_every_rule_once_in_a_band() -> None:
    lines = generate.index_text().splitlines()
    assert [sum(f"| [{code}]({code}.md) |" in line for line in lines) for code in RULES] == [1] * len(RULES)
    assert all(sum(code.startswith(prefix) for prefix in BANDS) == 1 for code in RULES)


@pytest.mark.parametrize(("kind", "path"), FILES, ids=[f"{kind}-{path.stem}" for kind, path in FILES])
def test_shipped_contract_validates_against_its_schema(kind: str, path: Path) -> None:
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    assert [e.message for e in schema(kind).iter_errors(data)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_smallest_contract_is_accepted_by_reader_and_schema(kind: str, tmp_path: Path) -> None:
    assert judged(kind, smallest(kind), tmp_path) == ([], [])


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_contract_is_refused_by_reader_and_schema(case: str, tmp_path: Path) -> None:
    kind, old, new, code = REFUSED[case]
    text = smallest(kind)
    assert old in text
    codes, errors = judged(kind, text.replace(old, new, 1), tmp_path)
    assert code in codes
    assert errors
