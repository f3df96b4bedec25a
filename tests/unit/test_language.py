"""The contract language: each kind of value, each bound of a file, and the schema that is generated from it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from draftproof.container import BITS
from draftproof.dims import Expr
from draftproof.language import (
    DTYPE_SETS,
    DTYPES,
    FACTS,
    KINDS,
    MAX_BYTES,
    MAX_FOUND,
    Problems,
    Spec,
    json_schema,
    read_toml,
    read_value,
)

KEY = KINDS["family"].fields["config"].of
TENSOR = KINDS["family"].fields["tensors"].of
ACCEPT = KINDS["pair"].fields["allow"]
assert KEY
assert TENSOR


def read(spec: Spec, value: Any) -> tuple[Any, list[str]]:
    """Return what was read, and code: subject | observed of each problem."""
    out = Problems("f")
    got = read_value(spec, value, ("x",), out)
    return got, [f"{f.code} {f.subject} | {f.observed}" for f in out.all()]


def test_dtypes_are_those_of_the_container() -> None:
    assert set(DTYPES) == set(BITS)
    assert {d for dtypes in DTYPE_SETS.values() for d in dtypes} <= set(DTYPES)


# what stands in a fact, and what is refused
GOOD_FACTS = {
    "trained_on": ["a/b", "moonshotai/Kimi-K2.5"],
    "aux_convention": ["boundary", "layer_output"],
    "aux_layers": [[2, 30, 58]],
    "trained_context": [1, 131072],
    "partial_rotary_factor": [1, 0.5, 1.0],
    "copies": [["embed_tokens.weight"], ["embed_tokens.weight", "lm_head.weight"]],
    "rope_theta": [10000, 1e6],
    "gpu": ["sm100"],
    "own_embedding": [True, False],
    "rms_norm_eps": [1e-5],
    "norm_before_residual": [True, False],
    "block_size": [1, 16],
    "prompt": [1, 4096],
}
BAD_FACTS = {
    "trained_on": [1, "b", "a b/c", ["a/b"]],
    "aux_convention": [1, "a b", ""],
    "aux_layers": ["2", 2, ["2"], [2.0], [True], []],
    "trained_context": ["4096", 0, -1, 4096.0, True, 2**64],
    "partial_rotary_factor": ["0.5", 0, 1.5, -0.5, True, float("nan"), float("inf")],
    "copies": ["embed_tokens.weight", [], [1], {}],
    "rope_theta": ["1e6", 0, -1, True, float("nan")],
    "gpu": [1, ["sm100"], True],
    "own_embedding": [0, 1, "true", None],
    "rms_norm_eps": ["1e-5", 0, -1e-5, True],
    "norm_before_residual": [0, "true"],
    "block_size": ["16", 0, -1, 16.5, True],
    "prompt": ["16", 0, -1, 16.5, True],
}


@pytest.mark.parametrize("name", [name for name in FACTS if name != "meanings"])
def test_fact_is_typed_and_its_schema_says_the_same(name: str) -> None:
    rules = Draft202012Validator(json_schema("pair")["properties"]["facts"]["properties"][name])
    for value in GOOD_FACTS[name]:
        fact = {"value": value, "source": "s"}
        got = tuple(value) if isinstance(value, list) else value
        assert read(FACTS[name], fact) == ({"value": got, "source": "s"}, [])
        assert rules.is_valid(fact)
    for value in BAD_FACTS[name]:
        fact = {"value": value, "source": "s"}
        told = read(FACTS[name], fact)[1]
        assert [t[:14] for t in told] == ["CON104 x.value"]
        if value == value and value not in (4096.0, 2**64, [2.0]):  # which JSON Schema cannot tell
            assert not rules.is_valid(fact), value


@pytest.mark.parametrize(
    ("dtype", "told"),
    [
        ("BF17", "CON104 x.dtype[0] | BF17 (did you mean 'BF16'?)"),
        ("indexx", "CON104 x.dtype[0] | indexx (did you mean 'index'?)"),
        (["I64", "bf16"], "CON104 x.dtype[1] | bf16"),
        ([], "CON104 x.dtype | none"),
    ],
)
def test_dtype_is_one_of_the_format_or_a_set(dtype: Any, told: str) -> None:
    assert read(TENSOR, {"shape": [], "dtype": dtype})[1] == [told]
    assert not Draft202012Validator(json_schema("family")).is_valid({"tensors": {"x": {"shape": [], "dtype": dtype}}})


@pytest.mark.parametrize("dtype", ["float", ["F8_E4M3", "index"]])
def test_known_dtype_is_read(dtype: Any) -> None:
    got, told = read(TENSOR, {"shape": [], "dtype": dtype})
    assert (got["dtype"], told) == ((dtype,) if isinstance(dtype, str) else tuple(dtype), [])


@pytest.mark.parametrize("kind", ["ints", "texts", "list"])
def test_key_may_be_a_list_of_a_type(kind: str) -> None:
    assert read(KEY, {"type": kind}) == ({"type": kind}, [])
    assert kind in json_schema("family")["properties"]["config"]["additionalProperties"]["properties"]["type"]["enum"]


def test_acceptance_may_name_a_subject() -> None:
    row = {"code": "TEN4*", "because": "b", "subject": "layers.*"}
    assert read(ACCEPT, [row]) == ((row,), [])
    assert read(ACCEPT, [row | {"subjet": "x"}])[1] == ["CON103 x[0].subjet | subjet"]


def test_broken_values_keep_their_places() -> None:
    got, told = read(TENSOR, {"shape": ["a", "b +", 3, 2.5, True]})
    assert [isinstance(axis, Expr) for axis in got["shape"]] == [True, False, True, False, True]
    assert [t.split(" | ")[0] for t in told] == ["CON106 x.shape[1]", "CON104 x.shape[3]"]
    assert read(KINDS["pair"].fields["drafter"], {"model": 5})[0] == {"model": None}


def test_large_integer_is_refused_by_its_bits() -> None:
    assert read(Spec("expr"), 2**63)[1] == ["CON104 x | an integer of 64 bits"]
    assert read(Spec("str"), 16**9000)[1] != []


def write(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "c.toml"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "code", "line", "says"),
    [
        (b"\xef\xbb\xbfa = 1", "CON101", 1, "byte-order mark"),
        (b"\xff\xfea\x00", "CON101", 1, "UTF-8"),
        (b"#" * (MAX_BYTES + 1), "CON101", 1, f"at most {MAX_BYTES} bytes"),
        (b"#" * 10_000_000, "CON101", 1, f"at most {MAX_BYTES} bytes"),
        (b"\n\n" + b"a." * 100_000 + b"b = 1", "CON101", 3, "at most 16 parts in a key"),
        (b"\na = " + b"[" * 5000, "CON101", 2, "at most 32 nested brackets"),
        (b"\na = " + b"1" * 5000, "CON101", 2, "characters without quotes"),
        (b"a = 1\nb = 2\na = 3\n", "CON102", 3, "Cannot overwrite"),
        (b"a = 1\nb = '''\n\n", "CON102", 4, "Expected"),
        (b"a = 1\nb = 1979-02-30\n", "CON102", 2, "Invalid date"),
    ],
)
def test_file_that_cannot_be_read_says_why_and_where(
    data: bytes, code: str, line: int, says: str, tmp_path: Path
) -> None:
    got, out = read_toml(write(tmp_path, data), "f.toml")
    assert got is None
    (found,) = out.all()
    assert (found.code, found.contract) == (code, f"f.toml:{line}")
    assert says in found.expected + found.observed


def test_largest_file_is_read(tmp_path: Path) -> None:
    got, out = read_toml(write(tmp_path, b"a = 1\n" + b"#" * (MAX_BYTES - 6)), "f")
    assert (got, out.all()) == ({"a": 1}, ())


@pytest.mark.parametrize("make", ["pipe", "socket", "device", "folder", "nothing"])
def test_what_is_no_plain_file_is_refused_and_never_waited_for(
    make: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    path = Path("c.toml")
    with socket.socket(socket.AF_UNIX) as server:
        if make == "pipe":
            os.mkfifo(path)
        elif make == "socket":
            server.bind(str(path))
        elif make == "device":
            path = Path("/dev/zero")
        elif make == "folder":
            path.mkdir()
        got, out = read_toml(path, "f")
    assert got is None
    assert [f.code for f in out.all()] == ["CON101"]


def test_findings_of_a_file_are_bounded_and_counted() -> None:
    out = Problems("f")
    read_value(KINDS["pair"].fields["allow"], ["x"] * (MAX_FOUND + 7), (), out)
    found = out.all()
    assert len(found) == MAX_FOUND + 1
    assert found[-1].message == "and 7 more findings"
    assert found[-2].subject == f"[{MAX_FOUND - 1}]"


def test_schema_says_numbers_and_shortest_lists() -> None:
    facts = json_schema("model")["properties"]
    assert facts["partial_rotary_factor"]["properties"]["value"] == {
        "description": "1 is all of a head",
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": 1,
    }
    keys = json_schema("family")["properties"]["aux"]["properties"]["keys"]
    assert keys["minItems"] == 1
    for kind in KINDS:
        Draft202012Validator.check_schema(json_schema(kind))


def undocumented(spec: Spec, path: str) -> Iterator[str]:
    """Yield the keys of which neither a description of their own, nor of their items, says what they are."""
    for key, value in spec.fields.items():
        inner = value
        while not inner.doc and inner.of:
            inner = inner.of
        if not inner.doc:
            yield f"{path}.{key}"
        yield from undocumented(value, f"{path}.{key}")
    if spec.of:
        yield from undocumented(spec.of, path)


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_of_the_language_says_what_it_is(kind: str) -> None:
    assert list(undocumented(KINDS[kind], kind)) == []
