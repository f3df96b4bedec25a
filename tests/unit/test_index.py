"""The index of a sharded checkpoint: strict, read in chunks, compared with its shards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftproof import container
from draftproof.container import (
    Header,
    Index,
    Tensor,
    check_shards,
    check_total,
    proved_index,
    read_index,
    unsafe_name,
)
from draftproof.findings import Finding

NAME = "model.safetensors.index.json"
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def judge(text: bytes, wanted: list[str] | None = None, size: int | None = -1) -> tuple[Index | None, list[Finding]]:
    return read_index(lambda a, b: text[a:b], len(text) if size == -1 else size, NAME, wanted=wanted)


def index_of(weight_map: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({**more, "weight_map": weight_map}, indent=2).encode() + b"\n"


def good(text: bytes, wanted: list[str] | None = None) -> Index:
    index, findings = judge(text, wanted)
    assert findings == []
    assert index is not None
    return index


@pytest.mark.parametrize("indent", [None, 0, 2, 4])
@pytest.mark.parametrize("separators", [None, (",", ":"), (" ,\r\n\t ", " :\t")])
def test_every_way_of_writing(indent: int | None, separators: tuple[str, str] | None) -> None:
    weight_map = {f"layers.{i}.w": ONE if i % 3 else TWO for i in range(5000)}
    data = {"metadata": {"total_size": 7, "x": [1, {"weight_map": {"no": "no"}}]}, "weight_map": weight_map}
    index = good(json.dumps(data, indent=indent, separators=separators).encode())
    assert index == Index(NAME, weight_map, {TWO: 1667, ONE: 3333}, 7)


def test_one_string_object_per_shard() -> None:
    index = good(index_of({f"t{i}": ONE for i in range(3000)}))
    assert len({id(shard) for shard in index.weight_map.values()}) <= 2


def test_chunk_borders_fall_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "_AHEAD", 200)
    weight_map = {
        f"é{'x' * (i % 7)}{i}" + ('"\\\n' if i % 11 == 0 else ""): f"m-{i % 4}.safetensors" for i in range(400)
    }
    for ascii_only in (True, False):
        text = json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}, ensure_ascii=ascii_only).encode()
        for chunk in range(300, 330):
            monkeypatch.setattr(container, "CHUNK", chunk)
            assert good(text).weight_map == weight_map
            assert judge(text, size=None)[0] == good(text)


def test_wanted_names_alone_are_kept_and_the_rest_is_said_to_be_unjudged() -> None:
    weight_map = {f"layers.{i}.w": ONE if i % 2 else TWO for i in range(9000)}
    index = good(index_of(weight_map, metadata={"total_size": 5}), ["layers.7.w", "layers.8000.w", "lm_head.weight"])
    assert index.weight_map == {"layers.7.w": ONE, "layers.8000.w": TWO}
    assert index.shards == {ONE: 4500, TWO: 4500}
    assert index.unjudged.startswith("of 8998 names that were not wanted")
    assert good(index_of(weight_map)).unjudged == ""


def test_wanted_names_may_be_written_with_escapes() -> None:
    text = b'{"weight_map": {"\\u0066c.weight": "%b", "x\\"fc.weight": "%b"}}' % (ONE.encode(), TWO.encode())
    assert good(text, ["fc.weight"]).weight_map == {"fc.weight": ONE}


def test_names_outside_the_map_are_not_names() -> None:
    decoys = {"fc.weight": TWO, "text": f'"fc.weight": "{TWO}"', "weight_map": {"fc.weight": TWO}}
    text = json.dumps({"metadata": decoys, "weight_map": {"fc.weight": ONE}, "more": decoys}).encode()
    assert good(text, ["fc.weight"]).weight_map == {"fc.weight": ONE}
    assert good(text).weight_map == {"fc.weight": ONE}


BAD = [
    ("empty", b"", ["an object", "the end, at byte 0"]),
    ("html", b"<!DOCTYPE html>", ["an object", "<!DOCTYPE html>"]),
    ("list", b"[]", ["an object", "[]"]),
    ("no weight_map", b'{"metadata": {"total_size": 1}}', ["a weight_map", "keys 'metadata'"]),
    ("nothing in it", b"{}", ["keys none"]),
    ("weight_map a list", b'{"weight_map": ["a"]}', ["an object", "near byte 15"]),
    ("weight_map null", b'{"weight_map": null}', ["null"]),
    ("cut", index_of({"a": ONE, "b": TWO})[:-40], ["Unterminated string", "the end, at byte"]),
    ("cut after a pair", b'{"weight_map": {"a": "m"', ["one of }", "the end, at byte 24"]),
    ("cut after the map", b'{"weight_map": {"a": "m"}', ["one of , }", "the end, at byte 25"]),
    ("junk after", b'{"weight_map": {"a": "m"}} x', ["nothing after the closing brace", "x"]),
    ("comma at the end", b'{"weight_map": {"a": "m",}}', ["one of }"]),
    ("two maps", b'{"weight_map": {"a": "m"}, "weight_map": {}}', ["each key once", "'weight_map' stands twice"]),
    ("name twice", b'{"weight_map": {"a": "m", "a": "n"}}', ["a |", "tensor stands twice", "in 'm' and in 'n'"]),
    ("name twice, escaped", b'{"weight_map": {"a": "m", "\\u0061": "m"}}', ["tensor stands twice"]),
    ("shard a number", b'{"weight_map": {"a": 1, "b": "m"}}', ["a |", "a file name", "| 1 |"]),
    ("shard a list", b'{"weight_map": {"b": "m", "a": ["m", {"n": "o"}]}}', ["a |", '["m", …]']),
    ("shard null", b'{"weight_map": {"a": null}}', ["null"]),
    ("NaN", b'{"metadata": {"total_size": NaN}, "weight_map": {}}', ["strict JSON", "NaN is not JSON (total_size)"]),
    ("twice in metadata", b'{"metadata": {"a": 1, "a": 2}, "weight_map": {}}', ["'a' stands twice"]),
    ("deep", b'{"metadata": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", ["at most 64 levels"]),
    ("rather deep", b'{"metadata": ' + b"[" * 65 + b"]" * 65 + b"}", ["nested more than 64 levels"]),
    ("not UTF-8", b'{"weight_map": {"\xff": "m"}}', ["UTF-8", "near byte 17"]),
    ("cut inside a character", '{"weight_map": {"é'.encode()[:-1], ["UTF-8"]),
    ("lone surrogate", b'{"weight_map": {"\\ud800": "m"}}', ["whole surrogate pairs", "\\ud800"]),
    ("lone surrogate key", b'{"\\udc00": 1, "weight_map": {}}', ["whole surrogate pairs"]),
    ("raw newline", b'{"weight_map": {"a\n": "m", "b": "m"}}', ["control character"]),
    ("huge integer", b'{"metadata": {"n": ' + b"9" * 5000 + b'}, "weight_map": {}}', ["does not fit"]),
]


@pytest.mark.parametrize(("text", "words"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_index(text: bytes, words: list[str]) -> None:
    index, findings = judge(text)
    assert index is None
    assert {f.code for f in findings} == {"IDX306"}
    said = " | ".join((findings[0].subject, findings[0].message, findings[0].expected, findings[0].observed, ""))
    assert [word for word in words if word not in said] == [], said


@pytest.mark.parametrize("wanted", [None, ["t1", "t2500"]])
def test_duplicates_are_found_far_apart(wanted: list[str] | None) -> None:
    pairs = [*((f"t{i}", ONE) for i in range(5000)), ("t2500", TWO), ("t1", ONE)]
    text = '{"weight_map": {' + ",\n    ".join(f'"{t}": "{s}"' for t, s in pairs) + "}}"
    _, findings = judge(text.encode(), wanted)
    assert [(f.code, f.subject) for f in findings] == [("IDX306", "t2500"), ("IDX306", "t1")]


def test_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    text = index_of({f"t{i}": f"m{i}" for i in range(50)})
    monkeypatch.setattr(container, "MAX_SHARDS", 10)
    assert judge(text)[1][0].expected == "at most 10 shards"
    monkeypatch.setattr(container, "MAX_NAMES", 5)
    assert judge(index_of({f"t{i}": "m" for i in range(50)}))[1][0].expected == "at most 5 tensors"
    assert judge(index_of({f"t{i}": "m" for i in range(50)}), ["t3"])[1] == []
    monkeypatch.setattr(container, "INDEX_LIMIT", 100)
    assert [(f.code, f.expected) for f in judge(text)[1]] == [("IDX306", "at most 100 bytes")]
    assert [(f.code, f.expected) for f in judge(text, size=None)[1]] == [("IDX306", "at most 100 bytes")]
    monkeypatch.setattr(container, "CONFIG_LIMIT", 1000)
    monkeypatch.setattr(container, "INDEX_LIMIT", 1 << 30)
    long = b'{"metadata": "' + b"x" * 3_000_000 + b'"}'
    assert judge(long)[1][0].expected == "a JSON value"


@given(st.dictionaries(st.text(max_size=8), st.sampled_from([ONE, TWO, "ü.safetensors"]), max_size=20), st.booleans())
def test_reads_what_json_reads(weight_map: dict[str, str], ascii_only: bool) -> None:
    text = json.dumps({"weight_map": weight_map}, ensure_ascii=ascii_only)
    if any(0xD800 <= ord(c) <= 0xDFFF for name in weight_map for c in name):
        return
    index = good(text.encode())
    assert dict(index.weight_map) == json.loads(text)["weight_map"]


UNSAFE = [
    (7, "not a string"), (None, "not a string"), ("", "empty"), ("../x", "folder above"), ("a/../b", "folder above"),
    ("/etc/passwd", "absolute"), ("C:\\x", "backslash"), ("C:x", "colon"), ("a.safetensors:stream", "colon"),
    ("\\\\server\\share\\x", "backslash"), ("//server/share", "absolute"), ("..\\x", "backslash"), ("a\0b", "control"),
    ("a\nb", "control"), ("a\x1b[0m", "control"), ("a\u202eb", "control"), ("a\ud800", "control"),
    (".", "another spelling"),
    ("./a", "another spelling"), ("a//b", "another spelling"), ("a/", "another spelling"), ("..", "folder above"),
    ("a.", "a dot at the end"), ("a ", "a blank or a dot"), ("x./a", "a blank or a dot"), (" a", "leading blank"),
    ("CON", "device"), ("nul.safetensors", "device"), ("x/Com1", "device"), ("LPT\u00b9.bin", "device"),
    ("conout$", "device"), ("a?b", "does not allow"), ("a*", "does not allow"), ("https://h/x", "colon"),
    ("x" * 256, "256 bytes"), ("é" * 128, "256 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "why"), UNSAFE, ids=[ascii(row[0])[:24] for row in UNSAFE])
def test_unsafe_names(name: object, why: str) -> None:
    assert why in unsafe_name(name)
    if isinstance(name, str) and not any(0xD800 <= ord(c) <= 0xDFFF for c in name):
        index, findings = judge(index_of({"fc.weight": ONE, "x": name}), ["fc.weight"])
        assert index is None
        assert [f.code for f in findings] == ["IDX307"]
        assert why in findings[0].observed


@pytest.mark.parametrize(
    "name", [ONE, "a..b", "console.safetensors", "sub/folder/x.bin", ".hidden", "x" * 255, "ü 1.bin"]
)
def test_safe_names(name: str) -> None:
    assert unsafe_name(name) == ""


# --- index against shards ------------------------------------------------------------------------------------------


def header(shard: str, *names: str) -> tuple[str, Header]:
    rows = {name: Tensor("U8", (4,), 4 * i, 4 * i + 4) for i, name in enumerate(names)}
    return shard, Header(shard, rows, {}, 8, 4 * len(names))


INDEX = Index(NAME, {"a": ONE, "b": ONE, "c": TWO}, {ONE: 2, TWO: 1}, 12)


def found(
    *headers: tuple[str, Header | None], index: Index = INDEX, present: tuple[str, ...] = (ONE, TWO)
) -> list[str]:
    findings = check_shards(index, iter(headers), present)
    assert all(f.expected and f.observed and f.where == NAME for f in findings)
    return [f"{f.code} {f.subject} {f.expected} {f.observed} {f.note}".strip() for f in findings]


def test_whole() -> None:
    assert found(header(ONE, "b", "a"), header(TWO, "c")) == []


def test_absent_tensor() -> None:
    assert found(header(ONE, "a"), header(TWO, "c")) == [f"IDX301 b in '{ONE}' not there"]


def test_tensor_in_the_other_shard() -> None:
    assert found(header(ONE, "a"), header(TWO, "c", "b")) == [f"IDX301 b in '{ONE}' not there '{TWO}' holds it"]


def test_tensor_that_the_index_does_not_name() -> None:
    assert found(header(ONE, "a", "b", "x"), header(TWO, "c")) == [f"IDX302 x named in the index only in '{ONE}'"]


def test_tensor_in_two_shards() -> None:
    both = f"in '{ONE}' and '{TWO}'"
    assert found(header(ONE, "a", "b"), header(TWO, "c", "a")) == [
        f"IDX303 a in one file {both} the index names '{ONE}'"
    ]
    assert found(header(ONE, "a", "b", "x"), header(TWO, "c", "x")) == [
        f"IDX303 x in one file {both} the index names none of them"
    ]
    assert found((ONE, None), header(TWO, "c", "a")) == [
        f"IDX303 a in one file {both} the index names '{ONE}', which was not read"
    ]


def test_missing_shard() -> None:
    assert found(header(ONE, "a", "b"), present=(ONE,)) == [f"IDX304 {TWO} a file with 1 tensors no such file"]


def test_shard_that_the_index_does_not_name() -> None:
    assert found(header(ONE, "a", "b"), header(TWO, "c"), header("old.safetensors", "a")) == [
        f"IDX303 a in one file in '{ONE}' and 'old.safetensors' the index names '{ONE}'"
    ]


@pytest.mark.parametrize(("total", "shown"), [(13, "13"), ("12", '"12"'), (True, "true"), (11.5, "11.5")])
def test_total_size(total: Any, shown: str) -> None:
    index = Index(NAME, INDEX.weight_map, INDEX.shards, total)
    whole = (header(ONE, "a", "b"), header(TWO, "c"))
    assert found(*whole, index=index) == [f"IDX305 metadata.total_size 12 bytes in 2 shards {shown}"]
    assert found(header(ONE, "a", "b"), (TWO, None), index=index) == []
    assert found(*whole, index=Index(NAME, INDEX.weight_map, INDEX.shards, None)) == []
    assert found(*whole, index=Index(NAME, INDEX.weight_map, INDEX.shards, 12.0)) == []


def test_unreadable_shard_is_not_judged() -> None:
    assert found((ONE, None), header(TWO, "c")) == []


def test_an_index_read_in_part_is_judged_in_that_part() -> None:
    part = Index(NAME, {"a": ONE, "b": ONE}, {ONE: 5, TWO: 3}, 99, "most")
    assert found(header(ONE, "a", "b", "x", "y", "z"), header(TWO, "c"), index=part) == []
    assert found(header(ONE, "a", "x"), header(TWO, "c"), index=part) == [f"IDX301 b in '{ONE}' not there"]
    assert found(header(ONE, "a", "b"), header(TWO, "b"), index=part)[0].startswith("IDX303 b in one file")


def test_many_are_counted() -> None:
    lines = found(header(ONE, "a", "b", *(f"x{i}" for i in range(30))), header(TWO, "c"))
    assert [line[:6] for line in lines] == ["IDX302"] * 21
    assert "30 in all" in lines[-1]


# --- an index that is proved by its digest ------------------------------------------------------------------------

HELD = {
    "a-00001-of-00002.safetensors": [f"layers.{i}.{part}" for part in ("w", "b") for i in range(0, 40, 2)],
    "a-00002-of-00002.safetensors": [f"layers.{i}.{part}" for part in ("w", "b") for i in range(1, 40, 2)] + ["norm"],
}
HOMES = {name: shard for shard, names in HELD.items() for name in names}


def proved(text: bytes, held: Mapping[str, list[str]] = HELD, *, git: bool = False, **other: Any) -> Index | None:
    digest = hashlib.sha1(b"blob %d\0" % len(text) + text) if git else hashlib.sha256(text)
    said = {"head": text[:300], "size": len(text), "digest": digest.hexdigest()} | other
    homes = {name: shard for shard, names in held.items() for name in names}
    return proved_index(NAME, held, homes, **said)


@pytest.mark.parametrize("git", [True, False])
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("style", [{"indent": 2}, {"indent": 4}, {"indent": 0}, {}, {"separators": (",", ":")}])
def test_index_that_names_what_the_shards_hold_is_proved_by_its_digest(
    git: bool, end: str, style: dict[str, Any]
) -> None:
    for more in ({"metadata": {"total_size": 7}}, {}):
        text = (json.dumps({**more, "weight_map": dict(sorted(HOMES.items()))}, **style) + end).encode()
        index = proved(text, git=git)
        assert index == good(text)
        assert index.total_size == (7 if more else None)


@pytest.mark.parametrize(
    "weight_map",
    [
        HOMES | {"one.more": "a-00001-of-00002.safetensors"},
        {name: shard for name, shard in HOMES.items() if name != "norm"},
        HOMES | {"norm": "a-00001-of-00002.safetensors"},
        {name.replace("norm", "nomr"): shard for name, shard in HOMES.items()},
    ],
)
def test_index_that_names_anything_else_is_not_proved(weight_map: dict[str, str]) -> None:
    assert proved(index_of(dict(sorted(weight_map.items())))) is None


def test_index_is_not_proved_by_another_digest_size_head_or_order() -> None:
    text = index_of(dict(sorted(HOMES.items())))
    assert proved(text) is not None
    assert proved(text, digest="0" * 64) is None
    assert proved(text, size=len(text) + 1) is None
    assert proved(text, head=b"") is None
    assert proved(text, head=b"version https://git-lfs.github.com/spec/v1") is None
    assert proved(index_of(dict(sorted(HOMES.items(), reverse=True)))) is None
    assert proved(json.dumps({"weight_map": dict(sorted(HOMES.items())), "metadata": {}}).encode()) is None


@pytest.mark.parametrize("name", ['quote"d', "back\\slash", "\u00e9", "../up"])
def test_index_of_names_that_json_may_spell_in_two_ways_is_not_proved(name: str) -> None:
    held = {**HELD, "a-00003-of-00003.safetensors": [name]} if name != "../up" else {**HELD, "../up": ["x"]}
    homes = {tensor: shard for shard, names in held.items() for tensor in names}
    text = json.dumps({"weight_map": dict(sorted(homes.items()))}, indent=2, ensure_ascii=False).encode()
    assert proved(text, held) is None


def test_total_size_of_a_proved_index_is_still_held_to_the_shards() -> None:
    headers = [Header("a", {"x": Tensor("F32", (1,), 0, 4)}, {}, 8, 4), Header("b", {}, {}, 8, 0)]
    assert check_total(Index(NAME, {}, {"a": 1}, 4), headers) == []
    assert [f.code for f in check_total(Index(NAME, {}, {"a": 1}, 5), headers)] == ["IDX305"]
    assert check_total(Index(NAME, {}, {"a": 1}, None), headers) == []
