"""Which engine at which version is meant, and which version that was read answers for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.language import KINDS
from draftproof.library import Library
from draftproof.versions import Asked, resolve

CODES = "\n".join(f'{kind} = "VLLM601"' for kind in KINDS["profile"].fields["codes"].fields)
PROFILE = """schema = 1
kind = "profile"
id = "{id}"
title = "Engine"
versions = [{versions}]
methods = [{{ is = "m" }}]
rows = []
[registry]
[codes]
{codes}
"""
LAUNCH = """schema = 1
kind = "launch"
id = "{id}"
title = "Engine"
version = "1"
source = "s"
packages = ["{package}"]
images = ["org/{id}-server"]
commands = [{{ words = ["{id}"] }}]
[flags]
"""
SHIPPED = Library()
READ = {
    "motor": ('{ is = "0.33.0" }, { is = "0.32.0" }, { is = "0.28.0" }', "no-such-package"),
    "wheel": ('{ is = "2026.10.11549", also = ["b11549"] }', "pytest"),
}


@pytest.fixture
def library(tmp_path: Path) -> Library:
    for folder in ("engines/profiles", "launches"):
        (tmp_path / folder).mkdir(parents=True)
    for id, (read, package) in READ.items():
        text = PROFILE.format(id=id, versions=read, codes=CODES)
        (tmp_path / "engines" / "profiles" / f"{id}.toml").write_text(text, encoding="utf-8")
        text = LAUNCH.format(id=id, package=package)
        (tmp_path / "launches" / f"{id}.toml").write_text(text, encoding="utf-8")
    return Library(tmp_path, shipped=False)


def asked(spec: str, library: Library) -> list[Asked]:
    found, wrong = resolve([spec], library)
    assert [f.code for f in wrong if f.code != "CLI654"] == []
    return found


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        ("motor", "0.33.0"),
        ("Motor", "0.33.0"),
        ("motor@0.33", "0.33.0"),
        ("motor@0.33.0", "0.33.0"),
        ("motor@v0.32.0", "0.32.0"),
        ("motor@0.33.0+cu129", "0.33.0"),
        ("motor@0.33.0-cu129", "0.33.0"),
        ("org/motor-server:v0.28.0", "0.28.0"),
        ("registry.example:5000/org/motor-server:v0.28.0-cu129-arm64@sha256:0123", "0.28.0"),
        ("wheel@b11549", "2026.10.11549"),
        ("wheel@2026.10.11549", "2026.10.11549"),
        ("org/wheel-server:server-cuda-b11549", "2026.10.11549"),
    ],
)
def test_version_that_was_read_is_exact(spec: str, version: str, library: Library) -> None:
    assert asked(spec, library) == [Asked(spec.lower().partition("@")[0] if "/" not in spec else
                                          spec.partition("-server")[0].rpartition("/")[2], version)]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        ("motor@0.33.1.dev12+gabc1234", "0.33.0"),
        ("motor@0.33.0+gabc1234", "0.33.0"),
        ("motor@0.34.0rc1", "0.33.0"),
        ("motor@1.0.0a1", "0.33.0"),
        ("motor@0.33.0rc2", "0.33.0"),
        ("motor@0.33.0.post1", "0.33.0"),
        ("motor@0.31.2", "0.32.0"),
        ("motor@0.29", "0.28.0"),
        ("motor@nightly", "0.33.0"),
        ("org/motor-server:nightly-cu129", "0.33.0"),
        ("org/motor-server", "0.33.0"),
        ("motor@0.33.0-rcl", "0.33.0"),
    ],
)
def test_version_that_was_not_read_stands_beside_the_nearest_and_says_so(
    spec: str, version: str, library: Library
) -> None:
    (one,) = asked(spec, library)
    assert (one.version, one.near) == (version, True)
    assert one.asked in spec + ":latest"
    assert one.asked


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        ("motor@0.34.0", "0.33.0"),
        ("motor@0.33.1", "0.33.0"),
        ("motor@0.99.dev1", "0.33.0"),
        ("motor@0.1", "0.28.0"),
        ("motor@>=0.40", "0.33.0"),
        ("motor@<0.5", "0.28.0"),
        ("wheel@b9000", "2026.10.11549"),
        ("wheel@0.1.2", "2026.10.11549"),
    ],
)
def test_version_outside_what_was_read_is_too_far(spec: str, version: str, library: Library) -> None:
    (one,) = asked(spec, library)
    assert (one.version, one.near) == (version, False)


@pytest.mark.parametrize(
    ("wanted", "read", "level"),
    [
        (">=0.30,<0.34", ["0.33.0", "0.32.0"], "info"),
        ("~=0.32.0", ["0.32.0"], "info"),
        ("==0.33.*", ["0.33.0"], "info"),
        (">=0.20,<0.34", ["0.33.0", "0.32.0", "0.28.0"], "unknown"),
        (">=0.30", ["0.33.0", "0.32.0"], "unknown"),
        ("<0.33", ["0.32.0", "0.28.0"], "unknown"),
        ("!=0.33.0", ["0.32.0", "0.28.0"], "unknown"),
    ],
)
def test_range_asks_about_every_version_of_it_that_was_read(
    wanted: str, read: list[str], level: str, library: Library
) -> None:
    found, (said,) = resolve([f"motor@{wanted}"], library)
    assert found == [Asked("motor", one) for one in read]
    assert (said.code, said.level) == ("CLI654", level)
    assert all(one in said.observed for one in read)


def test_all_asks_about_every_engine_once(library: Library) -> None:
    assert resolve(["all", "motor", "motor@0.33"], library) == ([Asked("motor", "0.33.0"),
                                                                 Asked("wheel", "2026.10.11549")], [])  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "code", "hint"),
    [
        ("mottor", "CLI651", "did you mean 'motor'?"),
        ("org/motor-servre:v1", "CLI651", "org/motor-servre"),
        ("", "CLI651", "nothing"),
        ("@0.33", "CLI651", "@0.33"),
        ("all@0.33", "CLI651", "all@0.33"),
        ("motor@", "CLI652", "motor@"),
        ("motor@0.33.O", "CLI652", "did you mean '0.33.0'?"),
        ("motor@instaled", "CLI652", "did you mean 'installed'?"),
        ("motor@>=abc", "CLI652", "motor@>=abc"),
        ("motor@-1", "CLI652", "motor@-1"),
        ("motor@_0.33.0", "CLI652", "motor@_0.33.0"),
        ("motor@>=0.33,<0.30", "CLI652", "motor@>=0.33,<0.30"),
        ("motor@==0.33.0,!=0.33.0", "CLI652", "motor@==0.33.0,!=0.33.0"),
        ("motor@~=0.33,<0.33", "CLI652", "motor@~=0.33,<0.33"),
        ("motor@installed", "CLI653", "none of them is installed"),
    ],
)
def test_spelling_that_names_nothing_is_told_with_what_there_is(
    spec: str, code: str, hint: str, library: Library
) -> None:
    found, (said,) = resolve([spec], library)
    assert (found, said.code) == ([], code)
    assert hint in said.observed
    assert "motor" in said.expected or "no-such-package" in said.expected


def test_installed_is_the_version_beside_the_interpreter(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"no-such-package": "0.32.0+cpu"}
    monkeypatch.setattr("importlib.metadata.version", lambda name: here[name])
    assert asked("motor@installed", library) == [Asked("motor", "0.32.0")]
    here["no-such-package"] = "0.33.1.dev3+g0123abc"
    assert asked("motor@installed", library) == [Asked("motor", "0.33.0", "0.33.1.dev3+g0123abc")]


def test_shipped_engines_have_launches_of_a_version_that_was_read() -> None:
    library = Library()
    for id, launches, found in library.all("launch"):
        assert found == ()
        profile, _ = library.get("profile", id)
        assert launches.version in [v.is_ for v in profile.versions]
        assert resolve([f"{id}@{launches.version}"], library) == ([Asked(id, launches.version)], [])


@settings(deadline=None)
@given(st.text(max_size=40), st.sampled_from(["", "vllm@", "vllm/vllm-openai:", "llama.cpp@b", "sglang@>="]))
def test_no_spelling_raises_and_each_is_answered(text: str, start: str) -> None:
    found, said = resolve([start + text], SHIPPED)
    assert found or said
