"""The built wheel works on its own, in a fresh environment and from an empty folder.

The wheel is installed alone, with no index asked. What it depends on (pytest and its kin) comes from the environment
that runs these tests, through one .pth line: `--system-site-packages` would show the base Python's packages, not that
environment's. A folder that a .pth names is only searched, its own .pth files are not read, so an editable draftproof
there stays out of sight, and the fresh environment's own draftproof is found first: a test asserts it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from draftproof.language import FOLDERS
from draftproof.library import Library

ROOT = Path(__file__).parents[2]
FOUNDING = "AQ-MedAI/Kimi-K2-Instruct-eagle3"
TARGET = "moonshotai/Kimi-K2.5"


def run(*words: str | Path, folder: Path, code: int = 0) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHONPATH", "PYTEST_"))}
    done = subprocess.run(
        list(map(str, words)), check=False, cwd=folder, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def build(out: Path, *more: str) -> Path:
    run(sys.executable, "-m", "build", "--no-isolation", *more, "--outdir", out, ROOT, folder=out.parent)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist, and the wheel from it."""
    return build(tmp_path_factory.mktemp("build") / "dist")


@pytest.fixture(scope="module")
def bin(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel in a fresh environment; returns the folder of its programs."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder.parent)
    bin = folder / ("Scripts" if os.name == "nt" else "bin")
    pip = (sys.executable, "-m", "pip", "--python", bin / "python", "install", "--no-deps", "--no-index")
    run(*pip, wheel, folder=folder.parent)
    site = run(bin / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder).strip()
    kin = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    Path(site, "kin.pth").write_text("\n".join(kin) + "\n", encoding="utf-8")
    return bin


def names(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


def test_wheel_holds_the_package_every_contract_file_and_nothing_else(wheel: Path) -> None:
    inside = names(wheel)
    source = ROOT / "contracts"
    contracts = {p.relative_to(source).as_posix(): p.read_bytes() for p in source.rglob("*") if p.is_file()}
    shipped = {n.removeprefix("draftproof/shipped/"): b for n, b in inside.items() if "/shipped/" in n}
    assert shipped == contracts
    code = ROOT / "src" / "draftproof"
    files = (p.relative_to(code) for p in code.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    modules = {f"draftproof/{p.as_posix()}" for p in files}
    assert "draftproof/testing/corpus.toml" in modules
    kept = {f"draftproof/compiled/{FOLDERS[kind]}/{id}.json" for kind in FOLDERS for id in Library().files(kind)}
    assert {n for n in inside if "/compiled/" in n} == kept
    tables = {f"draftproof/testing/tables/{p.name}": p.read_bytes() for p in (ROOT / "tests/truth/tables").iterdir()}
    assert {n: b for n, b in inside.items() if "/tables/" in n} == tables
    rest = {n for n in inside if not any(part in n for part in ("/shipped/", "/compiled/", "/tables/", ".dist-info/"))}
    assert rest == modules


def test_wheel_from_the_sdist_is_the_wheel_from_the_tree(wheel: Path, tmp_path: Path) -> None:
    assert names(wheel) == names(build(tmp_path / "dist", "--wheel"))
    with tarfile.open(next(wheel.parent.glob("*.tar.gz"))) as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "hatch_build.py", "LICENSE", "conftest.py", "tests/test_shape.py"} <= inside


def test_installed_package_is_the_wheels_own(bin: Path, tmp_path: Path) -> None:
    code = "import draftproof.library as c; print(c.shipped_root())"
    root = Path(run(bin / "python", "-c", code, folder=tmp_path).strip())
    assert root.parts[-2:] == ("draftproof", "shipped")
    assert bin.parent in root.parents


def test_compiled_forms_of_the_wheel_are_believed(bin: Path, tmp_path: Path) -> None:
    code = "from draftproof.language import FOLDERS; from draftproof.library import Library; a = Library()"
    code += "; print(all(a.get(k, i)[0] and a.proven(k, p) for k in FOLDERS for i, p in a.files(k).items()))"
    assert run(bin / "python", "-c", code, folder=tmp_path) == "True\n"


def test_installed_package_has_the_tables_of_what_engines_did(bin: Path, tmp_path: Path) -> None:
    code = "from draftproof.testing import truth; print(*(one.name for one in truth.tables()))"
    there = sorted(p.stem for p in (ROOT / "tests" / "truth" / "tables").glob("*.json"))
    assert run(bin / "python", "-c", code, folder=tmp_path).split() == there


def test_check_of_a_shipped_pair_cannot_be_judged_without_headers(bin: Path, tmp_path: Path) -> None:
    out = run(bin / "draftproof", "check", "kimi-k2-eagle3", folder=tmp_path, code=4)
    assert out.startswith("kimi-k2-eagle3: could not be judged")


def test_adapt_answers_the_founding_case(bin: Path, tmp_path: Path) -> None:
    out = run(bin / "draftproof", "adapt", FOUNDING, "--to", TARGET, folder=tmp_path)
    assert out.splitlines()[2].startswith("after these changes (max_position_embeddings)")
    assert list(tmp_path.iterdir()) == []


def test_corpus_of_the_wheel_is_caught_whole(bin: Path, tmp_path: Path) -> None:
    out = run(bin / "python", "-m", "draftproof.testing.corpus", folder=tmp_path)
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line}
    assert rows["all"] == ["111", "81", "81", "0", "0"]
    assert list(tmp_path.iterdir()) == []


def test_pytest_checks_a_pair_with_no_file(bin: Path, tmp_path: Path) -> None:
    again = ("pytest", "-m", "shape", f"--drafter={FOUNDING}", f"--target={TARGET}")
    out = run(bin / "python", "-m", *again, folder=tmp_path, code=1)
    assert "PAIR403 context: " in out
    assert "1 failed, 1 skipped" in out
    assert f"next: {shlex.join(again)}" in out
