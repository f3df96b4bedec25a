"""Tiny targets and drafters as real files: healthy ones, and a pair whose accepted tokens are known in closed form.

    from draftproof.testing import fixtures

    fixtures.write(fixtures.model("target"), tmp_path / "target")
    pair = fixtures.known(break_every=5)        # pair.target, pair.drafter, pair.prompt, pair.accepted

fixtures.toml says what the models are. Values are made from a model's and a tensor's name when they are written, so
that config and tensor table of a model cost nothing, and two runs write the same bytes.
"""

from __future__ import annotations

import json
import math
import struct
import tomllib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

Config = dict[str, Any]
Table = dict[str, tuple[str, tuple[int, ...]]]  # name on disk -> dtype, shape
GAIN = 1.5  # of a weight, by the root of its inputs: each layer then changes the residual stream
SPREAD = 0.3  # of a norm's weights around one
STATE = 8.0  # known pair: root mean square of the state that a drafting step hands to the next; the token's own is 1
LEFT = 1.5  # known pair: how much of that state is left beside the token's embedding
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "?"}
_ITEM = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1}
CYCLE = 100  # known pair: how many tokens follow each other in a ring


@dataclass(frozen=True)
class Tensor:
    """Hold one tensor: dtype and shape at once, values [*shape] when they are asked for."""

    dtype: str
    shape: tuple[int, ...]
    values: Callable[[], Any] = field(repr=False, compare=False)


@dataclass
class Model:
    """Hold one checkpoint: config, tensors by name on disk, and other files by name, each made when it is written."""

    name: str
    config: Config
    tensors: dict[str, Tensor]
    files: dict[str, Callable[[], bytes]] = field(default_factory=dict)
    weights: str = "model.safetensors"  # the file of the tensors; one of this name in `files` stands for it
    gone: tuple[str, ...] = ()  # files that are not written

    @property
    def table(self) -> Table:
        """Return the dtype and shape of each tensor, without making values."""
        return {name: (tensor.dtype, tensor.shape) for name, tensor in self.tensors.items()}

    def copy(self) -> Model:
        """Return a model that may be changed without changing this one."""
        return replace(
            self, config=json.loads(json.dumps(self.config)), tensors=dict(self.tensors), files=dict(self.files)
        )


@dataclass(frozen=True)
class Known:
    """Hold a pair that is known in closed form, and what drafting `drafts` tokens a step must give on it, greedily."""

    target: Model
    drafter: Model
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]  # what follows the prompt
    drafts: int
    steps: int
    accepted: int
    accepted_by_position: tuple[int, ...]

    @property
    def drafted(self) -> int:
        """Return how many tokens are proposed in all."""
        return self.steps * self.drafts


@cache
def _data() -> dict[str, Any]:
    data: dict[str, Any] = tomllib.loads(Path(__file__).with_name("fixtures.toml").read_text(encoding="utf-8"))
    return data["model"]  # type: ignore[no-any-return]


def names() -> tuple[str, ...]:
    """Return the names of all models."""
    return tuple(_data())


def model(name: str) -> Model:
    """Return the model of a name; its values are made when they are written."""
    row = _data()[name]
    config = _config(name)
    sizes, tensors = _sizes(config), {}
    for pattern, text in _tensors(name).items():
        for real in _each(pattern, sizes["num_hidden_layers"]):
            tensors[real] = made_of(name, real, text, config)
    made = Model(name, config, tensors)
    if "tokenizer" in row.get("files", ()):
        made.files |= tokenizer(sizes["vocab_size"])
    return made


def _config(name: str) -> Config:
    row = _data()[name]
    base = _config(row["like"]) if "like" in row else {}
    base |= row.get("config", {})
    return {key: _nested(value) for key, value in base.items()}


def _nested(value: Any) -> Any:
    if isinstance(value, dict) and "like" in value:
        return {key: part for key, part in _config(value["like"]).items() if key not in value["without"]}
    return json.loads(json.dumps(value))


def _tensors(name: str) -> dict[str, str]:
    row = _data()[name]
    own = dict(row.get("tensors", {}))
    like = own.pop("like", None if own else row.get("like"))
    return {**(_tensors(like) if like else {}), **own}


def _each(pattern: str, layers: int) -> list[str]:
    return [pattern.format(layer=n) for n in range(layers)] if "{layer}" in pattern else [pattern]


def _product(term: str, sizes: Mapping[str, Any]) -> int:
    size = 1
    for word in term.split("*"):
        size *= int(word) if word.isdigit() else sizes[word]
    return size


def made_of(owner: str, name: str, text: str, config: Config) -> Tensor:
    """Return the tensor of a row of fixtures.toml."""
    *kinds, shape = text.partition(" ")[::2] if text.partition(" ")[0] in _KINDS else (text,)
    dims = dims_of(shape, config)
    return tensor(owner, name, kinds[0] if kinds else ("norm", "weight")[len(dims) > 1], dims, _sizes(config))


def dims_of(text: str, config: Config) -> tuple[int, ...]:
    """Return the sizes of a row of products of numbers and config keys."""
    return tuple(_product(term, _sizes(config)) for term in text.split())


def _sizes(config: Config) -> Config:
    return {**config, **config.get("transformer_layer_config", {})}


def tensor(owner: str, name: str, kind: str, shape: tuple[int, ...], sizes: Mapping[str, Any]) -> Tensor:
    """Return a tensor of a kind of values (fixtures.toml), which are made from the names of its owner and itself.

    Floats are those of bfloat16, so that a tensor that is stored as such, and nothing else, loses nothing.
    """
    dtype, make = _KINDS[kind]
    made: Callable[[], Any] = lambda: make(noise(f"{owner}/{name}", shape), sizes)  # noqa: E731
    return Tensor(dtype, shape, (lambda: rounded(made())) if dtype == "F32" else made)


def rounded(values: Any) -> Any:
    """Return the floats of bfloat16 that are nearest to values, as float32."""
    import numpy as np  # noqa: PLC0415

    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    even = (bits + (0x7FFF + ((bits >> 16) & 1))) & 0xFFFF0000
    return np.where(np.isnan(values), np.float32("nan"), even.astype("<u4").view("<f4"))


def noise(name: str, shape: Sequence[int]) -> Any:
    """Return normal noise [*shape], float64, that is the same for the same name."""
    import numpy as np  # noqa: PLC0415

    return np.random.default_rng(zlib.crc32(name.encode())).standard_normal(tuple(shape))


def kept(sizes: Mapping[str, Any]) -> Any:
    """Return the token ids that a drafter of these sizes keeps, ascending: int64 [draft_vocab_size]."""
    import numpy as np  # noqa: PLC0415

    rng = np.random.default_rng(sizes["draft_vocab_size"])
    return np.sort(rng.permutation(sizes["vocab_size"])[: sizes["draft_vocab_size"]]).astype(np.int64)


def _offsets(shape: Any, sizes: Mapping[str, Any]) -> Any:
    return kept(sizes) - range(len(shape))


def _mask(shape: Any, sizes: Mapping[str, Any]) -> Any:
    import numpy as np  # noqa: PLC0415

    return np.isin(np.arange(len(shape)), kept(sizes))


_KINDS: dict[str, tuple[str, Callable[[Any, Mapping[str, Any]], Any]]] = {
    "weight": ("F32", lambda x, sizes: x * GAIN / x.shape[-1] ** 0.5),
    "embedding": ("F32", lambda x, sizes: x * 0.02),
    "norm": ("F32", lambda x, sizes: 1 + SPREAD * x),
    "signed": ("F32", lambda x, sizes: (1 + SPREAD * abs(x)) * (1 - 2 * (x < 0))),
    "bias": ("F32", lambda x, sizes: x),
    "zeros": ("F32", lambda x, sizes: x * 0),
    "map": ("I64", _offsets),
    "kept": ("BOOL", _mask),
}


# --- files --------------------------------------------------------------------------------------------------------


def write(model: Model, folder: Path) -> Path:
    """Write a checkpoint into a folder, which is made, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if "config.json" not in model.gone:
        (folder / "config.json").write_text(json.dumps(model.config, indent=2) + "\n", encoding="utf-8")
    if model.tensors and model.weights not in model.gone:
        (folder / model.weights).write_bytes(safetensors(model.tensors))
    for name, content in ((name, made) for name, made in model.files.items() if name not in model.gone):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content())
    return folder


def safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Return the bytes of a safetensors file that holds these tensors."""
    return header(tensors) + b"".join(stored(tensor) for tensor in tensors.values())


def header(tensors: Mapping[str, Tensor]) -> bytes:
    """Return the header of a safetensors file that holds these tensors, its length in front; makes no value."""
    rows: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in tensors.items():
        rows[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [at, at + nbytes(tensor)]}
        at += nbytes(tensor)
    text = json.dumps(rows).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def nbytes(tensor: Tensor) -> int:
    """Return how many bytes a tensor takes."""
    return _ITEM[tensor.dtype] * math.prod(tensor.shape)


def stored(tensor: Tensor) -> bytes:
    """Return the bytes of a tensor's values."""
    import numpy as np  # noqa: PLC0415

    values = np.asarray(tensor.values())
    if values.shape != tensor.shape:
        raise ValueError(f"values have the shape {values.shape}, the tensor says {tensor.shape}")
    if tensor.dtype != "BF16":
        return np.ascontiguousarray(values, dtype=_TYPES[tensor.dtype]).tobytes()
    return bytes((np.ascontiguousarray(rounded(values), dtype="<f4").view("<u4") >> 16).astype("<u2").tobytes())


def tokenizer(vocab_size: int) -> dict[str, Callable[[], bytes]]:
    """Return the files of a byte-level tokenizer of vocab_size tokens; ids 1, 2 and 3 start, end and pad."""

    def settings() -> bytes:
        return _json({
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
            "pad_token": "<pad>", "unk_token": "<unk>", "clean_up_tokenization_spaces": False,
        })  # fmt: skip

    return {"tokenizer.json": partial(_tokenizer, vocab_size), "tokenizer_config.json": settings}


@cache
def _tokenizer(vocab_size: int) -> bytes:
    special = ["<unk>", "<s>", "</s>", "<pad>"]
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = [chr(n) for n in plain] + [chr(256 + n) for n in range(256 - len(plain))]
    letters = [chr(n) for n in range(ord("a"), ord("z") + 1)]
    pairs = [[a, b] for a in letters for b in letters][: vocab_size - len(special) - len(alphabet)]
    tokens = special + alphabet + [a + b for a, b in pairs]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    empty = dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"))
    return _json({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": n, "content": text, **flags, "special": True} for n, text in enumerate(special)],
        "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", **empty, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {text: n for n, text in enumerate(tokens)}, "merges": pairs},
    })  # fmt: skip


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1).encode()


# --- the pair that is known in closed form ------------------------------------------------------------------------


def known(break_every: int = 0, drafts: int = 3, steps: int = 25) -> Known:
    """Return the known pair; with break_every N, each N-th token of its ring is followed by a wrong proposal.

    Target: attention adds nothing, so the next token depends on the last one alone: the next of a ring of tokens.
    Drafter: a position attends to itself. Attention takes away most of the state, of size STATE, that a step is handed,
    and adds the token's embedding; the MLP makes of that the token's own state, from which the head reads the next
    token. The fusion makes the same state of a token's features. So every tensor must be right, and layers must be.
    """
    target, drafter, ring = _known(break_every)
    wrong = {token for n, token in enumerate(ring) if break_every and n % break_every == 0}
    prompt, n, counts = tuple(ring[:8]), 8, [0] * drafts  # the first of the answer is the target's
    used, length = 0, 1 + steps * (drafts + 1)
    for _ in range(steps) if not break_every else iter(int, 1):
        if n + 1 - 8 >= length:
            break
        chain = [ring[(n + k) % len(ring)] for k in range(drafts)]  # the tokens that the proposals follow
        right = next((k for k, token in enumerate(chain) if token in wrong), drafts)
        counts = [count + (k < right) for k, count in enumerate(counts)]
        n, used = n + right + 1, used + 1
    tokens = tuple(ring[(8 + k) % len(ring)] for k in range(length))
    return Known(target, drafter, prompt, tokens, drafts, used, sum(counts), tuple(counts))


def known_models() -> dict[str, Model]:
    """Return target and drafter of the known pair by name, unbroken."""
    target, drafter, _ = _known(0)
    return {target.name: target, drafter.name: drafter}


def _known(break_every: int) -> tuple[Model, Model, list[int]]:
    target, drafter = model("known-target"), model("known-drafter")
    ring = ring_of(drafter.config)
    plain = target.copy(), drafter.copy()

    @cache
    def values() -> dict[str, Any]:
        return _solve(*plain, ring, break_every)

    for made in (target, drafter):
        for name, tensor in made.tensors.items():
            made.tensors[name] = replace(tensor, values=_pick(values, f"{made.name}/{name}", tensor.values))
    return target, drafter, ring


def _pick(values: Callable[[], dict[str, Any]], name: str, otherwise: Callable[[], Any]) -> Callable[[], Any]:
    def get() -> Any:
        found = values().get(name)
        return otherwise() if found is None else found

    return get


def ring_of(sizes: Mapping[str, Any]) -> list[int]:
    """Return the token ids of the known pair's ring, in their order."""
    import numpy as np  # noqa: PLC0415

    ids = kept(sizes)
    ids = ids[ids >= 4]  # not the tokenizer's special ones
    return [int(i) for i in np.random.default_rng(1).permutation(ids)[:CYCLE]]


def _solve(target: Model, drafter: Model, ring: list[int], break_every: int) -> dict[str, Any]:
    import numpy as np  # noqa: PLC0415

    cfg, own = target.config, drafter.config
    hidden, eps, count = cfg["hidden_size"], cfg["rms_norm_eps"], len(ring)

    def read(made: Model, name: str) -> Any:
        return np.asarray(made.tensors[name].values(), dtype=np.float32).astype(np.float64)

    def unit(x: Any) -> Any:
        return x / np.sqrt((x * x).mean(-1, keepdims=True))

    def rms(x: Any, weight: Any) -> Any:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight

    def gated(x: Any, gate: Any, up: Any) -> Any:
        x, z = x @ up.T, x @ gate.T
        return x * z / (1 + np.exp(-z))

    def single(x: Any) -> Any:
        return x.astype(np.float32).astype(np.float64)

    embed = single(unit(noise("known/embed", (cfg["vocab_size"], hidden))))
    zero = np.zeros((hidden, cfg["num_attention_heads"] * cfg["head_dim"]))
    out = {"known-target/model.embed_tokens.weight": embed}
    stream, streams = embed[ring], []  # the residual stream entering each layer, [CYCLE, hidden_size]
    for n in range(cfg["num_hidden_layers"]):
        at = f"model.layers.{n}."
        streams.append(stream)
        out[f"known-target/{at}self_attn.o_proj.weight"] = zero
        x = rms(stream, read(target, f"{at}post_attention_layernorm.weight"))
        x = gated(x, read(target, f"{at}mlp.gate_proj.weight"), read(target, f"{at}mlp.up_proj.weight"))
        stream = stream + x @ read(target, f"{at}mlp.down_proj.weight").T
    follows = [ring[(n + 1) % count] for n in range(count)]
    head = np.zeros((cfg["vocab_size"], hidden))
    head[follows] = unit(stream / read(target, "model.norm.weight")) * 0.3
    out["known-target/lm_head.weight"] = head

    # what the fusion and the MLP must give is solved for: fewer tokens than inputs, so it is met exactly
    def fit(x: Any, y: Any) -> Any:
        return np.linalg.lstsq(x, y, rcond=None)[0].T

    at = "midlayer."
    before, state, after, last = (
        read(drafter, name)
        for name in (f"{at}input_layernorm.weight", f"{at}hidden_norm.weight",
                     f"{at}post_attention_layernorm.weight", "norm.weight")
    )  # fmt: skip
    wanted = unit(noise("known/state", (count, hidden)))
    handed = np.roll(wanted, 1, 0)  # the state of the token before, which a step is handed, as far as it is left
    fc = fit(np.concatenate([streams[n] for n in (2, 4, 5)], -1), STATE * wanted)
    none = np.zeros((own["num_attention_heads"] * own["head_dim"], hidden))
    attend = np.concatenate([np.diag(3 / before), none], 1)
    turn = np.linalg.qr(noise("known/turn", (hidden, hidden)))[0]  # so that no tensor is its own transpose
    value = np.concatenate([np.diag(1 / before), np.diag((LEFT - STATE) / state)], 1)
    mixed = rms(embed[ring], np.ones(hidden)) + LEFT * handed  # what attention makes of the token and that state
    x = gated(rms(mixed, after), read(drafter, f"{at}mlp.gate_proj.weight"), read(drafter, f"{at}mlp.up_proj.weight"))
    lines = own["draft_vocab_size"]
    ids = {int(token): n for n, token in enumerate(kept(own))}
    read_out = np.zeros((lines, hidden))
    for n, token in enumerate(follows):
        if not (break_every and n % break_every == 0):
            read_out[ids[token]] = wanted[n] / last * 0.3
    out |= {f"known-drafter/{name}": value for name, value in {
        "fc.weight": fc,
        f"{at}self_attn.q_proj.weight": attend,
        f"{at}self_attn.k_proj.weight": attend,
        f"{at}self_attn.v_proj.weight": turn.T @ value,
        f"{at}self_attn.o_proj.weight": turn,
        f"{at}mlp.down_proj.weight": fit(x, STATE * wanted - mixed),
        "lm_head.weight": read_out,
    }.items()}  # fmt: skip
    return out
