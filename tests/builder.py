"""Tiny checkpoints: layouts by hand from what trainers write, layouts from a contract, and the files that hold them.

The hand-written tables say what trainers and published repos contain. They do not look at our contracts, so that the
two can disagree. Sizes are all different, and a head is wider than hidden // heads, as in Kimi drafters.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from draftproof import api
from draftproof.checkpoint import Checkpoint
from draftproof.conform import View, conform, layout
from draftproof.contracts import Fact
from draftproof.findings import Finding, Report
from draftproof.hub import Source
from draftproof.library import Library
from draftproof.recognise import recognise
from draftproof.render import finding_text

Table = dict[str, tuple[str, tuple[int, ...]]]  # name on disk -> dtype, shape
Config = dict[str, Any]

HIDDEN, HEADS, KV, DIM, INTER = 64, 4, 2, 44, 96
VOCAB, DRAFT, LAYERS = 512, 150, 12
Q_RANK, KV_RANK, NOPE, ROTARY, V_DIM = 48, 24, 42, 16, 36
TARGET, DRAFTER = "org/target", "org/drafter"
FACTS = {
    "trained_on": Fact(TARGET, "its card"),
    "aux_convention": Fact("boundary", "its card"),
    "meanings.norm_output": Fact("recycles-the-normed-state", "its card"),
}
LIBRARY = Library()
# A llama target and an eagle3 drafter of it, for what adapt makes of them.
SMALL_TARGET: Config = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "num_hidden_layers": 8, "vocab_size": 512,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 5e5, "torch_dtype": "bfloat16",
    "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
}  # fmt: skip
SMALL_DRAFTER: Config = SMALL_TARGET | {
    "architectures": ["LlamaForCausalLMEagle3"], "intermediate_size": 96, "num_hidden_layers": 1,
    "draft_vocab_size": 128, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 4, 5]},
}  # fmt: skip
# What readers of other habits make of a right drafter, as info: tests/corpus and test_other_readers are about these.
ASIDE = ("CFG320", "CFG321", "CFG322", "CFG323", "CFG324", "PAIR431", "PAIR432")
ABSENT: Any = object()  # in place of a config value: the key is not there


def edit(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Config:
    """Return a config with dotted keys set, or removed where the value is ABSENT."""
    out: Config = deepcopy(dict(base))
    for key, value in changes.items():
        *path, last = key.split(".")
        table = out
        for part in path:
            if not isinstance(table.get(part), dict):
                table[part] = {}
            table = table[part]
        if value is ABSENT:
            table.pop(last, None)
        else:
            table[last] = value
    return out


def changed(table: Table, changes: Mapping[str, Any]) -> Table:
    """Return a table with tensors added or replaced, or removed where the value is None."""
    merged = {**table, **changes}
    return {name: row for name, row in merged.items() if row is not None}


# --- drafters, by hand --------------------------------------------------------------------------------------------


def dense_config(**changes: Any) -> Config:
    """Return the config of an EAGLE-3 drafter as SpecForge writes it."""
    return edit(
        {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "hidden_size": HIDDEN,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV,
            "head_dim": DIM,
            "intermediate_size": INTER,
            "num_hidden_layers": 1,
            "vocab_size": VOCAB,
            "draft_vocab_size": DRAFT,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "attention_bias": False,
            "mlp_bias": False,
            "torch_dtype": "bfloat16",
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
            "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 6, 9], "use_aux_hidden_state": True},
        },
        changes,
    )


def dense(
    *,
    style: str = "midlayer",
    layers: int = 1,
    aux: int = 3,
    hidden: int = HIDDEN,
    target_hidden: int = HIDDEN,
    heads: int = HEADS,
    kv: int = KV,
    dim: int = DIM,
    draft: int = DRAFT,
    vocab: int = VOCAB,
    dtype: str = "BF16",
    index: str = "I64",
    maps: bool = True,
    t2d: bool = True,
    head: bool = True,
    embed: bool = False,
    qk_norm: bool = False,
    fc_norm: bool = False,
    input_norm: bool = False,
    attention_bias: bool = False,
    mlp_bias: bool = False,
    fc_bias: bool = False,
    later: Sequence[str] = ("input_layernorm", "hidden_norm"),
) -> Table:
    """Return the tensors of a dense EAGLE-3 drafter (facts/families 1.1), under the names of one trainer (1.2)."""
    sizes: dict[str, tuple[int, ...]] = {"fc.weight": (hidden, aux * target_hidden), "norm.weight": (hidden,)}
    for i in range(layers):
        width, p = (2 * hidden if i == 0 else hidden), f"layers.{i}."
        sizes |= {
            f"{p}self_attn.q_proj.weight": (heads * dim, width),
            f"{p}self_attn.k_proj.weight": (kv * dim, width),
            f"{p}self_attn.v_proj.weight": (kv * dim, width),
            f"{p}self_attn.o_proj.weight": (hidden, heads * dim),
            f"{p}mlp.gate_proj.weight": (INTER, hidden),
            f"{p}mlp.up_proj.weight": (INTER, hidden),
            f"{p}mlp.down_proj.weight": (hidden, INTER),
            f"{p}post_attention_layernorm.weight": (hidden,),
        }
        for norm in ("input_layernorm", "hidden_norm") if i == 0 else later:
            sizes[f"{p}{norm}.weight"] = (hidden,)
        if qk_norm:
            sizes |= {f"{p}self_attn.q_norm.weight": (dim,), f"{p}self_attn.k_norm.weight": (dim,)}
        if attention_bias:
            sizes |= {f"{p}self_attn.{x}_proj.bias": (n * dim,) for x, n in (("q", heads), ("k", kv), ("v", kv))}
        if mlp_bias:
            sizes |= {f"{p}mlp.{x}_proj.bias": (n,) for x, n in (("gate", INTER), ("up", INTER), ("down", hidden))}
    if fc_bias:
        sizes["fc.bias"] = (hidden,)
    if fc_norm:
        sizes |= {f"fc_norm.{k}.weight": (target_hidden,) for k in range(aux)}
    if input_norm:
        sizes["input_norm.weight"] = (aux * target_hidden,)
    if head:
        sizes["lm_head.weight"] = (draft, hidden)
    if embed:
        sizes["embed_tokens.weight"] = (vocab, hidden)
    out: Table = {name: (dtype, shape) for name, shape in sizes.items()}
    if maps:
        out |= {"d2t": (index, (draft,))} | ({"t2d": ("BOOL", (vocab,))} if t2d else {})
    return {STYLES[style](name): row for name, row in out.items()}


def _midlayer(name: str) -> str:
    return name.replace("layers.0.", "midlayer.")


def _aux_norm(name: str) -> str:
    for k, word in enumerate(("low", "mid", "high")):
        name = name.replace(f"fc_norm.{k}.", f"aux_norm_{word}.")
    return _midlayer(name)


STYLES: Mapping[str, Callable[[str], str]] = {
    "bare": lambda name: name,
    "midlayer": _midlayer,
    "nested": lambda name: name if name.startswith(("lm_head", "d2t", "t2d")) else f"model.{name}",
    "aux-norm": _aux_norm,
    "trainer": lambda name: f"draft_model.{_midlayer(name)}",
    "trainer-bare": lambda name: f"draft_model.{name}",
}


def mla_config(**changes: Any) -> Config:
    """Return the config of an EAGLE-3 drafter with latent attention, as for Kimi-K2.5."""
    more = {
        "architectures": ["Eagle3DeepseekV2ForCausalLM"],
        "model_type": "kimi_k2",
        "num_key_value_heads": HEADS,
        "q_lora_rank": Q_RANK,
        "kv_lora_rank": KV_RANK,
        "qk_nope_head_dim": NOPE,
        "qk_rope_head_dim": ROTARY,
        "v_head_dim": V_DIM,
        "rope_theta": 50000.0,
    }
    return edit(dense_config(), more | changes)


def mla(*, style: str = "midlayer", draft: int = DRAFT, vocab: int = VOCAB, maps: bool = True) -> Table:
    """Return the tensors of an MLA EAGLE-3 drafter (facts/families 2)."""
    p = "layers.0."
    sizes: dict[str, tuple[int, ...]] = {
        "fc.weight": (HIDDEN, 3 * HIDDEN),
        f"{p}self_attn.q_a_proj.weight": (Q_RANK, 2 * HIDDEN),
        f"{p}self_attn.q_a_layernorm.weight": (Q_RANK,),
        f"{p}self_attn.q_b_proj.weight": (HEADS * (NOPE + ROTARY), Q_RANK),
        f"{p}self_attn.kv_a_proj_with_mqa.weight": (KV_RANK + ROTARY, 2 * HIDDEN),
        f"{p}self_attn.kv_a_layernorm.weight": (KV_RANK,),
        f"{p}self_attn.kv_b_proj.weight": (HEADS * (NOPE + V_DIM), KV_RANK),
        f"{p}self_attn.o_proj.weight": (HIDDEN, HEADS * V_DIM),
        f"{p}mlp.gate_proj.weight": (INTER, HIDDEN),
        f"{p}mlp.up_proj.weight": (INTER, HIDDEN),
        f"{p}mlp.down_proj.weight": (HIDDEN, INTER),
        f"{p}input_layernorm.weight": (HIDDEN,),
        f"{p}hidden_norm.weight": (HIDDEN,),
        f"{p}post_attention_layernorm.weight": (HIDDEN,),
        "norm.weight": (HIDDEN,),
        "lm_head.weight": (draft, HIDDEN),
    }
    out: Table = {name: ("BF16", shape) for name, shape in sizes.items()}
    if maps:
        out |= {"d2t": ("I64", (draft,)), "t2d": ("BOOL", (vocab,))}
    return {STYLES[style](name): row for name, row in out.items()}


# --- targets, by hand ---------------------------------------------------------------------------------------------


def target_config(**changes: Any) -> Config:
    """Return the config of a Llama target."""
    return edit(
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": HIDDEN,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV,
            "head_dim": DIM,
            "intermediate_size": 160,
            "num_hidden_layers": LAYERS,
            "vocab_size": VOCAB,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
        },
        changes,
    )


_LATENT = {
    "q_lora_rank": Q_RANK,
    "kv_lora_rank": KV_RANK,
    "qk_nope_head_dim": NOPE,
    "qk_rope_head_dim": ROTARY,
    "v_head_dim": V_DIM,
    "n_routed_experts": 8,
    "rope_theta": 50000.0,
}


def deepseek_config(**changes: Any) -> Config:
    """Return the config of a DeepSeek-V3 or Kimi-K2 target."""
    own = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2"}
    return edit(target_config(), own | _LATENT | changes)


def kimi_k25_config(**changes: Any) -> Config:
    """Return the config of a Kimi-K2.5 target, its text model nested."""
    own = {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25", "dtype": "bfloat16"}
    return edit({**own, "text_config": deepseek_config(), "vision_config": {"patch_size": 14}}, changes)


def target(*, prefix: str = "model.", head: str = "lm_head.weight", hidden: int = HIDDEN, vocab: int = VOCAB) -> Table:
    """Return some tensors of a target: those that a drafter borrows, and some that it does not."""
    out: Table = {
        f"{prefix}embed_tokens.weight": ("BF16", (vocab, hidden)),
        f"{prefix}norm.weight": ("BF16", (hidden,)),
        f"{prefix}layers.0.input_layernorm.weight": ("BF16", (hidden,)),
        f"{prefix}layers.0.mlp.gate_proj.weight": ("BF16", (160, hidden)),
    }
    return out | ({head: ("BF16", (vocab, hidden))} if head else {})


# --- from a contract ----------------------------------------------------------------------------------------------


def from_contract(config: Config, base: Config, dialect: str = "", *, optional: bool = True) -> Table:
    """Return the tensors that a family's own contract asks for, for a target of another config."""
    checkpoint = Checkpoint(Source(DRAFTER, "config", config=config), "drafter")
    contract, _ = recognise(LIBRARY, checkpoint, "family")
    assert contract is not None
    names = {d.name: d for d in contract.dialects}
    case = api.examine({"config": config, "tensors": {}}, {"config": base, "tensors": {}}, LIBRARY)
    assert case.couple is not None
    rows = layout(contract, case.couple.dims, optional=optional)
    write = names[dialect].encode if dialect else str
    return {write(name): (want.rule.dtype[0], shape) for name, (want, shape) in rows.items()}


# --- files --------------------------------------------------------------------------------------------------------

_BITS = {"BF16": 16, "F16": 16, "F32": 32, "I64": 64, "I32": 32, "BOOL": 8, "U8": 8, "F8_E4M3": 8}


def safetensors(table: Table) -> bytes:
    """Return a safetensors file: a regular draft vocabulary, all weights zero. test_good reads it with safetensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, shape) in sorted(table.items(), key=lambda row: -_BITS[row[1][0]]):
        start = len(data)
        data += _data(name, dtype, shape, table)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, len(data)]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    return len(head).to_bytes(8, "little") + head + data


def _data(name: str, dtype: str, shape: Sequence[int], table: Table) -> bytes:
    short = name.rpartition(".")[2]
    draft, full = (math.prod(next((s for n, (_, s) in table.items() if n.endswith(x)), (1,))) for x in ("d2t", "t2d"))
    step = max(full // draft, 1)
    if short == "d2t" and dtype in ("I64", "I32"):
        return array("q" if dtype == "I64" else "i", (i * (step - 1) for i in range(math.prod(shape)))).tobytes()
    if short == "t2d" and dtype == "BOOL":
        return bytes(i % step == 0 and i < draft * step for i in range(math.prod(shape)))
    return bytes(math.prod(shape) * _BITS[dtype] // 8)


def write(folder: Path, config: Any, table: Table | None, *, shards: int = 1) -> Path:
    """Write config.json and the weights, in shards with an index if more than one."""
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config, indent=2))
    if table is not None and shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors(table))
    elif table is not None:
        names, where = sorted(table), {}
        for n in range(shards):
            file = f"model-{n + 1:05d}-of-{shards:05d}.safetensors"
            part = names[n::shards]
            where |= dict.fromkeys(part, file)
            (folder / file).write_bytes(safetensors({name: table[name] for name in part}))
        total = sum(math.prod(shape) * _BITS[dtype] // 8 for dtype, shape in table.values())
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


# --- asking -------------------------------------------------------------------------------------------------------


def recorded(config: Any, table: Table | None, name: str = DRAFTER, unknown: Iterable[str] = ()) -> Source:
    """Return what a recording of a checkpoint holds, some of its config keys unknown."""
    named = {n: [dtype, list(shape)] for n, (dtype, shape) in (table or {}).items()}
    tensors = None if table is None else {"complete": True, "count": len(named), "parameters": None, "named": named}
    return Source(
        name, "recording", repo=name, revision="0" * 40, provenance="recorded", config=config, tensors=tensors,
        unknown=frozenset(unknown),
    )  # fmt: skip


def given(config: Any, table: Table | None, name: str) -> dict[str, Any]:
    """Return a model in memory."""
    return {"config": config, "tensors": table, "name": name}


def check(
    drafter: Any, other: Any = None, *, facts: Mapping[str, Fact] = FACTS, library: Library = LIBRARY, family: str = ""
) -> Report:
    """Check a drafter with a target, with what is declared; a model in memory is the repo that its name says."""
    repos = (_repo(drafter), _repo(other))
    return api.report(api.examine(drafter, other, library, facts=facts, family=family, repos=repos), "a pair")


def _repo(model: Any) -> str:
    if isinstance(model, Mapping):
        return str(model.get("name", ""))
    return model if model in (DRAFTER, TARGET) and Path(model).is_dir() else ""


def pair(config: Any, table: Table | None, base: Any = None, base_table: Table | None = None, **more: Any) -> Report:
    """Check a drafter in memory with a target in memory, a Llama by default."""
    own, theirs = (target_config() if base is None else base), (target() if base_table is None else base_table)
    return check(given(config, table, DRAFTER), given(own, theirs, TARGET), **more)


def view(config: Config, table: Table, kind: str = "family") -> View:
    """Return one side in memory as its contract sees it."""
    checkpoint = Checkpoint(recorded(config, table), "drafter" if kind == "family" else "target")
    contract, found = recognise(LIBRARY, checkpoint, kind)
    assert contract is not None, found
    return conform(contract, checkpoint, library=LIBRARY)


def against(report: Report) -> list[Finding]:
    """Return what is said against a pair: all findings but passes, and but what is of use to other readers alone."""
    return [f for f in report.findings if f.level != "pass" and f.code not in ASIDE]


def codes(report: Report) -> set[str]:
    """Return "CODE", or "CODE level" where the level is not error, of all that is said."""
    return {f.code if f.level == "error" else f"{f.code} {f.level}" for f in against(report)}


def text(report: Report) -> str:
    """Return all that is said, as printed, on one line."""
    return " ".join(" ".join(finding_text(f).split()) for f in against(report))
