"""GGUF drafters: keys and tensors by the gguf package's own writer and by literal bytes, and every kind of damage."""

from __future__ import annotations

import builtins
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftproof import ggufs
from draftproof.api import check, check_models
from draftproof.ggufs import MAX_LIST, Counted, read_gguf
from draftproof.library import Library

gguf = pytest.importorskip("gguf")
SIZES = {"hidden": 32, "heads": 4, "kv": 2, "dim": 8, "inter": 48, "draft": 16, "vocab": 40, "layers": 8}
H, Q, KV, I = 32, 32, 16, 48  # noqa: E741
TENSORS: dict[str, tuple[int, ...]] = {
    "fc.weight": (H, 3 * H), "output_norm.weight": (H,), "output.weight": (16, H), "d2t": (16,),
    "blk.0.attn_norm.weight": (H,), "blk.0.attn_norm_2.weight": (H,), "blk.0.ffn_norm.weight": (H,),
    "blk.0.attn_q.weight": (Q, 2 * H), "blk.0.attn_k.weight": (KV, 2 * H), "blk.0.attn_v.weight": (KV, 2 * H),
    "blk.0.attn_output.weight": (H, Q), "blk.0.ffn_gate.weight": (I, H), "blk.0.ffn_up.weight": (I, H),
    "blk.0.ffn_down.weight": (H, I),
}  # fmt: skip
TARGET = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": H, "num_hidden_layers": 8,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 64, "vocab_size": 40,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def ended(writer: Any) -> None:
    """Write what a GGUF writer was given, and close its file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def written(path: Path, tensors: dict[str, tuple[int, ...]] = TENSORS, arch: str = "eagle3", **keys: Any) -> Path:
    """Write a drafter as the converter of llama.cpp does."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(keys.get("layers", 1))
    writer.add_context_length(64)
    writer.add_embedding_length(H)
    writer.add_feed_forward_length(I)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(8)
    writer.add_value_length(8)
    writer.add_tokenizer_model("llama")
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_token_list([f"t{n}" for n in range(40)])
    writer.add_array(f"{arch}.target_layers", keys.get("target_layers", [2, 4, 5]))
    writer.add_uint32(f"{arch}.target_hidden_size", keys.get("target_hidden_size", H))
    if arch == "dflash":
        writer.add_uint32("dflash.block_size", 4)
        writer.add_uint32("tokenizer.ggml.mask_token_id", 39)
    for name, shape in tensors.items():
        writer.add_tensor(name, np.zeros(shape, np.int64 if name == "d2t" else np.float32))
    ended(writer)
    return path


def changed(path: Path, values: dict[str, Any], *given: Any, **keys: Any) -> Path:
    """Write a drafter in which keys say something else, or are not there: None."""

    class Writer(gguf.GGUFWriter):  # type: ignore[misc]
        def write_header_to_file(self, path: Path | None = None) -> None:
            adds = {str: self.add_string, bool: self.add_bool, int: self.add_uint32, float: self.add_float32}
            for key, value in values.items():
                self.kv_data[0].pop(key, None)
                if isinstance(value, list):
                    self.add_array(key, value)
                elif value is not None:
                    adds[type(value)](key, value)
            super().write_header_to_file(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf, "GGUFWriter", Writer)
        return written(path, *given, **keys)


def target(folder: Path) -> str:
    import json

    (folder / "target").mkdir()
    (folder / "target" / "config.json").write_text(json.dumps(TARGET))
    return str(folder / "target")


def head_of(data: bytes) -> tuple[Any, list[Any]]:
    return read_gguf(lambda start, stop: data[start:stop], len(data), "x.gguf")


def codes(path: Path, tmp_path: Path) -> set[str]:
    report = check(str(path), target(tmp_path))
    return {f.code for f in report.findings if f.level == "error"}


def test_head_is_what_the_packages_own_reader_sees(tmp_path: Path) -> None:
    path = written(tmp_path / "d.gguf")
    head, found = head_of(path.read_bytes())
    assert not found
    own = gguf.GGUFReader(path)
    assert {
        t.name: (t.tensor_type.name, tuple(int(n) for n in t.shape[::-1]), int(t.data_offset)) for t in own.tensors
    } == {name: (t.dtype, t.shape, t.start) for name, t in head.tensors.items()}
    assert {n for n in own.fields if not n.startswith("GGUF.")} == set(head.keys)
    assert head.keys["eagle3.target_layers"] == [2, 4, 5]
    assert head.keys["eagle3.attention.layer_norm_rms_epsilon"] == 1e-5


def test_healthy_drafter_is_held_to_its_familys_contract(tmp_path: Path) -> None:
    report = check(str(written(tmp_path / "d.gguf")), target(tmp_path))
    assert not [f for f in report.findings if f.level in ("error", "warning")]
    assert (report.sides[0].contract, report.sides[0].dialect) == ("eagle3", "gguf")


PLAIN = {
    **{n: s for n, s in TENSORS.items() if n.startswith("blk.0.") and "norm_2" not in n and "attn_" not in n},
    "blk.0.attn_norm.weight": (H,), "blk.0.attn_q.weight": (Q, H), "blk.0.attn_k.weight": (KV, H),
    "blk.0.attn_v.weight": (KV, H), "blk.0.attn_output.weight": (H, Q), "token_embd.weight": (40, H),
    "output_norm.weight": (H,),
}  # fmt: skip


def test_plain_drafter_without_a_head_is_tied(tmp_path: Path) -> None:
    report = check(str(written(tmp_path / "d.gguf", PLAIN, "llama")), target(tmp_path))
    assert (report.sides[0].contract, report.sides[0].dialect) == ("draft-model", "gguf")
    assert not [f for f in report.findings if f.level == "error"]
    cut = {n: s for n, s in PLAIN.items() if n != "blk.0.ffn_up.weight"}
    (tmp_path / "target" / "config.json").unlink()
    (tmp_path / "target").rmdir()
    assert codes(written(tmp_path / "e.gguf", cut, "llama"), tmp_path) == {"TEN401"}


def packed(path: Path, into: Path, name: str, kind: Any) -> Path:
    """Write a file again with one tensor packed in blocks."""
    own, writer = gguf.GGUFReader(path), gguf.GGUFWriter(into, "eagle3")
    for field in own.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            last = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], last)
    for tensor in own.tensors:
        data, of = tensor.data, tensor.tensor_type
        if tensor.name == name:
            data, of = gguf.quants.quantize(tensor.data, kind), kind
        writer.add_tensor(tensor.name, data, raw_dtype=of)
    ended(writer)
    return into


def test_matrix_may_be_packed_in_blocks_and_a_norm_may_not(tmp_path: Path) -> None:
    path = written(tmp_path / "d.gguf")
    kind = gguf.GGMLQuantizationType.Q8_0
    assert not codes(packed(path, tmp_path / "m.gguf", "fc.weight", kind), tmp_path)
    report = check(str(packed(path, tmp_path / "n.gguf", "output_norm.weight", kind)), str(tmp_path / "target"))
    assert [f.code for f in report.findings if f.level == "error"] == ["TEN404"]


def split(path: Path, *counts: int) -> list[Path]:
    """Write a drafter as several parts, as the converter does."""
    names, paths = list(TENSORS), []
    for n, count in enumerate(counts):
        part = path.with_name(f"{path.stem}-{n + 1:05}-of-{len(counts):05}.gguf")
        own, names = names[:count], names[count:]
        whole = written(path, {name: TENSORS[name] for name in own})
        reader, writer = gguf.GGUFReader(whole), gguf.GGUFWriter(part, "eagle3")
        for field in reader.fields.values() if n == 0 else ():
            if not field.name.startswith("GGUF.") and field.name != "general.architecture":
                last = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
                writer.add_key_value(field.name, field.contents(), field.types[0], last)
        writer.add_uint16("split.no", n)
        writer.add_uint16("split.count", len(counts))
        writer.add_int32("split.tensors.count", len(TENSORS))
        for tensor in reader.tensors:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        paths.append(part)
    path.unlink()
    return paths


def test_parts_are_read_as_one_and_the_first_stands_for_them(tmp_path: Path) -> None:
    first, second, third = split(tmp_path / "d.gguf", 5, 5, 4)
    report = check(str(first), target(tmp_path))
    assert not [f for f in report.findings if f.level == "error"]
    for path, said in ((second, "part 1"), (first.rename(tmp_path / "alone.gguf"), "part 0")):
        found = [f for f in check(str(path), str(tmp_path / "target")).findings if f.level == "error"]
        assert [f.code for f in found] == ["STF221"]
        assert said in found[0].observed
    (tmp_path / "alone.gguf").rename(first)
    third.unlink()
    report = check_models(str(first), str(tmp_path / "target"), Library(), engines=["llama.cpp"])
    assert any("gguf_init_from_file" in f.observed for f in report.findings if f.code == "LCPP601")
    found = [f for f in check(str(first), str(tmp_path / "target")).findings if f.level == "error"]
    assert [(f.code, f.observed) for f in found] == [("STF221", f"no {third.name}")]


def test_target_tells_what_its_keys_say(tmp_path: Path) -> None:
    path = written(tmp_path / "t.gguf", {"token_embd.weight": (40, H)}, "llama", layers=8)
    report = check(str(written(tmp_path / "d.gguf")), str(path))
    assert not [f for f in report.findings if f.level == "error"]
    assert any("only its keys are read" in f.observed for f in report.findings)
    report = check(str(written(tmp_path / "e.gguf", target_hidden_size=16)), str(path))
    assert "PAIR401" in {f.code for f in report.findings if f.level == "error"}


def test_engines_read_it_or_it_is_not_known_how(tmp_path: Path) -> None:
    path, other = written(tmp_path / "d.gguf", {**TENSORS, "blk.0.extra.weight": (3,)}), target(tmp_path)
    report = check_models(str(path), other, Library(), engines=["llama.cpp"])
    assert any(f.code == "LCPP601" and "llama_model_load" in f.observed for f in report.findings)
    assert not [f for f in report.findings if f.code == "LCPP601" and "when it is converted" in f.observed]
    report = check_models(str(path), other, Library(), engines=["vllm"])
    seen = [f.observed for f in report.findings if f.code == "VLLM630"]
    assert seen == ["how it reads a drafter from gguf was not read"]


@pytest.mark.parametrize(
    ("tensors", "keys", "said"),
    [
        ({"blk.0.attn_q.weight": None}, {}, "TEN401 blk.0.attn_q.weight"),
        ({"blk.0.attn_q.weight": (Q, H)}, {}, "TEN403 blk.0.attn_q.weight"),
        ({"blk.0.attn_extra.weight": (3,)}, {}, "TEN402 blk.0.attn_extra.weight"),
        ({"d2t": None}, {}, "TEN403 output.weight"),
        ({"fc.weight": (H, 2 * H)}, {}, "TEN403 fc.weight"),
        ({}, {"target_hidden_size": 16}, "PAIR401 target.hidden"),
        ({}, {"target_layers": [2, 4]}, "TEN403 fc.weight"),
    ],
)
def test_broken_drafter_is_caught_by_its_gguf_names(
    tensors: dict[str, Any], keys: dict[str, Any], said: str, tmp_path: Path
) -> None:
    shapes = {name: shape for name, shape in {**TENSORS, **tensors}.items() if shape is not None}
    report = check(str(written(tmp_path / "d.gguf", shapes, **keys)), target(tmp_path))
    assert any(said in f"{f.code} {f.subject}".replace("drafter ", "") for f in report.findings if f.level == "error")


def test_dflash_layers_have_numbers_and_ids_are_outputs(tmp_path: Path) -> None:
    layer = {n: s for n, s in TENSORS.items() if n.startswith("blk.0.") and not n.endswith("norm_2.weight")}
    layer |= {f"blk.0.attn_{n}.weight": (s, H) for n, s in (("q", Q), ("k", KV), ("v", KV))}
    layer |= {"blk.0.attn_q_norm.weight": (8,), "blk.0.attn_k_norm.weight": (8,)}
    tensors = {n.replace("blk.0.", f"blk.{i}."): s for i in (0, 1) for n, s in layer.items()}
    tensors |= {"fc.weight": (H, 2 * H), "output_norm.weight": (H,), "enc.output_norm.weight": (H,)}
    path = written(tmp_path / "d.gguf", tensors, "dflash", layers=2, target_layers=[2, 6])
    report = check(str(path), target(tmp_path))
    assert (report.sides[0].contract, report.sides[0].dialect) == ("dflash", "gguf")
    assert not [f for f in report.findings if f.level == "error"]


def plain(*pairs: bytes, tensors: bytes = b"", count: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, count, len(pairs)) + b"".join(pairs) + tensors


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def pair(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def row(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, offset)


ARCH = pair("general.architecture", 8, text("eagle3"))


def test_literal_bytes_are_read() -> None:
    values = [
        (0, b"\x07", 7), (1, b"\xff", -1), (2, b"\x01\x02", 513), (3, b"\xfe\xff", -2),
        (4, struct.pack("<I", 9), 9), (5, struct.pack("<i", -9), -9), (6, struct.pack("<f", 1e-6), 1e-6),
        (7, b"\x01", True), (8, text("ä"), "ä"), (9, struct.pack("<IQ2i", 5, 2, 3, -4), [3, -4]),
        (9, struct.pack("<IQ", 8, 2) + text("a") + text(""), ["a", ""]),
        (10, struct.pack("<Q", 2**63), 2**63), (11, struct.pack("<q", -1), -1), (12, struct.pack("<d", 0.1), 0.1),
        (9, struct.pack("<IQ", 0, MAX_LIST + 1) + bytes(MAX_LIST + 1), Counted(MAX_LIST + 1)),
        (9, struct.pack("<IQ", 8, MAX_LIST + 1) + text("x") * (MAX_LIST + 1), MAX_LIST + 1),
    ]  # fmt: skip
    pairs = [pair(f"k{n}", kind, raw) for n, (kind, raw, _) in enumerate(values)]
    data = plain(ARCH, *pairs, tensors=row("a", (2, 32), 2, 0), count=1)
    data += bytes(-len(data) % 32) + bytes(2 * 18)
    head, found = head_of(data)
    assert not found
    many = head.keys[f"k{len(values) - 1}"]
    values[-1] = (*values[-1][:2], Counted(MAX_LIST + 1, 1, many.digest))  # one text, again and again
    assert head.keys == {"general.architecture": "eagle3", **{f"k{n}": value for n, (_, _, value) in enumerate(values)}}
    assert (head.tensors["a"].dtype, head.tensors["a"].shape, head.tensors["a"].end) == ("Q4_0", (2, 32), len(data))


HUGE = struct.pack("<Q", 2**62)
DAMAGED = {
    "empty": b"",
    "another file": b"PK\x03\x04" + bytes(60),
    "magic alone": b"GGUF",
    "version 1": plain(ARCH, version=1),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "counts beyond any": b"GGUF" + struct.pack("<IQQ", 3, 2**63, 2**63),
    "more keys than bytes": b"GGUF" + struct.pack("<IQQ", 3, 0, 60_000),
    "a text beyond the file": plain(text("k") + struct.pack("<I", 8) + HUGE),
    "a key beyond the file": plain(HUGE),
    "a list beyond the file": plain(pair("k", 9, struct.pack("<I", 4) + HUGE)),
    "texts beyond the file": plain(pair("k", 9, struct.pack("<I", 8) + HUGE)),
    "a list of lists without an end": plain(pair("k", 9, struct.pack("<IQ", 9, 1) * 9)),
    "no such type": plain(pair("k", 99, b"")),
    "a key twice": plain(ARCH, ARCH),
    "a tensor twice": plain(ARCH, tensors=row("a", (1,), 0, 0) * 2, count=2) + bytes(64),
    "a tensor of no type": plain(ARCH, tensors=row("a", (1,), 250, 0), count=1) + bytes(64),
    "a tensor beyond the file": plain(ARCH, tensors=row("a", (2**40,), 0, 0), count=1) + bytes(64),
    "an offset beyond the file": plain(ARCH, tensors=row("a", (1,), 0, 2**63), count=1) + bytes(64),
    "a row that no block fills": plain(ARCH, tensors=row("a", (33,), 2, 0), count=1) + bytes(640),
    "nine axes": plain(ARCH, tensors=row("a", (1,) * 9, 0, 0), count=1) + bytes(64),
    "an odd alignment": plain(ARCH, pair("general.alignment", 4, struct.pack("<I", 3))),
    "no alignment": plain(ARCH, pair("general.alignment", 8, text("x"))),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_a_finding(name: str, tmp_path: Path) -> None:
    (tmp_path / "d.gguf").write_bytes(DAMAGED[name])
    head, found = head_of(DAMAGED[name])
    assert head is None
    assert [f.code for f in found] == ["STF221"]
    assert "STF221" in codes(tmp_path / "d.gguf", tmp_path)


def test_every_cut_of_a_file_is_a_finding(tmp_path: Path) -> None:
    data = written(tmp_path / "d.gguf").read_bytes()
    head, _ = head_of(data)
    end = max(t.end for t in head.tensors.values())
    for cut in [*range(400), *range(400, end, 997), end - 1]:
        assert [f.code for f in head_of(data[:cut])[1]] == ["STF221"], cut


def test_every_changed_byte_of_a_head_gives_a_head_or_a_finding(tmp_path: Path) -> None:
    data = bytearray(written(tmp_path / "d.gguf").read_bytes())
    head, _ = head_of(bytes(data))
    for at in range(min(t.start for t in head.tensors.values())):
        for value in (0, 255):
            before, data[at] = data[at], value
            made, found = head_of(bytes(data))
            assert (made is None) == bool(found), at
            data[at] = before


def test_model_that_is_no_drafter_is_said_to_be_none(tmp_path: Path) -> None:
    report = check(str(written(tmp_path / "d.gguf", arch="gemma3")), target(tmp_path))
    found = [f for f in report.findings if f.code == "SRC116"]
    assert [(f.level, "gemma3" in f.observed) for f in found] == [("unknown", True)]


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("gguf"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    path = written(tmp_path / "d.gguf")
    ggufs._types.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    report = check(str(path), target(tmp_path))
    ggufs._types.cache_clear()
    found = [f for f in report.findings if f.code == "SRC129"]
    assert [(f.level, "draftproof[gguf]" in f.help) for f in found] == [("unknown", True)]


@pytest.mark.parametrize(
    ("tensors", "keys", "seen"),
    [
        ({"blk.0.attn_q.weight": (Q, H)}, {}, "refuses at load: llama_model_load: [32, 32] where it makes [32, 64]"),
        ({"blk.0.ffn_up.weight": None}, {}, "refuses at load: llama_model_load"),
        ({}, {"target_layers": [2, 4, 9]}, "refuses at load: GGML_ABORT: [9] are not there"),
    ],
)
def test_engine_is_predicted_for_a_gguf(
    tensors: dict[str, Any], keys: dict[str, Any], seen: str, tmp_path: Path
) -> None:
    shapes = {name: shape for name, shape in {**TENSORS, **tensors}.items() if shape is not None}
    path = str(written(tmp_path / "d.gguf", shapes, **keys))
    report = check_models(path, target(tmp_path), Library(), engines=["llama.cpp"])
    assert [f.observed.startswith(seen) for f in report.findings if f.code == "LCPP601"] == [True]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("eagle3.context_length", None, "key not found in model: eagle3.context_length"),
        ("tokenizer.ggml.model", None, "key not found in model: tokenizer.ggml.model"),
        ("tokenizer.ggml.model", "gpt2", "key not found in model: tokenizer.ggml.merges"),
        ("eagle3.attention.head_count_kv", 2.0, "key eagle3.attention.head_count_kv has a wrong type"),
        ("eagle3.rope.freq_base", 10000, "key eagle3.rope.freq_base has a wrong type"),
        ("eagle3.target_layers", ["2", "4", "5"], "refuses at load: llama_model_load"),
        ("eagle3.block_count", 0, "GGML_ASSERT(hparams.n_layer_all > 0"),
        ("eagle3.attention.value_length", None, None),
        ("eagle3.attention.value_length", 4, "attention.value_length is 4"),
        ("eagle3.attention.head_count", [4], None),
        ("eagle3.attention.head_count", [4, 4], "key eagle3.attention.head_count has a wrong type"),
        ("eagle3.expert_count", "4", "key eagle3.expert_count has a wrong type"),
        ("eagle3.expert_count", 4, "4 experts, of which 0 are used"),
        ("eagle3.nextn_predict_layers", 9, "nextn_predict_layers are more"),
        ("eagle3.nextn_predict_layers", 1, "the last 1 layers are taken for such as draft"),
        ("eagle3.rope.scaling.type", "odd", "LLAMA_ROPE_SCALING_TYPE_UNSPECIFIED"),
        ("eagle3.rope.dimension_count", 16, "GGML_ASSERT(n_dims <= ne0) failed"),
        ("eagle3.attention.layer_norm_rms_epsilon", float("nan"), "GGML_ASSERT(eps >= 0.0f) failed"),
        ("eagle3.block_count", 2, "tensor blk.1.attn_norm.weight not found"),
        ("general.file_type", "F32", "key general.file_type has a wrong type"),
        ("tokenizer.ggml.model", "odd", "key tokenizer.ggml.model has a wrong type"),
        ("tokenizer.ggml.pre", "odd", None),  # it is read of one kind of tokenizer alone
        ("tokenizer.ggml.scores", [0.5], "key tokenizer.ggml.scores has a wrong type"),
        ("tokenizer.ggml.bos_token_id", "1", "key tokenizer.ggml.bos_token_id has a wrong type"),
        ("tokenizer.ggml.tokens", ["t0"] * 40, "two tokens are the same"),
    ],
)
def test_keys_that_are_lost_or_of_another_type_are_refused(
    tmp_path: Path, key: str, value: Any, said: str | None
) -> None:
    path = str(changed(tmp_path / "d.gguf", {key: value}))
    report = check_models(path, target(tmp_path), Library(), engines=["llama.cpp"])
    seen = [f.observed for f in report.findings if f.code == "LCPP601"]
    assert (not seen) if said is None else any(said in one for one in seen), seen


def test_what_cannot_be_opened_is_refused_by_the_engine_too(tmp_path: Path) -> None:
    other, data = target(tmp_path), written(tmp_path / "d.gguf").read_bytes()
    text = data.index(b"general.architecture") - 8
    made = {
        "gguf_init_from_reader": b"GGML" + data[4:],
        "read: a text": data[:text] + struct.pack("<Q", 1 << 40) + data[text + 8 :],
        "not within the file bounds": data[:-40],
        "unknown model architecture: 'odd'": written(tmp_path / "e.gguf", arch="odd").read_bytes(),
    }
    for said, raw in made.items():
        (tmp_path / "d.gguf").write_bytes(raw)
        report = check_models(str(tmp_path / "d.gguf"), other, Library(), engines=["llama.cpp"])
        assert [said in f.observed for f in report.findings if f.code == "LCPP601"] == [True], said
    path = written(tmp_path / "f.gguf", arch="gemma3")  # the engine knows it, and no dialect does
    report = check_models(str(path), other, Library(), engines=["llama.cpp"])
    assert not [f for f in report.findings if f.code == "LCPP601"]


@pytest.mark.parametrize(
    ("values", "differs"),
    [
        ({}, False),
        ({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": ["a b"]}, True),
        ({"tokenizer.ggml.add_eos_token": True}, True),
        ({"tokenizer.ggml.add_bos_token": True}, False),  # as its kind of tokenizer does
        ({"tokenizer.ggml.tokens": [f"t{n}" for n in range(39)] + ["other"]}, True),
        ({"tokenizer.ggml.tokens": ["other"] + [f"t{n}" for n in range(1, 40)]}, False),
    ],
)
def test_plain_drafter_has_the_vocabulary_of_a_target_that_is_gguf(
    values: dict[str, Any], differs: bool, tmp_path: Path
) -> None:
    path = changed(tmp_path / "d.gguf", values, PLAIN, "llama")
    other = written(tmp_path / "t.gguf", {"token_embd.weight": (40, H)}, "llama", layers=8)
    report = check_models(str(path), str(other), Library(), engines=["llama.cpp"])
    assert any("vocab type must match" in f.observed for f in report.findings) == differs


@pytest.mark.parametrize(
    ("values", "cut", "said"),
    [
        ({}, 0, ""),
        ({}, 40, "not within the file bounds"),
        ({"llama.block_count": None}, 0, "key not found in model: llama.block_count"),
        ({"llama.rope.freq_base": 10000}, 0, "key llama.rope.freq_base has a wrong type"),
        ({"llama.attention.head_count": 8}, 0, "where it makes [32, 64]"),
    ],
)
def test_target_that_is_gguf_is_read_by_the_engine_first(
    values: dict[str, Any], cut: int, said: str, tmp_path: Path
) -> None:
    layers = {n.replace("blk.0.", f"blk.{i}."): s for i in range(8) for n, s in PLAIN.items()}
    path = changed(tmp_path / "t.gguf", values, layers, "llama", layers=8)
    path.write_bytes(path.read_bytes()[: -cut or None])
    report = check_models(str(written(tmp_path / "d.gguf")), str(path), Library(), engines=["llama.cpp"])
    seen = [f.observed for f in report.findings if f.code == "LCPP601"]
    assert ([said in one for one in seen] == [True]) if said else not seen, seen
