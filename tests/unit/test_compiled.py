"""The compiled form of a contract file says what the file says, and is believed only of the bytes it was made from."""

from __future__ import annotations

import ast
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from draftproof import library
from draftproof.dims import Expr
from draftproof.findings import Finding
from draftproof.language import FOLDERS
from draftproof.library import Library
from draftproof.profiles import Record, Rows

ROOT = Path(__file__).parents[2]
FILES = [(kind, path.stem) for kind in FOLDERS for path in sorted((ROOT / "contracts" / FOLDERS[kind]).glob("*.toml"))]
PLAIN = Library(ROOT / "contracts", shipped=False)  # of the source tree
NAMES = [f"{kind}-{id}" for kind, id in FILES]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder as the package has it when it is installed."""
    folder = tmp_path_factory.mktemp("package")
    for part in (
        "engines",
        "families",
        "launches",
        "targets",
        "pairs",
        "models",
        "schemes",
        "trainers",
        "acceptances",
        "releases",
        "formats",
    ):
        shutil.copytree(ROOT / "contracts" / part, folder / "shipped" / part)
    library.compile_all(folder / "shipped", folder / "compiled")
    return folder


@pytest.fixture
def package(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let draftproof be installed there, in a copy that may be edited."""
    shutil.copytree(made, tmp_path / "package")
    monkeypatch.setattr(library, "_INSIDE", tmp_path / "package" / "shipped")
    return tmp_path / "package"


def told(value: Any) -> Any:
    """Return all that a record says: also where each row stands, and how its expressions were understood."""
    if isinstance(value, Expr):
        parts = [part.text for part in value.parts]
        return value.text, value.names, ast.dump(value.tree), value.code, parts
    if isinstance(value, Rows):
        heads = sorted((head for group in value.groups for head in group.heads()), key=lambda head: head.n)
        seen = [(*head[:5], told(head.when)) for head in heads]
        assert [head[0] for head in seen] == list(range(len(value)))
        return seen, list(value.ids), [told(row) for row in value]
    if isinstance(value, Record):
        return type(value).__name__, told(vars(value))
    if hasattr(value, "__dataclass_fields__"):
        return type(value).__name__, told({name: getattr(value, name) for name in value.__dataclass_fields__})
    if isinstance(value, tuple):
        return type(value), [told(one) for one in value]
    if isinstance(value, list):
        return [told(one) for one in value]
    if isinstance(value, Mapping):
        return [(key, told(one)) for key, one in value.items()]
    return value() if callable(value) else (type(value), value)


def read(kind: str, id: str) -> tuple[Any, tuple[Finding, ...], bool]:
    """Return a shipped contract, what is wrong with it, and whether its compiled form was believed."""
    found = Library()
    return *found.get(kind, id), found.proven(kind, found.files(kind)[id])


def edit(package: Path, kind: str, id: str, old: str, new: str) -> None:
    path = package / "shipped" / FOLDERS[kind] / f"{id}.toml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(("kind", "id"), FILES, ids=NAMES)
def test_compiled_form_gives_the_same_record_and_no_toml_is_read(
    kind: str, id: str, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as nowhere:  # draftproof may be installed, with forms of its own
        nowhere.setattr(library, "_INSIDE", made / "none" / "shipped")
        plain, found = PLAIN.get(kind, id)
    assert found == ()
    assert not PLAIN.proven(kind, PLAIN.files(kind)[id])
    expected = told(plain)
    monkeypatch.setattr(library, "_INSIDE", made / "shipped")
    monkeypatch.setattr(tomllib, "loads", lambda text: pytest.fail("TOML was read"))
    record, found, proven = read(kind, id)
    assert (found, proven) == ((), True)
    assert told(record) == expected


def test_edited_file_of_an_installed_package_is_honoured(package: Path) -> None:
    edit(package, "profile", "vllm", "title = ", 'title = "Another" # ')
    profile, found, proven = read("profile", "vllm")
    assert (profile.title, found, proven) == ("Another", (), False)
    assert read("profile", "sglang")[2] is True


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("title = ", "titel = ", "CON103"),
        ("title = ", "title = = ", "CON102"),
        ("[codes]", '[facts.odd]\nwhen = "no_such_thing > 1"\n\n[codes]', "CON104"),
        ('loader = "', 'loader = "no-such-', "CON104"),
    ],
    ids=["key", "toml", "type", "loader"],
)
def test_mistake_in_an_edited_file_of_an_installed_package_is_told(
    package: Path, old: str, new: str, code: str
) -> None:
    kind, id = ("profile", "vllm") if "loader" not in old else ("class", "vllm-eagle3-llama")
    edit(package, kind, id, old, new)
    record, found, proven = read(kind, id)
    assert (record, proven) == (None, False)
    assert code in {f.code for f in found}
    assert all(f.contract.startswith(f"contracts/{FOLDERS[kind]}/{id}.toml:") for f in found)


@pytest.mark.parametrize(("kind", "id"), [("class", "vllm-eagle3-llama"), ("profile", "vllm")])
def test_class_is_checked_again_where_what_it_rests_on_was_edited(package: Path, kind: str, id: str) -> None:
    old, new = ('loader = "', 'loader = "no-such-') if kind == "class" else ("[loaders.", "[loaders.other_")
    edit(package, kind, id, old, new)
    found = Library()
    profile, _ = found.get("profile", "vllm")
    assert profile is not None
    record, wrong = found.get("class", "vllm-eagle3-qwen3")
    assert record is None
    assert "CON104" in {f.code for f in wrong}


@pytest.mark.parametrize("form", ["", "broken", "cut", "of another", "no digest", "none", "a folder"])
def test_broken_form_is_passed_over(form: str, package: Path) -> None:
    path = package / "compiled" / FOLDERS["profile"] / "vllm.json"
    kept, other = path.read_bytes(), path.with_name("sglang.json").read_bytes()
    path.unlink()
    match form:
        case "a folder":
            path.mkdir()
        case "none":
            pass
        case _:
            bad = {
                "broken": b"\xff\x00{",
                "cut": kept[:-10],
                "of another": other,
                "no digest": kept.partition(b"\n")[2],
            }
            path.write_bytes(bad.get(form, b""))
    record, found, proven = read("profile", "vllm")
    assert (found, proven) == ((), False)
    assert record.title == "vLLM"


def test_form_of_a_contract_that_cannot_be_read_is_not_made(package: Path, tmp_path: Path) -> None:
    edit(package, "profile", "vllm", "title = ", "titel = ")
    with pytest.raises(ValueError, match=r"vllm\.toml"):
        library.compile_all(package / "shipped", tmp_path / "out")


def test_form_holds_for_the_same_bytes_elsewhere_and_for_no_others(package: Path, tmp_path: Path) -> None:
    own = tmp_path / "own" / FOLDERS["profile"]
    shutil.copytree(package / "shipped" / FOLDERS["profile"], own)
    path = own / "sglang.toml"
    for mark in ("", "# Mine\n"):
        path.write_text(mark + path.read_text(encoding="utf-8"), encoding="utf-8")
        found = Library(tmp_path / "own")
        for id in ("vllm", "sglang"):
            profile, wrong = found.get("profile", id)
            assert [f.code for f in wrong] == (["CON114"] if mark and id == "sglang" else [])
            assert found.proven("profile", found.files("profile")[id]) is not bool(mark)  # one may be wrong by another
            assert profile.rows[0].line().startswith(found.label(own / f"{id}.toml"))


def test_files_that_were_checked_as_they_are_need_not_be_read_again(package: Path) -> None:
    found = Library()
    found.read(*FOLDERS)
    assert (found.broken(), found._read) == ([], {})
    edit(package, "family", "eagle3", "title = ", "titel = ")
    found = Library()
    found.read(*FOLDERS)
    assert "CON103" in {f.code for f in found.broken()}
    assert len(found._read) > 1  # for what rests on it may be wrong, too


@pytest.mark.parametrize("gone", ["families/eagle3.toml", "engines/profiles/sglang.toml"])
def test_file_of_an_installed_package_that_is_gone_is_told_where_it_is_named(package: Path, gone: str) -> None:
    (package / "shipped" / gone).unlink()
    found = Library()
    found.read(*FOLDERS)
    codes = {f.code for f in found.broken()}
    assert codes & {"CON108", "CON113"} if gone.startswith("families") else found.get("profile", "sglang")[0] is None


def test_copy_that_hides_an_edited_file_is_told(package: Path, tmp_path: Path) -> None:
    own = tmp_path / "own" / FOLDERS["family"]
    shutil.copytree(package / "shipped" / FOLDERS["family"], own)
    edit(package, "family", "eagle3", "title = ", 'title = "Another" # ')
    for ask in (lambda found: found.get("family", "eagle3"), lambda found: found.read(*FOLDERS)):
        found = Library(tmp_path / "own")
        ask(found)
        assert "CON114" in {f.code for f in found.broken()}


def test_override_that_is_read_late_is_known_before_anything_is_proven(package: Path, tmp_path: Path) -> None:
    own = tmp_path / "own" / FOLDERS["family"]
    own.mkdir(parents=True)
    text = (package / "shipped" / FOLDERS["family"] / "eagle3.toml").read_text(encoding="utf-8")
    (own / "eagle3.toml").write_text("# Mine\n" + text, encoding="utf-8")
    found = Library(tmp_path / "own")
    found.get("profile", "vllm")
    assert not found.proven("profile", found.files("profile")["vllm"])
