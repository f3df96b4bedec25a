"""Imports go only downwards, nothing heavy is imported before it is needed, and no code in data is ever run."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UP = "rules answers findings dims language compiled contracts courses,profiles library versions,launch strict container"
UP += " torchzip hub ggufs cache,transport remote checkpoint recognise quantised conform tokens tokenizer,wordfiles"
UP += " pair trainers,engines api diff,revise portable adapt rewrite release scaffold render refresh testing plugin,cli"
UP += " __main__"
LEVEL = {name: n for n, layer in enumerate(UP.split()) for name in layer.split(",")}
ONLY = {
    "dims": set(),
    "strict": {"findings"},
    "container": {"findings", "strict"},
    "render": {"answers", "findings", "rules"},
}
HEAVY = {"torch", "numpy", "huggingface_hub", "safetensors", "yaml"}
LAZY = {
    "rewrite": {"numpy"},
    "release": {"yaml"},
    "launch": {"yaml"},
    "cache": {"filelock"},
    "ggufs": {"gguf"},
    "versions": {"packaging"},
    "remote": {"huggingface_hub"},
    "testing": {"pytest", "numpy"},
    "testing.run_vllm": {"torch", "triton", "vllm"},  # runners: scripts for an engine's own interpreter
    "testing.run_sglang": {"torch", "sglang"},
    "testing.run_llamacpp": {"xllamacpp"},
    "plugin": {"pytest"},
}  # beyond the standard library
SOURCE = ROOT / "src" / "draftproof"
RUNNERS = sorted(SOURCE.glob("testing/run_*.py"))  # scripts for an engine's own interpreter, which nothing imports
FILES = {
    ".".join(p.relative_to(SOURCE).with_suffix("").parts): p for p in sorted(SOURCE.rglob("*.py")) if p not in RUNNERS
}
MODULES = {name: ast.parse(p.read_text(encoding="utf-8")) for name, p in FILES.items()}
SHAPE = "import pytest; pytest.main(['-m', 'shape', '-p', 'no:cacheprovider'])"
CHECK = "import draftproof.cli as c; c.main(['check', 'kimi-k2-eagle3'])"


def imported(tree: ast.AST, inside_functions: bool = True) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = [f"draftproof.{a.name}" for a in node.names]
            yield from names if node.module == "draftproof" else [str(node.module)]
        elif inside_functions or not isinstance(node, ast.FunctionDef):
            yield from imported(node, inside_functions)


@pytest.mark.parametrize("name", MODULES)
def test_module_imports_only_lower_layers_and_nothing_heavy(name: str) -> None:
    every = {i.split(".")[0] for i in imported(MODULES[name])} - {"draftproof"} - sys.stdlib_module_names
    package, _, inner = name.partition(".")  # a package is one layer: its modules may import each other
    assert every <= LAZY.get(name, LAZY.get(package, set()))
    assert not HEAVY & {i.split(".")[0] for i in imported(MODULES[name], inside_functions=False)}
    ours = {i.split(".")[1] for i in imported(MODULES[name]) if i.startswith("draftproof.")} - {"__version__"}
    ours -= {package} if inner else set()
    assert name == "__init__" or not {i for i in ours if LEVEL[i] >= LEVEL[package]}
    assert ours <= ONLY.get(package, ours)


@pytest.mark.parametrize("path", RUNNERS, ids=lambda p: p.stem)
def test_runner_knows_nothing_of_the_package_and_nothing_imports_it(path: Path) -> None:
    assert "draftproof" not in {i.split(".")[0] for i in imported(ast.parse(path.read_text(encoding="utf-8")))}
    assert not {i for tree in MODULES.values() for i in imported(tree) if i.endswith(f".{path.stem}")}


@pytest.mark.parametrize("name", MODULES)
def test_module_runs_no_code_from_data(name: str) -> None:
    calls = {ast.unparse(node.func) for node in ast.walk(MODULES[name]) if isinstance(node, ast.Call)}
    assert not {"eval", "exec", "compile", "__import__", "torch.load"} & calls
    assert not {"pickle", "marshal", "shelve"} & set(imported(MODULES[name]))


@pytest.mark.parametrize(("code", "unwanted"), [(SHAPE, HEAVY), (CHECK, HEAVY | {"pytest"})], ids=["shape", "check"])
def test_command_does_not_import(code: str, unwanted: set[str]) -> None:
    words = [sys.executable, "-c", f"{code}; import sys; print('LOADED', *sys.modules)"]
    out = subprocess.run(words, check=False, cwd=ROOT, capture_output=True, text=True).stdout
    loaded = set(out.partition("LOADED")[2].split())
    assert "draftproof.pair" in loaded
    assert not unwanted & loaded


def test_no_family_trainer_or_scheme_is_named_in_code() -> None:
    """A family, target, trainer or scheme costs data only: its name stands in contracts/, in no text of the code."""
    kinds = ("families", "targets", "trainers", "schemes")
    ids = {path.stem for kind in kinds for path in (ROOT / "contracts" / kind).glob("*.toml")}
    plain = {"decoder", "multimodal", "speculators"}  # words of their own
    word = re.compile(rf"\b({'|'.join(sorted(map(re.escape, ids - plain), key=len, reverse=True))})\b", re.I)
    for name in MODULES.keys() - {"cli", "rules", "corpus"}:  # examples, and what codes are about
        tree = MODULES[name]
        owners = [n for n in ast.walk(tree) if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef))]
        docs = {id(node.body[0].value) for node in owners if node.body and isinstance(node.body[0], ast.Expr)}
        texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
                 and id(n) not in docs]  # fmt: skip
        assert not {found[0] for text in texts if (found := word.search(text))}, name


@pytest.mark.parametrize("name", MODULES)
def test_what_is_public_says_what_it_does(name: str) -> None:
    kinds = (ast.FunctionDef, ast.ClassDef)
    classes = [n for n in MODULES[name].body if isinstance(n, ast.ClassDef) and n.name[0] != "_" and n.name != "Sides"]
    owners: list[ast.Module | ast.ClassDef] = [MODULES[name], *classes]
    public = [n for owner in owners for n in owner.body if isinstance(n, kinds) and n.name[0] != "_"]
    assert [n.name for n in public if not ast.get_docstring(n)] == []
