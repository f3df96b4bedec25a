"""Contracts and the library: every mistake of a file at once, each at its line; inheritance; which file counts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest

from draftproof.conform import layout
from draftproof.contracts import Acceptance, Dialect
from draftproof.dims import Absent, Bindings, Known
from draftproof.findings import finding
from draftproof.language import FOLDERS, KINDS, MAX_FOUND
from draftproof.library import Library, shipped_root

ABSENT = Absent("config.json")
Put = Callable[[str, str, str], Library]

PARTS = KINDS["family"].fields["sizes"].fields
KEYS = """
[keys]
special = []
eps = []
dtype = []
quantisation = []
rope = { theta = [], tables = [], partial = [], interleaved = [] }
"""
TARGET = """title = "t"
source = "s"
[sizes]
none = ["hidden", "vocab", "layers", "context"]
[roles]
none = ["embedding", "head", "norm"]
[dims]
n = { target = "n" }
flag = { target = "flag", type = "bool" }
[tensors]
"a.w" = { shape = ["n"] }
"b.w" = { shape = ["n", "n"] }
""" + KEYS  # fmt: skip
NONE = ", ".join(f'"{part}"' for part in PARTS if part not in ("none", "hidden", "layers"))
FAMILY = """title = "t"
source = "s"
[sizes]
none = [NONE]
hidden = "n"
layers = "n"
[roles]
none = ["fusion", "embedding", "map", "mask"]
head = "w"
[dims]
n = { drafter = "n" }
flag = { drafter = "flag", type = "bool" }
[tensors]
w = { shape = ["n"] }
""" + KEYS + "verifier = []\n"  # fmt: skip
FAMILY = FAMILY.replace("NONE", NONE)
PAIR = """title = "t"
drafter = { model = "a/b" }
target = { model = "c/d" }
"""
ENGINE = """title = "t"
version = "1"
"""
ROW = """[[rows]]
id = "r"
key = "k"
when = "n < 2"
outcome = "refuses"
see = "s"
basis = "run"
source = "f"
"""
SCHEME = """title = "t"
source = "s"
methods = ["m"]
[modules]
linear = ["mlp"]
match = "exact"
[values]
bits = { keys = "bits", check = "it > 0" }
odd = { keys = "odd", type = "bool", default = "false" }
[layouts.one]
main = ".q"
axes = ["rows", "words"]
logical = { rows = "rows", inputs = "words * 32 // bits" }
checks = ["inputs > 1"]
[layouts.one.tensors]
".q" = { shape = ["rows", "words"], dtype = "I32" }
".s" = { shape = ["rows"], also = [[]], dtype = "float", when = "odd" }
"""
SMALLEST = {"family": FAMILY, "target": TARGET, "pair": PAIR, "engine": ENGINE + ROW, "model": 'repo = "a/x"\n',
            "acceptance": 'title = "t"\n', "scheme": SCHEME}  # fmt: skip


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Return a writer of contract files, each of which is put below contracts/ of an empty current folder."""
    monkeypatch.chdir(tmp_path)

    def write(kind: str, id: str, text: str) -> Library:
        path = tmp_path / "contracts" / FOLDERS[kind] / f"{id}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'schema = 1\nkind = "{kind}"\nid = "{id}"\n{text}', encoding="utf-8")
        return Library(Path("contracts"))

    return write


def told(library: Library, kind: str, id: str) -> list[str]:
    """Return line, code, subject and observation of each problem of a file."""
    contract, found = library.get(kind, id)
    assert (contract is None) == any(f.level == "error" for f in found)
    return [f"{f.contract.rpartition(':')[2]} {f.code} {f.subject} | {f.observed}" for f in found]


def line_of(text: str, part: str) -> int:
    """Return the line of a part in the file that is written from a text."""
    return 4 + text[: text.index(part)].count("\n")


# --- everything at once, at its line ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SMALLEST)
def test_smallest_contract_is_whole(kind: str, put: Put) -> None:
    put("family", "f", FAMILY)
    assert told(put(kind, "a--x", SMALLEST[kind]), kind, "a--x") == []


@pytest.mark.parametrize("kind", FOLDERS)
def test_shipped_contracts_have_no_problem(kind: str) -> None:
    library = Library()
    assert [(id, found) for id, _, found in library.all(kind) if found] == []
    assert library.files(kind)


def test_five_mistakes_of_a_pair_are_told_at_once(put: Put) -> None:
    text = """titel = "t"
target = { model = "c/d" }
allow = [
  # why
  { code = "TEN402", because = "x" }, { code = "TEM402", because = "x" },

  { code = "TEN402", because = " " }, 5,
]
[[expect_unknown]]
code = "QQQ*"
because = "x"
[drafter]
model = "a/b"
revision = "main"
"""
    assert told(put("pair", "p", text), "pair", "p") == [
        "4 CON103 titel | titel (did you mean 'title'?)",
        "1 CON105 title | nothing",
        "10 CON104 allow[3] | 5 (an integer)",
        "17 CON110 drafter.revision | main",
        "8 CON116 allow[1].code | TEM402 (did you mean 'TEN402'?)",
        "10 CON111 allow[2].because | nothing",
        "13 CON116 expect_unknown[0].code | QQQ*",
    ]


def test_mistakes_of_every_kind_of_a_family_are_told_at_once(put: Put) -> None:
    text = FAMILY.replace(
        "[tensors]\n",
        """m = { drafter = [
  "x",
  "y +",
], pickk = "first" }
o = {}
it = { drafter = "z" }
[tensors]
"v" = { shape = ["n",
  "nn"], dtype = "BF17", when = "n + 1", missing = "TEN999" }
""",
    )
    found = told(put("family", "f", text), "family", "f")
    at = {part: line_of(text, part) for part in ("m = ", '"y +"', "o = ", "it = ", '"nn"', '"v"')}
    assert found == [
        f"{at['m = '] + 3} CON103 dims.m.pickk | pickk (did you mean 'pick'?)",
        f"{at[chr(34) + 'y +' + chr(34)]} CON106 dims.m.drafter[1] | y +",
        f"{at[chr(34) + 'nn' + chr(34)]} CON104 tensors.v.dtype[0] | BF17 (did you mean 'BF16'?)",
        f"{at['o = ']} CON105 dims.o | nothing",
        f"{at['it = ']} CON104 dims.it | it",
        f"{at[chr(34) + 'nn' + chr(34)]} CON107 tensors.v.shape[1] | nn in nn",
        f"{at[chr(34) + 'nn' + chr(34)]} CON106 tensors.v.when | n + 1",
        f"{at[chr(34) + 'nn' + chr(34)]} CON116 tensors.v.missing | TEN999",
    ]


SCHEME_FAULTS = {
    "unknown way to match": ('match = "exact"', 'match = "exakt"',
                             "CON104 modules.match | exakt (did you mean 'exact'?)"),
    "no layouts": (SCHEME[SCHEME.index("[layouts") :], "", "CON105 layouts | nothing"),
    "value of no source": ('keys = "odd", type = "bool", default = "false"', "", "CON105 values.odd | nothing"),
    "check of a number": ('check = "it > 0"', 'check = "it + 1"', "CON106 values.bits.check | it + 1"),
    "main of no tensor": ('main = ".q"', 'main = ".w"', "CON107 layouts.one.main | .w"),
    "unknown name of a shape": ('shape = ["rows"]', 'shape = ["row"]',
                                "CON107 layouts.one.tensors.\".s\".shape | row (did you mean 'rows'?) in row"),
    "unknown name of the logical shape": (
        '"words * 32 // bits"', '"words * 32 // bit"',
        "CON107 layouts.one.logical.inputs | bit (did you mean 'bits'?) in words * 32 // bit",
    ),
    "condition that is a number": ('when = "odd"', 'when = "bits"', "CON106 layouts.one.tensors.\".s\".when | bits"),
    "check that is a number": ('checks = ["inputs > 1"]', 'checks = ["inputs"]',
                               "CON106 layouts.one.checks[0] | inputs"),
    "unknown dtype": ('dtype = "I32"', 'dtype = "I33"',
                      "CON104 layouts.one.tensors.\".q\".dtype[0] | I33"),
    "axis that is no name": ('axes = ["rows", "words"]', 'axes = ["rows", "2"]', "CON104 layouts.one.axes[1] | 2"),
}  # fmt: skip


@pytest.mark.parametrize("fault", SCHEME_FAULTS)
def test_mistake_in_a_scheme_is_told_at_its_line(fault: str, put: Put) -> None:
    old, new, said = SCHEME_FAULTS[fault]
    assert old in SCHEME
    found = told(put("scheme", "m", SCHEME.replace(old, new)), "scheme", "m")
    assert [f.partition(" ")[2] for f in found] == [said]
    line = int(found[0].partition(" ")[0])
    assert line == 1 if fault == "no layouts" else line_of(SCHEME, old) - 6 <= line <= line_of(SCHEME, old)


def test_missing_schema_hides_nothing_but_another_version_does(put: Put) -> None:
    library = put("pair", "p", PAIR.replace("title", "titel"))
    path = library.files("pair")["p"]
    path.write_text(path.read_text().replace("schema = 1", ""))
    assert [t.split()[1] for t in told(Library(Path("contracts")), "pair", "p")] == ["CON109", "CON103", "CON105"]
    path.write_text("schema = 2\n" + path.read_text())
    assert [t.split()[1] for t in told(Library(Path("contracts")), "pair", "p")] == ["CON109"]


# --- what is refused, one change at a time ------------------------------------------------------------------------

F, T, P, E = "family", "target", "pair", "engine"
REFUSED: dict[str, tuple[str, str, str, str]] = {
    # what: (kind, old, new, code subject | observed)
    **{
        f"dim named {word}": (F, "[tensors]", f'{word} = {{ drafter = "z" }}\n[tensors]', f"CON104 dims.{word} |")
        for word in (
            *("it", "i", "true", "false", "count_true", "len", "min", "max", "increasing", "true_at", "not", "lambda"),
        )
    },
    "dim of nothing": (F, "[tensors]", "z = {}\n[tensors]", "CON105 dims.z | nothing"),
    "dim of an empty list": (F, "[tensors]", "z = { drafter = [] }\n[tensors]", "CON105 dims.z | nothing"),
    "dim of texts without type": (
        *(F, "[tensors]", 'z = { texts = { k = ["a"] } }\n[tensors]', "CON104 dims.z | texts, and no type"),
    ),
    "bool default for a number": (
        *(F, "[tensors]", 'z = { default = "n < 2" }\n[tensors]', "CON106 dims.z.default | n < 2"),
    ),
    "true for a number": (F, "[tensors]", "z = { default = true }\n[tensors]", "CON106 dims.z.default | true"),
    "number for a bool": (
        *(F, "[tensors]", 'z = { default = 3, type = "bool" }\n[tensors]', "CON106 dims.z.default | 3"),
    ),
    "length for a bool": (
        *(F, "[tensors]", 'z = { drafter = "len(k)", type = "bool" }\n[tensors]', "CON106 dims.z.drafter[0] | len(k)"),
    ),
    "number of a bool": (F, "[tensors]", 'z = { default = "flag" }\n[tensors]', "CON106 dims.z.default | flag"),
    "circle": (
        *(F, "[tensors]", 'y = { default = "z" }\nz = { default = "y" }\n[tensors]', "CON115 dims.y | y -> z -> y"),
    ),
    "shape that says yes or no": (F, 'shape = ["n"]', 'shape = ["n < 2"]', "CON106 tensors.w.shape[0] | n < 2"),
    "when that says a number": (F, 'shape = ["n"]', 'shape = ["n"], when = "n"', "CON106 tensors.w.when | n"),
    "half a condition": (
        *(F, 'shape = ["n"]', 'shape = ["n"], when = "flag and n + 1"', "CON106 tensors.w.when | flag and n + 1"),
    ),
    "predicate without elements": (
        *(F, 'shape = ["n"]', 'shape = ["n"], when = "increasing(n)"', "CON106 tensors.w.when | increasing(n)"),
    ),
    "for without {i}": (F, 'shape = ["n"]', 'shape = ["n"], for = "i in 0..n"', "CON104 tensors.w | w"),
    "other braces": (F, "[tensors]", '[tensors]\n"{j}".shape = ["n"]', 'CON104 tensors."{j}" | {j}'),
    "check that says a number": (
        *(F, "[roles]", '[config]\nk = { check = "it + 1" }\n[roles]', "CON106 config.k.check | it + 1"),
    ),
    "check of a number alone": (
        *(F, "[roles]", '[config]\nk = { type = "int", check = "it" }\n[roles]', "CON106 config.k.check | it"),
    ),
    "condition on a key": (F, "[roles]", '[config]\nk = { when = "it > 1" }\n[roles]', "CON107 config.k.when | it in"),
    "values of no tensor": (
        *(F, "[roles]", '[values]\nww = ["it > 0"]\n[roles]', "CON107 values.ww | ww"),
    ),
    "values that say a number": (F, "[roles]", '[values]\nw = ["i + it"]\n[roles]', "CON106 values.w[0] | i + it"),
    "size of no dim": (F, 'hidden = "n"', 'hidden = "m"', "CON107 sizes.hidden | m"),
    "role of no tensor": (F, 'head = "w"', 'head = "v"', "CON107 roles.head | v"),
    "part that is not said": (F, '"aux", ', "", "CON105 sizes | nothing for aux"),
    "part said twice": (F, '["fusion"', '["head", "fusion"', "CON104 roles.head | head in none too"),
    "unknown part": (F, '["fusion"', '["fusionn", "fusion"', "CON104 roles.none[0] | fusionn"),
    "keys that are not said": (F, "eps = []\ndtype = []\n", "", "CON105 keys | nothing for eps, dtype"),
    "rope key that is not said": (F, "theta = [], ", "", "CON105 keys.rope.theta | nothing"),
    "target's part that is not said": (T, ', "norm"', "", "CON105 roles | nothing for norm"),
    "aux without keys": (
        *(F, "[roles]", "[aux]\nkeys = []\nconventions = {}\n[roles]", "CON104 aux.keys | none"),
    ),
    "summary of an unknown name": (F, "[sizes]", 'summary = ["x {m}"]\n[sizes]', "CON107 summary[0] | m in m"),
    "summary that is no expression": (F, "[sizes]", 'summary = ["x {n +}"]\n[sizes]', "CON106 summary[0] | n +"),
    "without a parent": (F, "[sizes]", 'without = ["w"]\n[sizes]', "CON108 without | no extends"),
    "unknown parent": (F, "[sizes]", 'extends = "eagle33"\n[sizes]', "CON108 extends | eagle33 (did you"),
    "itself as parent": (F, "[sizes]", 'extends = "x"\n[sizes]', "CON108 extends | x"),
    "parent that extends": (
        *(F, "[sizes]", 'extends = "eagle3-mla"\n[sizes]', "CON108 extends | eagle3-mla itself extends eagle3"),
    ),
    "one prefix for two": (
        *(T, KEYS, KEYS + '[dialects]\nd = { rename = { "x." = "a.", "y." = "a." } }\n', "CON104 dialects.d | 'a.'"),
    ),
    "strip and rename of one prefix": (
        *(T, KEYS, KEYS + '[dialects]\nd = { strip = "x.", rename = { "x." = "a." } }\n', "CON104 dialects.d | 'x.'"),
    ),
    "strip and rename to nothing": (
        *(T, KEYS, KEYS + '[dialects]\nd = { strip = "x.", rename = { "y." = "" } }\n', "CON104 dialects.d | ''"),
    ),
    "name that reads back as another": (
        *(T, KEYS, KEYS + '[dialects]\nd = { rename = { "b" = "a", "b.w" = "c" } }\n'),
        "CON104 dialects.d | a.w is written b.w, which is read as c",
    ),
    "fact of the wrong type": (
        *(P, 'title = "t"', 'title = "t"\nfacts = { trained_context = { value = "4096", source = "s" } }'),
        "CON104 facts.trained_context.value | 4096 (text)",
    ),
    "unknown family": (P, 'title = "t"', 'title = "t"\nfamily = "eagle4"', "CON113 family | eagle4 (did"),
    "branch": (P, 'model = "a/b"', 'model = "a/b", revision = "main"', "CON110 drafter.revision | main"),
    "row with an unknown name": (
        *(E, "n < 2", "contextt < 2", "CON107 rows[0].when | contextt (did you mean 'context'?) in contextt < 2"),
    ),
    "row that says a number": (E, "n < 2", "context - 2", "CON106 rows[0].when | context - 2"),
    "row of an id twice": (E, ROW, ROW + ROW, "CON104 rows[1].id | r, as rows[0]"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_mistake_is_told_alone(case: str, put: Put) -> None:
    kind, old, new, expected = REFUSED[case]
    put("family", "f", FAMILY)
    assert SMALLEST[kind].count(old) == 1
    (found,) = told(put(kind, "x", SMALLEST[kind].replace(old, new)), kind, "x")
    assert found.partition(" ")[2].startswith(expected), found


ACCEPTED = {
    "bool for a bool": 'z = { default = "n < 2 and flag", type = "bool" }',
    "check by a bool alone": '[config]\nk = { type = "bool", check = "it" }',
    "check of a list": '[config]\nk = { check = "increasing(it) and 0 <= i" }',
    "values": '[values]\nw = ["increasing(i + it)", "count_true == n", "true_at(i + w)", "flag"]',
    "condition by a bool dim": '[config]\nk = { when = "flag and not n < 2" }',
    "index of a row": '[tensors."r.{i}"]\nfor = "i in 0..n"\nshape = ["n + i"]\nwhen = "i < 2"',
    "defaults, fifty in a chain": "\n".join(f'a{n} = {{ default = "a{n + 1}" }}' for n in range(49))
    + "\na49.default = 1",
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_right_use_is_accepted(case: str, put: Put) -> None:
    text = FAMILY.replace("[tensors]\n", ACCEPTED[case] + "\n[tensors]\n")
    if case.startswith("index"):
        text = FAMILY + ACCEPTED[case]
    assert told(put("family", "f", text), "family", "f") == []


def test_misspelt_dim_does_not_hide_behind_a_broken_table(put: Put) -> None:
    text = FAMILY.replace("[dims]", "[dimms]")
    assert told(put("family", "f", text), "family", "f") == [
        f"{line_of(text, '[dimms]')} CON103 dimms | dimms (did you mean 'dims'?)"
    ]


def test_contract_is_bounded(put: Put) -> None:
    many = "".join(f'd{n} = {{ drafter = "k" }}\n' for n in range(400))
    found = told(put("family", "f", FAMILY.replace("[tensors]\n", many + "[tensors]\n")), "family", "f")
    assert found == [f"{line_of(FAMILY, '[dims]')} CON104 dims | 402"]
    many = "".join(f't{n} = {{ shape = ["n"] }}\n' for n in range(2000))
    found = told(put("family", "g", FAMILY.replace("[tensors]\n", "[tensors]\n" + many)), "family", "g")
    assert found == [f"{line_of(FAMILY, '[tensors]')} CON104 tensors | 2001"]


def test_chain_of_defaults_is_bounded(put: Put) -> None:
    chain = "".join(f'a{n} = {{ default = "a{n + 1} + 1" }}\n' for n in range(40)) + 'a40 = { drafter = "k" }\n'
    (found,) = told(put("family", "f", FAMILY.replace("[tensors]\n", chain + "[tensors]\n")), "family", "f")
    assert "CON115 dims.a0.default | 120 nested operations" in found


def test_many_mistakes_are_cut_and_counted(put: Put) -> None:
    many = "".join(f'd{n} = {{ drafterr = "k" }}\n' for n in range(300))
    _, found = put("family", "f", FAMILY.replace("[tensors]\n", many + "[tensors]\n")).get("family", "f")
    assert len(found) == MAX_FOUND + 1
    assert found[-1].message == "and 500 more findings"


# --- inheritance --------------------------------------------------------------------------------------------------

CHILD = 'title = "t"\nsource = "s"\nextends = "p"\n'


def test_problem_of_a_parents_rule_points_at_the_parents_file_and_line(put: Put) -> None:
    parent = (
        TARGET.replace('"norm"]', ']\nnorm = "a.w"')
        .replace('"hidden", ', "")
        .replace("[roles]", 'hidden = "n"\n[roles]')
    )
    put("target", "p", parent)
    library = put("target", "c", CHILD + 'without = ["a.w"]\n[tensors]\nd = { shape = ["m"] }\n')
    assert library.get("target", "p")[1] == ()
    _, found = library.get("target", "c")
    assert [(f.contract, f.code, f.subject) for f in found] == [
        ("contracts/targets/c.toml:9", "CON107", "tensors.d.shape[0]"),
        (f"contracts/targets/p.toml:{line_of(parent, 'norm = ')}", "CON107", "roles.norm"),
    ]


@pytest.mark.parametrize("parent", ["nobody", "kimi-k25"])
def test_names_are_not_judged_where_the_parent_is_not_known(parent: str, put: Put) -> None:
    text = CHILD.replace('"p"', f'"{parent}"') + "[dims]\nm = { target = 'm' }\n[tensors]\nd = { shape = ['hidden'] }\n"
    assert [t.split()[:2] for t in told(put("target", "c", text), "target", "c")] == [["6", "CON108"]]


def test_rules_keep_the_line_of_the_file_that_wrote_them(put: Put) -> None:
    put("target", "p", TARGET)
    library = put("target", "c", CHILD + '\n[tensors]\n"b.w" = { shape = ["n"] }\n[dims]\nm = { target = "m" }\n')
    contract, found = library.get("target", "c")
    assert found == ()
    lines = {name: rule.line for table in (contract.dims, contract.tensors) for name, rule in table.items()}
    assert lines == {
        "n": f"contracts/targets/p.toml:{line_of(TARGET, 'n = {')}",
        "flag": f"contracts/targets/p.toml:{line_of(TARGET, 'flag = ')}",
        "m": "contracts/targets/c.toml:11",
        "a.w": f"contracts/targets/p.toml:{line_of(TARGET, chr(34) + 'a.w')}",
        "b.w": "contracts/targets/c.toml:9",
    }


def test_broken_parent_is_told_with_the_childs_own_mistakes(put: Put) -> None:
    put("target", "p", TARGET.replace("source", "sauce"))
    _, found = put("target", "c", CHILD + "titel = 1\n").get("target", "c")
    assert [(f.contract.split("/")[2], f.code, f.subject) for f in found] == [
        ("c.toml:7", "CON103", "titel"),
        ("p.toml:5", "CON103", "sauce"),
        ("p.toml:1", "CON105", "source"),
    ]


def test_dialects_and_detect_replace_the_parents_and_other_tables_merge(put: Put) -> None:
    detect = '[detect]\nany_model_type = ["p"]\nany_config = ["k"]\n[dialects]\nbare = {}\n'
    put("target", "p", TARGET + detect)
    library = put("target", "c", CHILD + 'detect.any_config = ["j"]\ndialects.d.strip = "x."\nkeys.eps = ["e"]\n')
    contract, found = library.get("target", "c")
    assert found == ()
    assert contract.detect == {"any_config": ("j",)}
    assert [d.name for d in contract.dialects] == ["d"]
    assert contract.keys == library.get("target", "p")[0].keys | {"eps": ("e",)}


def test_child_says_which_parts_there_are_and_are_not(put: Put) -> None:
    put("family", "p", FAMILY)
    library = put("family", "c", CHILD + 'sizes.none = ["hidden"]\nsizes.aux = "n"\nroles.none = ["head"]\n')
    contract, found = library.get("family", "c")
    assert found == ()
    assert (dict(contract.sizes), dict(contract.roles)) == ({"layers": "n", "aux": "n"}, {})


def test_kimi_k25_accepts_no_bare_names() -> None:
    contract = Library().get("target", "kimi-k25")[0]
    read = {d.name: d.decode("language_model.model.norm.weight") for d in contract.dialects}
    assert [name for name, canonical in read.items() if canonical in contract.tensors] == ["language-model"]
    assert [d.decode("model.norm.weight") for d in contract.dialects] == [None, None]


def test_mla_drafter_has_its_own_output_projection_and_the_published_count() -> None:
    """nvidia/Kimi-K2.6-Eagle3 publishes 1,841,199,104 parameters; it ships no embedding."""
    contract = Library().get("family", "eagle3-mla")[0]
    config: dict[str, Any] = {
        "hidden_size": 7168, "num_attention_heads": 64, "intermediate_size": 18432, "num_hidden_layers": 1,
        "draft_vocab_size": 163840, "vocab_size": 163840, "max_position_embeddings": 262144, "q_lora_rank": 1536,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    }  # fmt: skip
    dims = Bindings(contract.dims, {"drafter": lambda k: Known(config[k], k) if k in config else ABSENT})
    shapes = {name: shape for name, (_, shape) in layout(contract, dims).items()}
    assert shapes["layers.0.self_attn.o_proj.weight"] == (7168, 64 * 128)
    assert "lm_head.weight" not in shapes
    assert 163840 * 7168 + sum(map(prod, shapes.values())) == 1_841_199_104


# --- dialects -----------------------------------------------------------------------------------------------------


def test_renames_apply_longest_first_whatever_their_order() -> None:
    rows = [("t.mid.", "layers.0."), ("t.", "")]
    for rename in (dict(rows), dict(reversed(rows))):
        dialect = Dialect("d", rename)
        assert [dialect.encode(n) for n in ("layers.0.w", "fc.w")] == ["t.mid.w", "t.fc.w"]
        assert [dialect.decode(n) for n in ("t.mid.w", "t.fc.w", "fc.w", "t.layers.0.w")] == [
            "layers.0.w", "fc.w", None, None,
        ]  # fmt: skip


@pytest.mark.parametrize("kind", ["family", "target"])
def test_every_shipped_dialect_leads_there_and_back(kind: str) -> None:
    for id, contract, _ in Library().all(kind):
        names = [name.replace("{i}", "1") for name in contract.tensors]
        for dialect in contract.dialects:
            disks = [dialect.encode(name) for name in names]
            assert len(set(disks)) == len(set(names)), id
            assert [dialect.decode(disk) for disk in disks] == names


# --- acceptances --------------------------------------------------------------------------------------------------


def test_acceptance_covers_a_code_or_band_and_the_subjects_it_names() -> None:
    assert Acceptance("TEN4*", "b", "").covers(finding("TEN403", "w"))
    assert not Acceptance("TEN403", "b", "").covers(finding("TEN404", ""))
    narrow = Acceptance("TEN403", "b", "", subject="layers.*.weight")
    assert narrow.covers(finding("TEN403", "layers.0.q.weight"))
    assert not narrow.covers(finding("TEN403", "fc.weight"))
    assert not narrow.covers(finding("TEN403", ""))


def test_pair_reads_the_subject_and_line_of_an_acceptance(put: Put) -> None:
    text = PAIR + 'allow = [\n  { code = "TEN403", because = "b", subject = "fc*" },\n]\n'
    pair, found = put("pair", "p", text).get("pair", "p")
    assert found == ()
    assert pair.allow == (Acceptance("TEN403", "b", "contracts/pairs/p.toml:8", "fc*"),)


# --- the library --------------------------------------------------------------------------------------------------


def test_engine_names_are_those_of_every_family_and_only_those_needed_are_read(put: Put) -> None:
    put("family", "f", FAMILY.replace("flag", "only_here"))
    library = put("engine", "e", ENGINE + ROW.replace("n < 2", "only_here and q_rank < 3"))
    assert told(library, "engine", "e") == []
    library = put("engine", "e", ENGINE + ROW.replace("n < 2", "context < 3"))
    library.get("family", "eagle3")
    assert told(library, "engine", "e") == []
    assert [path.stem for kind, path in library._parsed if kind == "family"] == ["eagle3"]


def test_same_id_in_two_folders_is_told_and_the_first_counts(put: Put, tmp_path: Path) -> None:
    library = put("target", "llama", TARGET)
    contract, found = library.get("target", "llama")
    assert contract.title == "t"
    both = f"{tmp_path}/contracts/targets/llama.toml and {shipped_root()}/targets/llama.toml"
    assert [(f.code, f.level, f.observed) for f in found] == [
        ("CON114", "warning", f"{both}, which differ; the first is used")
    ]
    assert library.broken("target") == list(found)
    assert library.broken("pair") == []


def test_same_file_in_two_folders_is_no_problem(put: Put) -> None:
    library = put("target", "x", TARGET)
    shutil.copy(shipped_root() / "targets" / "llama.toml", library.files("target")["x"].parent)
    assert Library(Path("contracts")).get("target", "llama")[1] == ()


def test_same_folder_twice_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shipped_root().parent)
    assert Library(Path(shipped_root().name), shipped_root()).roots == (shipped_root(),)


@pytest.mark.parametrize("what", ["nothing", "file", "file for folder"])
def test_folder_that_cannot_be_read_is_told(what: str, tmp_path: Path) -> None:
    root = tmp_path / "own"
    if what == "file":
        root.write_text("")
    elif what == "file for folder":
        root.mkdir()
        (root / "pairs").write_text("")
    library = Library(root)
    assert "kimi-k2-eagle3" in library.files("pair")
    (found,) = library.broken()
    assert (found.code, found.subject) == ("CON101", str(root / "pairs" if what == "file for folder" else root))


def test_broken_file_is_remembered_once_it_was_read(put: Put) -> None:
    library = put("target", "x", TARGET.replace("title", "titel"))
    assert library.broken() == []
    library.all("target")
    assert [f.code for f in library.broken("target")] == ["CON103", "CON105"]
    assert library.broken("family") == []


def test_hidden_files_are_no_contracts(put: Put) -> None:
    folder = put("target", "x", TARGET).files("target")["x"].parent
    (folder / ".#y.toml").symlink_to("nowhere")
    assert ".#y" not in Library(Path("contracts")).files("target")


def test_pipe_among_the_contracts_is_told_and_never_waited_for(put: Put, tmp_path: Path) -> None:
    library = put("target", "x", TARGET)
    os.mkfifo(library.files("target")["x"].parent / "pipe.toml")
    library = Library(Path("contracts"))
    assert "pipe" in library.mentioning("target", ["nothing"])
    assert told(library, "target", "pipe") == ["1 CON101 (file) | not a plain file"]


def test_words_are_found_in_quotes_of_both_kinds(put: Put) -> None:
    put("target", "x", TARGET + "detect.any_model_type = ['one']\n")
    library = put("target", "y", TARGET + 'detect.any_model_type = ["one"]\n')
    assert library.mentioning("target", ["one"]) == ["x", "y"]
    assert library.mentioning("target", ["on", "\ud800"]) == []


def test_label_can_be_clicked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    label = Library().label
    assert label(shipped_root() / "pairs" / "x.toml") == "contracts/pairs/x.toml"
    assert label(Path("own") / "pairs" / "x.toml") == "own/pairs/x.toml"
    assert label(tmp_path / "x.toml") == "x.toml"
    assert label(tmp_path.parent / "x.toml") == str(tmp_path.parent / "x.toml")


def test_model_file_speaks_of_its_own_repo_only(put: Put) -> None:
    library = put("model", "a--b--c", 'repo = "a--b/c"\n')
    assert library.model("A--B/c")[0].repo == "a--b/c"
    assert library.model("a/b--c") == (None, ())


def test_model_file_is_named_after_its_repo(put: Put) -> None:
    assert told(put("model", "a--b", 'repo = "a/c"\n'), "model", "a--b") == ["4 CON104 repo | a/c"]


def test_file_name_is_an_id(put: Put) -> None:
    assert told(put("pair", "A b", PAIR), "pair", "A b") == ["3 CON104 id | A b"]
