"""The full text of findings, as a person reads them: what, expected, observed, bindings, note, help."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

import builder as b
from draftproof.findings import Finding, Report, finding
from draftproof.library import shipped_root
from draftproof.render import WIDTH, finding_text
from draftproof.rules import RULES

CONFIG, TABLE = b.dense_config(), b.dense()
IDS, PARTIAL = "eagle_config.eagle_aux_hidden_state_layer_ids", {"partial_rotary_factor": 0.5}
WIDE = (b.target_config(hidden_size=80), b.target(hidden=80))
MIXED = {"midlayer.hidden_norm.weight": None, "layers.0.hidden_norm.weight": ("BF16", (64,))}


def four_states_wide() -> Report:
    """Return the example of the design: fc takes four states, the config names none."""
    sizes = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
    config = b.dense_config(**sizes, vocab_size=32000, draft_vocab_size=8000, eagle_config=b.ABSENT)
    table = b.dense(hidden=4096, target_hidden=4096, heads=32, kv=8, dim=128, draft=8000, vocab=32000)
    wrong = {"fc.weight": ("BF16", (4096, 16384))}
    base = b.target_config(hidden_size=4096, vocab_size=32000)
    return b.pair(config, b.changed(table, wrong), base, b.target(hidden=4096, vocab=32000))


MESSAGES: dict[str, tuple[Callable[[], Report], str]] = {
    "TEN403": (
        four_states_wide,
        """
TEN403 drafter fc.weight: shape differs  contracts/families/eagle3.toml
  expected  [hidden, aux * target.hidden] = [4096, 3 * 4096] = [4096, 12288]
  observed  [4096, 16384]   (in memory, org/drafter (in memory))
  bindings  hidden=4096 (drafter config.json: hidden_size)
            aux=3 (default: 3, without drafter: num_aux_hidden_states,
            len(eagle_config.eagle_aux_hidden_state_layer_ids), len(eagle_aux_hidden_state_layer_ids))
            target.hidden=4096 (default: hidden, without drafter: target_hidden_size)
  note      16384 = 4 * 4096: matches if aux were 4
  help      Mend the config key or the tensor, whichever is wrong.
""",
    ),
    "TEN401": (
        lambda: b.pair(CONFIG, b.changed(TABLE, {"norm.weight": None})),
        """
TEN401 drafter norm.weight: required tensor is missing  contracts/families/eagle3.toml
  expected  [hidden] = [64]
  observed  not in the checkpoint   (org/drafter (in memory))
  help      Export the checkpoint again, whole.
""",
    ),
    "TEN402": (
        lambda: b.pair(CONFIG, b.changed(TABLE, {"adapter.weight": ("BF16", (96, 64))})),
        """
TEN402 drafter adapter.weight: tensor is not part of the family  contracts/families/eagle3.toml
  expected  a tensor of eagle3
  observed  BF16 [96, 64]   (in memory, org/drafter (in memory))
  help      Remove the tensor, or use the family (or flag) that has it.
""",
    ),
    "TEN404": (
        lambda: b.pair(CONFIG, b.changed(TABLE, {"d2t": ("U8", (150,))})),
        """
TEN404 drafter d2t: dtype is not one of those the family allows  contracts/families/eagle3.toml
  expected  I64 or I32
  observed  U8   (in memory, org/drafter (in memory))
  help      Export the tensor with an allowed dtype.
""",
    ),
    "TEN405": (
        lambda: b.pair(CONFIG, b.changed(TABLE, {"fc.bias": ("BF16", (64,))})),
        """
TEN405 drafter fc.bias: tensor must not be there  contracts/families/eagle3.toml
  expected  absent unless use_aux and fc_bias
  observed  BF16 [64]   (in memory, org/drafter (in memory))
  bindings  use_aux=True (drafter config.json: eagle_config.use_aux_hidden_state)
            fc_bias=False (default: false, without drafter: bias)
  help      Remove the tensor, or change the config key that forbids it.
""",
    ),
    "TEN406": (
        lambda: b.pair(CONFIG, b.dense(style="trainer")),
        """
TEN406 drafter names: names still carry the trainer's wrapper
  expected  names of a serving checkpoint
  observed  draft_model.fc.weight, draft_model.norm.weight, draft_model.midlayer.self_attn.q_proj.weight,
            draft_model.midlayer.self_attn.k_proj.weight, draft_model.midlayer.self_attn.v_proj.weight,
            draft_model.midlayer.self_attn.o_proj.weight, draft_model.midlayer.mlp.gate_proj.weight,
            draft_model.midlayer.mlp.up_proj.weight and 7 more   (in memory)
  help      Export the checkpoint with the trainer's own export tool, or strip the prefix.
""",
    ),
    "TEN407": (
        lambda: b.pair(CONFIG, b.changed(TABLE, MIXED)),
        """
TEN407 drafter names: names of two dialects are mixed  contracts/families/eagle3.toml
  expected  one dialect for all tensors
  observed  midlayer: midlayer.self_attn.q_proj.weight, midlayer.self_attn.k_proj.weight,
            midlayer.self_attn.v_proj.weight, midlayer.self_attn.o_proj.weight, midlayer.mlp.gate_proj.weight,
            midlayer.mlp.up_proj.weight, midlayer.mlp.down_proj.weight, midlayer.post_attention_layernorm.weight and 1
            more; bare: layers.0.hidden_norm.weight   (in memory)
  help      Write all names in one dialect.
""",
    ),
    "CFG304": (
        lambda: b.pair(b.dense_config(hidden_size="64"), TABLE),
        """
CFG304 drafter config.json: hidden_size: config value has the wrong type  contracts/families/eagle3.toml
  expected  an integer
  observed  "64" (text)   (org/drafter (in memory))
  note      write 64
  help      Write a plain value of the expected type.
""",
    ),
    "CFG306": (
        lambda: b.pair(b.dense_config(rms_norm_eps=float("nan")), TABLE),
        """
CFG306 drafter config.json: rms_norm_eps: config value is no finite number of 64 bits
  contract  contracts/families/eagle3.toml
  expected  a number
  observed  NaN (a float)   (org/drafter (in memory))
  help      Write the real value.
""",
    ),
    "CFG307": (
        lambda: b.pair(b.dense_config(rms_norm_eps=2), TABLE),
        """
CFG307 drafter config.json: rms_norm_eps: config breaks a rule of its contract  contracts/families/eagle3.toml
  expected  rms_norm_eps > 0 and rms_norm_eps < 1
  observed  2   (org/drafter (in memory))
  help      Mend the key so that what is expected holds, or the checkpoint where the key is right.
""",
    ),
    "CFG308": (
        lambda: b.pair(b.dense_config(num_hidden_layers=36), TABLE),
        """
CFG308 drafter layers: num_hidden_layers differs from the layers in the file  contracts/families/eagle3.toml
  expected  36 layers (drafter config.json: num_hidden_layers)
  observed  1 in the file: 0   (org/drafter (in memory))
  help      Set num_hidden_layers to the drafter's own number of layers.
""",
    ),
    "CFG310": (
        lambda: b.pair(b.dense_config(tie_word_embeddings=True), TABLE),
        """
CFG310 drafter config.json: tie_word_embeddings: tie_word_embeddings is true, but the head is not the embedding
  contract  contracts/families/eagle3.toml
  expected  not tie_word_embeddings or draft_vocab == target.vocab
  observed  true   (org/drafter (in memory))
  bindings  draft_vocab=150 (drafter config.json: draft_vocab_size)
            target.vocab=512 (drafter config.json: vocab_size)
  help      Set tie_word_embeddings to false.
""",
    ),
    "CFG312": (
        lambda: b.pair(b.dense_config(intermediate_size=b.ABSENT), TABLE),
        """
CFG312 drafter config.json: intermediate_size: config key is missing and has no default
  contract  contracts/families/eagle3.toml
  expected  intermediate, stated by intermediate_size
  observed  nothing   (org/drafter (in memory))
  note      the tensors say 96 (tensor midlayer.mlp.gate_proj.weight [96, 64])
  help      Add the key.
""",
    ),
    "CFG315": (
        lambda: b.pair(b.dense_config(architectures=["LlamaForCausalLMEagle"]), b.dense(embed=True)),
        """
CFG315 drafter config.json: architectures: architecture is not one of the family's
  expected  one of LlamaForCausalLMEagle3, Eagle3LlamaForCausalLM, Eagle3Qwen3ForCausalLM, Eagle3MiniMaxM2ForCausalLM,
            Eagle3Qwen2_5vlForCausalLM, Eagle3Qwen3vlForCausalLM, LlamaEagle3DraftModel, LlamaForCausalLM
  observed  LlamaForCausalLMEagle (did you mean 'LlamaForCausalLMEagle3'?)   (org/drafter (in memory))
  help      Write the architecture that the engine knows for this family.
""",
    ),
    "DIM401": (
        lambda: b.pair(b.dense_config(intermediate_size=160), TABLE),
        """
DIM401 drafter intermediate: two sources of a dim disagree  contracts/families/eagle3.toml
  expected  160 (drafter config.json: intermediate_size)
  observed  96 (tensor midlayer.mlp.gate_proj.weight [96, 64] and 2 more)
  help      State intermediate_size as 96, or export the tensors again from a model of 160.
""",
    ),
    "PAIR401": (
        lambda: b.pair(CONFIG, b.dense(embed=True), b.target_config(hidden_size=128), b.target(hidden=128)),
        """
PAIR401 fc.weight: drafter does not take the target's hidden states  contracts/families/eagle3.toml
  expected  [hidden, aux * target.hidden] = [64, 3 * 128] = [64, 384]
  observed  [64, 192]   (in memory, org/drafter (in memory))
  bindings  hidden=64 (drafter config.json: hidden_size)
            aux=3 (drafter config.json: len(eagle_config.eagle_aux_hidden_state_layer_ids))
            target.hidden=128 (target config.json: hidden_size)
  note      192 = 3 * 64: matches if target.hidden were 64
  help      Use the target that this drafter was made for, or declare the layers it was trained on.
""",
    ),
    "PAIR402": (
        lambda: b.pair(b.dense_config(target_hidden_size=80), b.dense(target_hidden=80), *WIDE),
        """
PAIR402 embedding: drafter cannot share the target's embedding
  expected  width 80 (target config.json: hidden_size), or embed_tokens of its own
  observed  width 64 (drafter config.json: hidden_size), and none
  help      Ship embed_tokens in the drafter's own width.
""",
    ),
    "PAIR404": (
        lambda: b.pair(CONFIG, TABLE, b.target_config(vocab_size=576), b.target(vocab=576)),
        """
PAIR404 target.vocab: drafter is for another target vocabulary  contracts/families/eagle3.toml
  expected  576 (target config.json: vocab_size)
  observed  512 (drafter config.json: vocab_size)
  note      they differ by 64: padding rows, if both tokenizers are the same
  help      Use a drafter made for this tokenizer.
""",
    ),
    "PAIR405": (
        lambda: b.pair(CONFIG, b.changed(TABLE, {"d2t": None})),
        """
PAIR405 drafter d2t: reduced draft vocabulary has no d2t  contracts/families/eagle3.toml
  expected  [draft_vocab] = [150]
  observed  not in the checkpoint   (org/drafter (in memory))
  note      required because draft_vocab < target.vocab: 150 < 512
  help      Ship d2t; t2d alone is not read by the engines.
""",
    ),
    "PAIR406": (
        lambda: b.pair(CONFIG, b.changed(TABLE, {"lm_head.weight": None})),
        """
PAIR406 drafter lm_head.weight: reduced draft vocabulary has no lm_head  contracts/families/eagle3.toml
  expected  [draft_vocab, hidden] = [150, 64]
  observed  not in the checkpoint   (org/drafter (in memory))
  note      required because draft_vocab < target.vocab: 150 < 512
  help      Ship lm_head.weight.
""",
    ),
    "PAIR407": (
        lambda: b.pair(b.dense_config(**{IDS: [2, 6, 13]}), TABLE),
        """
PAIR407 config.json: eagle_config.eagle_aux_hidden_state_layer_ids: aux layer ids are not usable with this target
  expected  distinct ascending layers of the target's 12
  observed  [2, 6, 13]: 13 is outside 0..12 (boundary)   (org/drafter (in memory))
  note      2 of 3 states are captured: fc.weight gets 128 of 192
  help      Write the layers that the drafter was trained on.
""",
    ),
    "PAIR408": (
        lambda: b.pair(CONFIG, TABLE, facts={"trained_on": b.FACTS["trained_on"]}),
        """
PAIR408 [unknown] config.json: eagle_config.eagle_aux_hidden_state_layer_ids: convention of the aux layer ids \
is not declared
  expected  one of boundary, output, declared with a source
  observed  not declared   (org/drafter (in memory))
  note      [2, 6, 9] is the boundary-style default for 12 layers; as boundary they are the inputs of layers [2, 6,
            9]; as output they are the inputs of layers [3, 7, 10]
  help      Declare aux_convention with a source in contracts/models/ or in the pair.
""",
    ),
    "PAIR409": (
        lambda: b.pair(b.dense_config(eagle_config=b.ABSENT), TABLE),
        """
PAIR409 [warning] aux layers: aux layer ids are left to the engine's default
  expected  eagle_config.eagle_aux_hidden_state_layer_ids in config.json
  observed  not there: engines capture [2, 6, 9] (boundary)   (org/drafter (in memory))
  help      write the layers that the drafter was trained on
""",
    ),
    "PAIR412": (
        lambda: b.pair(b.dense_config(**PARTIAL), TABLE, b.target_config(**PARTIAL)),
        """
PAIR412 [unknown] rope: whether the drafter was trained with a partial rotary factor is not declared
  expected  the factor it was trained with, declared with a source
  observed  0.5 (drafter config.json: partial_rotary_factor)   (org/drafter (in memory))
  note      it is the target's own: was it copied?
  help      Remove partial_rotary_factor from the drafter's config, or declare that it was trained with it.
""",
    ),
    "PAIR417": (
        lambda: b.pair(CONFIG, TABLE, facts=b.FACTS | {"trained_on": b.Fact("org/other", "its card")}),
        """
PAIR417 [unknown] lineage: whether the drafter serves a target it was not trained on is not known
  expected  org/other (its card)
  observed  org/target: relation unknown
  help      Measure the accept length, or train the drafter further on this target.
""",
    ),
    "PAIR418": (
        lambda: b.pair(b.dense_config(draft_vocab_size=512), b.dense(draft=512, maps=False, head=False)),
        """
PAIR418 lm_head.weight: drafter's head would stay at its initial value
  expected  the tensor, or no draft_vocab_size in config.json
  observed  no tensor, draft_vocab_size = 512   (org/drafter (in memory))
  help      Ship lm_head.weight, or remove draft_vocab_size so that the target's head is borrowed.
""",
    ),
    "SRC112": (
        lambda: b.check("org/nope"),
        """
SRC112 [unknown] drafter org/nope: model is not at hand
  expected  a local folder or a recorded model
  observed  no folder and no recording
  help      give a folder: hf download org/nope --include '*.json' --local-dir DIR is enough for what configs tell;
            its safetensors files decide the TEN rules
""",
    ),
}


def said(code: str) -> Finding:
    return next(f for f in b.against(MESSAGES[code][0]()) if f.code == code)


def plain(text: str) -> str:
    """Leave out the line of the contract file, and the blanks that push it to the right."""
    return re.sub(r" +(contracts/[\w/.-]+\.toml)(:\d+)?$", r"  \1", text, flags=re.MULTILINE)


@pytest.mark.parametrize("code", MESSAGES)
def test_message(code: str) -> None:
    assert plain(finding_text(said(code))) == MESSAGES[code][1].strip("\n")


@pytest.mark.parametrize("code", MESSAGES)
def test_line_of_the_contract_is_the_line_that_asked(code: str) -> None:
    f = said(code)
    file, _, line = f.contract.partition(":")
    if not line:
        return
    text = (shipped_root() / file.removeprefix("contracts/")).read_text().splitlines()[int(line) - 1]
    subject = f.subject.removeprefix("drafter ").removeprefix("config.json: ").removeprefix("midlayer.")
    names = [subject, subject.removeprefix("self_attn."), *re.findall(r"[a-z_]{5,}", f.expected)]
    names += ["layers"] if code == "CFG308" else []
    assert any(name in text for name in names), text


@pytest.mark.parametrize("code", MESSAGES)
def test_message_is_narrow_and_has_what_a_person_needs(code: str) -> None:
    lines = finding_text(said(code)).splitlines()
    assert lines[0].startswith(code)
    assert all(len(line) <= WIDTH for line in lines[1:])
    words = [line[2:12].strip() for line in lines[1:]]
    assert [w for w in words if w] == [
        w for w in ("contract", "expected", "observed", "bindings", "note", "help") if w in words
    ]
    assert {"expected", "observed", "help"} <= {*words}


def test_accepted_finding_shows_why_in_place_of_help() -> None:
    f = replace(finding("PAIR403", "context", expected="4096", observed="2048"), accepted="short prompts only")
    assert finding_text(f) == (
        "PAIR403 [accepted] context: drafter's context is shorter than the target's\n"
        "  expected  4096\n"
        "  observed  2048\n"
        "  accepted  short prompts only"
    )


def test_long_text_is_wrapped_under_itself_and_never_cut() -> None:
    f = finding("TEN401", "x", expected=" ".join(["word"] * 60), observed="y" * 200)
    lines = finding_text(f).splitlines()
    assert sum(line.count("word") for line in lines) == 60
    assert "y" * 200 in finding_text(f)
    assert all(line.startswith("            word") for line in lines[2:4])


@pytest.mark.parametrize("code", RULES)
def test_every_rule_can_be_said(code: str) -> None:
    rule = RULES[code]
    text = finding_text(finding(code, "subject"))
    assert text.splitlines()[0].startswith(code)
    assert rule.summary in " ".join(text.split())
    assert rule.severity in ("info", "error") or f"[{rule.severity}]" in text
    assert rule.severity == "info" or " ".join(rule.fix.split()) in " ".join(text.split())
