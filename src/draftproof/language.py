"""The contract language: what may stand in a contract file, declared once as data, and how a file is read.

``KINDS`` declares every kind of contract. The reader walks it and collects every error with its line; the JSON
Schema for editors is generated from it. Nothing in a contract is code.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from draftproof.dims import Expr, ExprError, parse, split
from draftproof.findings import Finding, finding, nearest, visible

SCHEMA = 1
MAX_BYTES = 1_000_000
MAX_NESTING = 32  # brackets
MAX_VALUES = 50_000  # of a file
MAX_PARTS = 16  # of a dotted key
MAX_BARE = 1000  # characters outside quotes, as of a number
MAX_FOUND = 100  # findings of a file
MAX_INT = 2**63 - 1  # TOML's own

Where = tuple[str | int, ...]  # the path of a value inside a file


# --- the language, as data ----------------------------------------------------------------------------------------


class Spec(NamedTuple):
    """Declare one value of the language: what may stand there, and what it means."""

    kind: str  # str, int, number, bool, expr, cond, range, list, map, table; value: any that JSON has
    doc: str = ""
    required: bool = False
    of: Spec | None = None  # items of a list, values of a map
    fields: Mapping[str, Spec] = MappingProxyType({})  # of a table
    pattern: str = ""
    choices: tuple[str, ...] = ()
    one_or_many: bool = False  # a list of one may be written without brackets
    least: int = 0  # items of a list
    above: float | None = None  # a number must be greater
    most: float | None = None  # the greatest number


def _s(doc: str = "", **more: Any) -> Spec:
    return Spec("str", doc, **more)


def _table(doc: str = "", must: bool = False, /, **fields: Spec) -> Spec:
    return Spec("table", doc, must, fields={k.rstrip("_"): v for k, v in fields.items()})


def _map(of: Spec, doc: str = "", pattern: str = "", required: bool = False) -> Spec:
    return Spec("map", doc, required, of=of, pattern=pattern)


def _list(of: Spec, doc: str = "", one: bool = False, required: bool = False, least: int = 0) -> Spec:
    return Spec("list", doc, required, of=of, one_or_many=one, least=least)


def _parts(doc: str, **parts: str) -> Spec:
    """Declare a table whose every part is given, or listed in none; the values are names."""
    names = tuple(part.rstrip("_") for part in parts)
    none = _list(_s(choices=names), "the parts that there are none of; every other must be given")
    return _table(doc, none=none, **{part: _s(text) for part, text in parts.items()})


TITLE = Spec("str", "what it is, in a few words", True)
ID = r"[a-z0-9][a-z0-9._\-]*"
REPO = r"[A-Za-z0-9][A-Za-z0-9_.\-]*/[A-Za-z0-9][A-Za-z0-9_.\-]*"
ENGINE = r"[a-z0-9][a-z0-9._\-]*(@\S+)?"
ALIAS = r"[A-Za-z0-9][A-Za-z0-9_.\-]*(/[A-Za-z0-9][A-Za-z0-9_.\-]*)?"  # of a model
NAME = r"[a-z_][A-Za-z0-9_]*(\.[a-z_][A-Za-z0-9_]*)*"  # of a dim
EXPR = Spec("expr", "an expression over dims")
LEVEL = _s("how bad a breach is", choices=("error", "warning", "info"))
CODE = _s("a rule's code; a trailing * stands for all that begin so", pattern=r"[A-Z]+\d*\*?")
HELD = (  # how it is read
    r"(int|float|bool|text|table|list|floats|ints|texts|ranges)\??( [<>]=?-?\d+)*"
    r"|(word|name|level|spelling)\??( [\w&-]+)+"
)
SOURCED = "where the fact was read"
MATCHES = ("exact", "path", "glob", "part", "regex")  # how a text names modules
DTYPE_SETS = {"float": ("BF16", "F16", "F32"), "index": ("I64", "I32")}  # names that stand for several dtypes
DTYPES = (
    *("BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"),
    *("I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64", "F64", "I64", "U64"),
)  # those of the safetensors format

_DIM = _table(
    drafter=_list(EXPR, "the drafter's config keys that state it", one=True),
    target=_list(EXPR, "the target's config keys that state it", one=True),
    texts=_map(_list(_s()), "config key -> texts: true where the key holds, or lists, one of them"),
    pick=_s("first: the first key that is present counts; else all must agree", choices=("first", "all")),
    default=Spec("expr", "over other dims, where no source states it"),
    optional=Spec("bool", "a config need not state it, though it has no default"),
    least=Spec("int", "the smallest value a config may state; 1 without it"),
    type_=_s("of its values; int without it", choices=("int", "bool")),
    differs=_s("the code where drafter and target state different values", pattern=r"[A-Z]+\d+"),
)
_TENSOR = _table(
    shape=_list(EXPR, "one expression an axis", required=True),
    dtype=_list(_s(choices=(*DTYPE_SETS, *DTYPES)), "allowed dtypes, or a set: float, index", one=True, least=1),
    presence=_s("whether it must be there; required without it", choices=("required", "optional", "forbidden")),
    when=Spec("expr", "the rule applies where this holds"),
    otherwise=_s("what the tensor is where `when` does not hold", choices=("forbidden", "optional")),
    for_=_list(Spec("range"), "i in a..b, or j: a tensor for each i from a up to, not including, b", one=True),
    group=_s("what it belongs to: attention, mlp, norm, fusion, head, embedding, map"),
    init=_s("how an untrained one is made", choices=("normal", "ones", "zeros")),
    missing=_s("the code to report for a missing one, instead of TEN401", pattern=r"[A-Z]+\d+"),
    misfit=_s("the code to report where it fits its own config but not the target", pattern=r"[A-Z]+\d+"),
)
_KEY = _table(
    type_=_s("the JSON type", choices=("int", "float", "bool", "str", "list", "ints", "texts", "object")),
    required=Spec("bool", "a config must state it"),
    check=Spec("expr", "must hold; `it` is the value, or each element of a list"),
    one_of=_list(_s(), "allowed texts; of a list, each item"),
    when=Spec("expr", "the rule applies where this holds"),
    severity=LEVEL,
    code=_s("the code of a breach, instead of CFG307", pattern=r"[A-Z]+\d+"),
    because=_s("why the rule exists"),
)
_DIALECT = _table(
    rename=_map(_s(), "prefix on disk -> canonical prefix"),
    strip=_s("prefix to remove"),
    bare=_list(_s(), "names, or prefixes of names, that carry no such prefix"),
    flag=_s("a code to report where this dialect is found", pattern=r"[A-Z]+\d+"),
    format=_s("id of the format whose names these are; without it, those of safetensors and torch files", pattern=ID),
)
_DETECT = _table(
    "how the contract recognises a checkpoint",
    any_architecture=_list(_s("an architecture that is its own")),
    plain_architecture=_list(_s("one that the family shares with ordinary models, and so proves nothing")),
    any_model_type=_list(_s("a model type")),
    any_tensor=_list(_s("a name on disk; * stands for anything")),
    any_config=_list(_s("a config key")),
    no_config=_list(_s("a config key that rules it out")),
    texts=_map(_list(_s()), "config key -> texts: it speaks of no checkpoint that states another, or none"),
    no_tensor=_list(_s("a name on disk that rules it out")),
    in_target=Spec(
        "bool", "its tensors stand among those of its target's own checkpoint: such a family must be asked for"
    ),
)
_CONVENTION = _table(
    default=_list(EXPR, "the layers captured when none are named; without it they must be named", least=1),
    low=Spec("expr", "smallest id", required=True),
    high=Spec("expr", "largest id", required=True),
    offset=Spec("int", "add it to an id to get the boundary: b is the input of layer b", required=True),
)
_MEANING = _table(
    is_=_s("the meaning that the family, and who reads its checkpoints, gives it; without it readers differ"),
    or_=_list(_s(), "other meanings in the field: then a checkpoint's own must be declared"),
    tells=_map(_s(), "canonical tensor -> the meaning that it tells of, where it alone is there"),
    when=Spec("expr", "it matters where this holds"),
    because=_s("what happens where they differ", required=True),
)
_MODEL = r"(" + REPO + r"(/[\w.\-]+)*)|(\.{0,2}/.*)"


def _fact(doc: str, value: Spec) -> Spec:
    return _table(doc, value=value._replace(required=True), source=_s(SOURCED, required=True))


FACTS = {
    "trained_on": _fact("the target whose hidden states it was trained on", _s("ORG/NAME", pattern=REPO)),
    "aux_convention": _fact("the convention of its aux layer ids", _s("a convention of the family", pattern=NAME)),
    "aux_layers": _fact("the layers it was trained on, in that convention", _list(Spec("int", "an id"), least=1)),
    "copies": _fact(
        "the tensors that are copies of the target's", _list(_s("a tensor, by its name in the family"), least=1)
    ),
    "trained_context": _fact("the length it was trained at", Spec("int", "tokens", above=0)),
    "rope_theta": _fact("the base it was trained with", Spec("number", "of the rotary frequencies", above=0)),
    "gpu": _fact("the GPU that it is to be served on", _s("as its maker counts them: sm90, sm100, gfx942")),
    "partial_rotary_factor": _fact(
        "the factor it was trained with", Spec("number", "1 is all of a head", above=0, most=1)
    ),
    "own_embedding": _fact(
        "whether its embedding holds other values than the target's", Spec("bool", "false: it is a copy")
    ),
    "rms_norm_eps": _fact("the epsilon of norms that it was trained with", Spec("number", "of RMS norms", above=0)),
    "norm_before_residual": _fact(
        "what it was trained with: whether the residual is the state after its norm", Spec("bool", "as its key says")
    ),
    "block_size": _fact("how many tokens the blocks had that it was trained on", Spec("int", "tokens", above=0)),
    "prompt": _fact("how long the prompts are that it is to serve", Spec("int", "tokens", above=0)),
    "meanings": _map(
        _fact("what it was trained for", _s("a meaning that the family knows")),
        "of those that its family lists in [meanings]",
        NAME,
    ),
}
_ACCEPT = _list(
    _table(
        "findings of one code that are accepted",
        code=_s(CODE.doc, required=True, pattern=CODE.pattern),
        because=_s("why", required=True),
        subject=_s("a glob over what the finding is about; without it, everything"),
        observed=_s("a glob over what was seen; without it, everything"),
    )
)
_KEYS: Mapping[str, Any] = dict(  # noqa: C408
    special=_list(_s(), "ids of special tokens"),
    eps=_list(_s(), "epsilon of the norms"),
    dtype=_list(_s(), "dtype of the weights"),
    quantisation=_list(_s(), "tables that declare a quantisation"),
    rope=_table(
        "the rotary embedding",
        theta=_list(_s(), "the base of its angles", required=True),
        tables=_list(_s(), "tables that hold its scaling", required=True),
        partial=_list(_s(), "the rotated part of a head", required=True),
        interleaved=_list(_s(), "whether the pairs that are rotated lie side by side", required=True),
    ),
)
_ROPE = _table(
    "what it does with the rotary embedding, whatever a config says",
    rotary=Spec("expr", "rotated dims of a head"),
    interleaved=Spec("bool", "the pairs that are rotated lie side by side"),
)
_MASK = "ids of the token that stands for those not drafted yet; none if not given"
_READ = "config keys that are compared between drafter and target; [] for none"
_SHARED: Mapping[str, Any] = dict(  # noqa: C408
    title=TITLE,
    source=_s(SOURCED, required=True),
    extends=_s("id of a contract of the same kind, whose tables this one adds to", pattern=ID),
    without=_list(_s("a tensor of the parent that this one does not have")),
    nested=_list(_s(), "config tables to look into first, before the top level", one=True),
    detect=_DETECT,
    dims=_map(_DIM, "name -> who states it, and what stands in for it", pattern=NAME),
    tensors=_map(_TENSOR, "canonical name -> rule"),
    dialects=_map(_DIALECT, "names on disk -> canonical names; exactly one must explain every tensor"),
    config=_map(_KEY, "config key -> rule"),
)
_STORED = _table(
    shape=_list(EXPR, "one expression an axis, over the axes, the logical shape and the values; without it, any"),
    also=_list(_list(EXPR), "other shapes that are as good"),
    dtype=_list(_s(choices=(*DTYPE_SETS, *DTYPES)), "allowed dtypes, or a set: float, index", one=True, least=1),
    when=Spec("expr", "it must be there where this holds; elsewhere it may be"),
    presence=_s("whether it must be there; required without it", choices=("required", "optional")),
)
_LAYOUT = _table(
    when=_map(_list(_s()), "config key -> texts: the layout of modules whose key holds one of them"),
    has=_list(_s("a config key that must be there")),
    lacks=_list(_s("a config key that must not be there")),
    applies=Spec("expr", "over the values: the layout of modules for which this holds"),
    name=_s("what stands behind the module's name in that of the weight; .weight if not given"),
    main=_s("what stands behind the module's name in that of the stored weight", required=True),
    axes=_list(_s(pattern=NAME), "names of its axes as stored", required=True, least=1),
    logical=_map(EXPR, "the weight's shape, axis name -> size; without it the header does not tell it", pattern=NAME),
    tensors=_map(_STORED, "what stands behind the module's name -> what is stored there", required=True),
    checks=_list(EXPR, "must hold of the sizes"),
)
_ROW: Mapping[str, Spec] = dict(  # noqa: C408
    id_=_s("a name of its own: lower-case letters, digits, dots, dashes", required=True, pattern=ID),
    key=_s("the drafter's config key it is about", required=True),
    when=Spec("expr", "over the dims of the pair", required=True),
    outcome=_s("what it does", required=True, choices=("refuses", "degrades", "changes")),
    see=_s("what the user will see", required=True),
    basis=_s(
        "whether it was seen to happen, read in the code, or told in a report alone",
        required=True,
        choices=("run", "read", "told"),
    ),
    source=_s(SOURCED, required=True),
)
_STAGES = ("flags", "config", "convert", "load", "run")
_EFFECTS = ("refuses", "ignored", "cut", "unset", "layers", "replaced", "reads", "stops", "launch", "copes")
_WHEN = Spec("cond", "it applies where this holds; without it, always")
_SPAN: Mapping[str, Spec] = dict(  # noqa: C408
    since=_s("the first version to which it applies", pattern=r"\d+(\.\d+)*"),
    until=_s("the first version to which it no longer applies", pattern=r"\d+(\.\d+)*"),
)
_ERROR = r"[A-Z]\w*|[a-z]+(_[a-z]+)+|\w[\w.:]*[.:][A-Za-z]\w*"  # the class of an error


def _fate(*words: str) -> Spec:
    """Declare what becomes of something: one of the words, or the class of the error that is raised."""
    return _s("or the class of the error", choices=words, pattern=_ERROR)


_HAPPENS: Mapping[str, Spec] = {
    **_ROW,
    "outcome": _s("what it does", required=True, choices=("refuses", "degrades", "changes", "unknown")),
    "key": _s("the drafter's config key it is about"),
    "see": _s("what the user will see; {expression} stands for its value", required=True),
    "when": Spec("cond", "over the engine's facts and the dims of the pair", required=True),
    "stage": _s("when it happens", choices=_STAGES),
    "error": _s("the class of what is raised", pattern=r"[A-Za-z_][\w.:]*"),
    "effect": _s("which kind of finding it is, if another than its outcome's", choices=_EFFECTS),
    "log": _s("what the log says of it; without it, nothing"),
    "do": _s("what to do, where that is more than the code's own"),
    "late": Spec("bool", "it comes after all else of its stage"),
    "sure": Spec(
        "bool", "where it cannot be told whether it applies, as of a fault of the target's own, nothing is said"
    ),
    "early": Spec("bool", "it comes before all else of its stage"),
    "both": Spec("bool", "it holds of a target too, which is made before the drafter, as the drafter is"),
    "order": _s("the stage among whose it comes, if that is another than the one it is told of", choices=_STAGES),
    **_SPAN,
}
_COND = Spec("cond", "an expression over the engine's facts")
DOES = ("refused", "undrafted", "ignored", "unseen", "otherwise")  # what becomes of what a request asks for
_KEY_OF_CLASS = _list(Spec("value"), least=1)
_SEEN: Mapping[str, Spec] = {key: _ROW[key] for key in ("see", "basis", "source")}
_JSON = Spec("value", "any value")
_CONVERT = _table(
    "how the config of another family becomes one of this",
    family=_s("id of the other family", required=True, pattern=ID),
    lift=_s("the table whose keys come to the top level"),
    nest=_s("the table into which the keys go"),
    top=_list(_s("a key that stays at the top level, where keys go into a table")),
    move=_map(_s(), "old key -> new key"),
    copy=_map(_s(), "key, before it moves -> a key that takes its value where that is not stated"),
    remove=_list(_s("a key that goes")),
    lacking=_map(_JSON, "key -> what it becomes where it is not stated"),
)
_TRAINED = _table(
    family=_s("id of the family that it trains", required=True, pattern=ID),
    dialect=_s("the family's dialect that it writes, and reads", required=True),
    architectures=_list(_s(), "those it takes; the first is written", required=True, least=1),
    takes=_s("as in [start], where it is another for this family", choices=("folder", "own", "nothing")),
    writes=_list(_s("an optional tensor that it writes")),
    needs=_map(EXPR, "tensor -> when it refuses to start without it, though the family may call it optional"),
    refuses=_map(EXPR, "tensor -> when it refuses to start with it"),
    replaces=_list(_s("a tensor that it loads from the target over the drafter's")),
    lacks=_list(_s("a tensor that its model does not have, and so passes over")),
    converts=_list(_CONVERT),
    targets=_list(_s("an architecture of the targets that it takes; without any, all")),
    same=_list(_s("a config key that it takes from the target, whose value shapes tensors")),
    over=_list(_s("a config key that it takes from the target over the drafter's, and that shapes nothing")),
    **_SEEN,
)
_FILE = _table(
    name=_s("of the file", required=True),
    form=_s("torch: as torch.save writes it; npy: as numpy.save does", required=True, choices=("torch", "npy")),
    holds=_map(
        _s(choices=("offsets", "mask", "ids", "vocabulary")),
        'entry -> what it is: offsets (d2t), mask (t2d), target ids, the vocabulary\'s size; "" -> the whole file',
        required=True,
    ),
)
_SIDE = _table(
    "one of the two",
    True,
    model=_s("ORG/NAME or a path", required=True, pattern=_MODEL),
    revision=_s("the commit of ORG/NAME"),
    repo=_s("of a path: the ORG/NAME that it holds", pattern=REPO),
)
_TYPED = _table(
    "how the engine reads a key of such a file",
    is_=_list(_s("a type that it takes: u32, f32, bool, text, list i32"), required=True, least=1),
    needed=Spec("bool", "it refuses a file without it"),
    where=_map(Spec("value"), "another key -> what that says, where it is needed"),
)
_KEY_IN = _table(
    from_=_list(_s("a key of the file; {a} is its architecture"), "those that say it; the first that is there counts"),
    length=_s("a list of the file: the value is how many elements it has"),
    rows=_s("a tensor: the value is how many rows it has"),
    lacks=_s("a tensor: the value is whether there is none of that name"),
    add=Spec("int", "what is added to each id of a list"),
)
KINDS: Mapping[str, Spec] = {
    "family": _table(
        "a drafter family",
        **_SHARED,
        roles=_parts(
            "which canonical tensor plays which part",
            fusion="takes the captured hidden states",
            embedding="a row for each token",
            head="gives the logits",
            map_="draft id -> target id, as offsets",
            mask="target id -> is it in the draft vocabulary",
        ),
        sizes=_parts(
            "which dim plays which part",
            hidden="width of the drafter",
            target_hidden="width of the target",
            draft_vocab="tokens that it can draft",
            target_vocab="tokens of the target",
            layers="layers of the drafter",
            target_layers="layers of the target",
            aux="layers of the target that are captured",
            context="positions of the drafter",
            target_context="positions of the target",
            tied="the head is the embedding",
            use_aux="whether target layers are captured at all",
        ),
        keys=_table(_READ, **_KEYS, verifier=_list(_s(), "the declared target"), mask=_list(_s(), _MASK)),
        head_lent=Spec("bool", "where it has no head the target's is used, whatever size its config states"),
        standalone=Spec("bool", "a whole model that reads tokens alone: its own tokenizer must give the target's ids"),
        aux=_table(
            "the captured target layers",
            keys=_list(_s(), "config keys that name them, in the order they are looked up", required=True, least=1),
            conventions=_map(_CONVENTION, "name -> what an id means, and which may stand there", required=True),
        ),
        rope=_ROPE,
        summary=_list(_s("text; {expression} stands for its value"), "the geometry in a line"),
        serving=_list(_s("a file, or several with | between them, one of which"), "what serving needs beyond weights"),
        meanings=_map(_MEANING, "what a name or a key means, where the same one means other things elsewhere", NAME),
        values=_map(_list(EXPR), "rules over a tensor's values"),
    ),
    "target": _table(
        "a target architecture",
        **_SHARED,
        sizes=_parts(
            "which dim plays which part",
            hidden="its width",
            vocab="its tokens",
            layers="its layers",
            context="its positions",
        ),
        roles=_parts(
            "which canonical tensor plays which part",
            embedding="a row for each token",
            head="gives the logits",
            norm="the last before the head",
        ),
        layer=_table(
            "how its layers are counted by names alone, without reading a tensor",
            name=_s("a tensor that each layer has; {i} is its index", required=True, pattern=r"[^{}]*\{i\}[^{}]*"),
            beyond=_list(_s(), "config keys that count layers after the last, such as those of a next-token head"),
        ),
        keys=_table(_READ, **_KEYS),
        rope=_ROPE,
        meanings=_map(_s(), "what a name or a key means in the drafters of its own", NAME),
    ),
    "scheme": _table(
        "how a producer declares and stores quantised weights",
        title=TITLE,
        source=_s(SOURCED, required=True),
        methods=_list(_s(), "what quant_method may say", required=True, least=1),
        marks=_list(_s("a key that tells the table is this producer's where it has no quant_method")),
        modules=_table(
            "which modules are quantised",
            True,
            linear=_list(_s(), "groups of tensors whose weights are quantised unless ignored", required=True),
            ignored=_list(_s("a key that lists modules that are not quantised")),
            match=_s("how an entry names modules; re: begins a pattern", choices=MATCHES),
            plain=_list(_s("a glob over modules that stay as they are, listed or not")),
            undescribed=_list(_s("a glob over modules whose layout is not described here")),
            groups=_s("the key of a table of groups, each with its modules under targets"),
            overrides=_s("the key of a table: names of modules -> what is said of them alone"),
            otherwise=_s("the key of the table that speaks of all other modules"),
            unlisted=_s("what a module is that overrides do not name", choices=("quantised", "plain")),
        ),
        values=_map(
            _table(
                keys=_list(EXPR, "config keys that state it; .first and .second of a list", one=True),
                texts=_map(_list(_s()), "config key -> texts: true where the key holds one of them"),
                type_=_s("of the value; int without it", choices=("int", "bool")),
                default=Spec("expr", "over other values, where no key states it"),
                check=Spec("expr", "must hold; `it` is the value"),
            ),
            "name -> who states it; a dim of the layouts' expressions",
            pattern=NAME,
        ),
        layouts=_map(_LAYOUT, "each is tried in turn; the first that applies to a module counts", required=True),
        beside=_list(_s("what may stand behind a module's name and shapes nothing: scales of a cache")),
    ),
    "pair": _table(
        "a drafter with its target",
        title=TITLE,
        drafter=_SIDE,
        target=_SIDE,
        family=_s("id of the family, where it cannot be told", pattern=ID),
        allow=_ACCEPT,
        expect_unknown=_ACCEPT,
        accepts=_list(_s("id of an acceptance", pattern=ID), "what it accepts besides, for reasons that many share"),
        engines=_list(_s("an engine, or one at a version", pattern=ENGINE), "that are to serve it, as in --engine"),
        launch=_map(_s("a line as it is typed in a shell"), "engine -> how it is launched for this pair", ID),
        facts=_table("what is known of the drafter beyond its files", **FACTS),
    ),
    "acceptance": _table(
        "what pairs that name it accept, for a reason that they share",
        title=TITLE,
        provenance=_list(
            _s(choices=("derived", "partial")), "only where a side is a recording of one of these", one=True, least=1
        ),
        allow=_ACCEPT,
        expect_unknown=_ACCEPT,
    ),
    "model": _table(
        "what is known of a published model beyond its files",
        repo=_s("ORG/NAME, or the path of a file in it", required=True, pattern=REPO + r"(/[\w.\-]+)*"),
        aliases=_list(_s("another name", pattern=ALIAS), "other names that it goes by, in any case of letters"),
        contract=_fact(
            "the family or target contract that speaks of it, where its files do not tell", _s("an id", pattern=ID)
        ),
        **FACTS,
        lineage=_table(
            "the model that it was made from",
            parent=_s("ORG/NAME", required=True, pattern=REPO),
            relation=_s("how it was made of it", required=True, choices=("fine-tune", "quantised")),
            source=_s(SOURCED, required=True),
        ),
    ),
    "engine": _table(
        "what an engine does",
        title=TITLE,
        version=_s("the version that was read", required=True),
        rows=_list(
            _table(
                "one thing that it does with a drafter, and when, by the dims of a pair alone",
                **_ROW,
                **{key: _HAPPENS[key] for key in ("stage", "error", "effect", "log", "do", "since", "until")},
            ),
            required=True,
        ),
    ),
    "profile": _table(
        "how an engine comes to a drafter's class, and what it does with it",
        title=TITLE,
        engine=_s("id of the engine whose rows hold too", pattern=ID),
        versions=_list(
            _table(
                is_=_s("a version", required=True),
                basis=_s(
                    "whether it was run, too, or only what rows say of it was read", choices=("run", "read", "part")
                ),
                also=_list(_s("another spelling of it, as the number of a build")),
            ),
            "the first is the one that stands for no version given",
            required=True,
            least=1,
        ),
        codes=_table(
            "the code of each kind of finding",
            True,
            **{
                kind: _s(f"of what is {kind}", required=kind not in ("beside", "requests"), pattern=r"[A-Z]+\d+")
                for kind in (*_EFFECTS, "beside", "requests", "meant", "unknown")
            },
        ),
        facts=_map(_COND, "name -> what other expressions mean by it", NAME),
        runners=_list(
            _table(is_=_s("its name", required=True), when=_WHEN, **_SPAN, source=_s(SOURCED)),
            "which of its runners serves; the first that applies counts",
        ),
        methods=_list(
            _table(
                is_=_s("its name", required=True),
                when=_WHEN,
                **_SPAN,
                source=_s(SOURCED),
                idle=Spec("bool", "nothing of the drafter is read"),
                config=Spec("cond", "but where this holds, its config"),
            ),
            "how the drafter is used; the first that applies counts",
            required=True,
        ),
        formats=_list(_s("a format of files, beside safetensors, that it reads a drafter from")),
        lifts=_list(_s("a table of a drafter's config that is read in place of the whole")),
        lift_with=_s("a key: only beside it such a table is read"),
        lift_keeps=_list(_s("a key that is read from the whole first all the same")),
        overrides=_s("a flag whose JSON object takes the place of keys of both configs"),
        overrides_of=_s("of that one alone", choices=("target", "drafter")),
        overrides_late=_list(_s("a key of it that comes too late: what the file says was read before")),
        overrides_stage=_s("when a value of the wrong kind is refused that stands there", choices=_STAGES),
        index=_s("the only index that counts; without it every safetensors file is read, by name"),
        index_before=_s("without it: a glob over files that are read alone, where there are some"),
        serves=_list(_s("id of a class by which it makes a target, too", pattern=ID)),
        makes=_list(_s("id of a class by which it makes the whole of a target, by the same rows", pattern=ID)),
        instead=_list(_s("a file"), "where no more than two such files are there, the first is passed over"),
        lift_by=_s("a key of the whole whose text says which other keys are"),
        lift_alone=_map(_list(_s("a key that the whole alone says")), "that text -> such keys", NAME),
        lift_copies=_map(
            _list(_s("a key that is read from the whole first, but for null")), "that text -> such keys", NAME
        ),
        lift_over=Spec("bool", "what such tables do not state is read from the whole"),
        configs=_table(
            "the classes through which it reads configs",
            is_=_list(
                _s("id of them", pattern=ID), "the engine's own before those of a library", required=True, least=1
            ),
            stage=_s("when it reads them", choices=_STAGES),
            unknown=_s("the class of the error for a model_type that has none"),
            wrong=_s("the class of the error for a value of the wrong kind"),
            target=Spec("bool", "the target's config goes through them too, before anything else happens"),
            alone=Spec("bool", "where there is an error, the config is read as it stands, without defaults"),
            also=_map(_s("a model_type"), "a model_type that the engine adds -> the one whose class it takes"),
            **_SPAN,
            source=_s(SOURCED),
        ),
        renamings=_list(
            _table(
                "how architectures become others",
                when=_WHEN,
                **_SPAN,
                becomes=_list(_s("an architecture"), "those that take their place"),
                prefix=_s("what is put before each"),
                unless=_list(_s("a glob over names that stay")),
                last=Spec("bool", "what comes later does not count"),
                source=_s(SOURCED),
            )
        ),
        registry=_map(_list(_s("an architecture")), "class -> the architectures that lead to it", ID, required=True),
        ranges=_map(_table("the versions that have a class", **_SPAN), "class -> where it is not all versions", ID),
        others=_list(_s("a glob over architectures that it has code for, which was not read")),
        unregistered=_table(
            "what happens to any other", **{k: v for k, v in _HAPPENS.items() if k not in ("when", *_SPAN)}
        ),
        beside=_list(
            _table(
                "what is shown side by side: as declared, as trained, as the engine reads it",
                what=_s("what it is", required=True),
                when=_WHEN,
                **_SPAN,
                declared=Spec("cond", "what the files say"),
                trained=Spec("cond", "what is declared of its training"),
                read=Spec("cond", "what the engine makes of it", required=True),
                source=_s(SOURCED),
            )
        ),
        portable=_map(
            _list(_COND, "values that may be tried"),
            "config key that says how a drafter is loaded, never what it computes -> values that engines may agree on",
            NAME,
        ),
        targets=_list(
            _s("a glob over architectures"),
            "the targets that it has a class for; of any other nothing is known",
            least=1,
        ),
        unnamed=_table(
            "what happens where a config names none, if that is another thing",
            **{k: v for k, v in _HAPPENS.items() if k not in ("when", *_SPAN)},
        ),
        unserved=_table(
            "what happens with a target that is in none of its lists, which are whole then",
            **{k: v for k, v in _HAPPENS.items() if k not in ("when", *_SPAN)},
        ),
        first=Spec("bool", "only the first architecture that a config names counts"),
        hooks=_map(_list(_s("a glob over architectures")), "method -> the targets that it works with"),
        alike=_map(_s("a method"), "method -> another, whose targets it works with"),
        unstated=_map(_s("what it is taken for"), "model_type of a target that names no architecture -> one", NAME),
        unhooked=_list(_s("a glob over architectures of targets that none works with; of any other it is not known")),
        misread=_map(
            _fate("unknown"),
            "code of what is wrong with a tensor's bytes, the first counts -> what reading it does",
            r"STF\d+",
        ),
        hookless=_list(
            _table(
                "what happens with any other; the first that applies counts",
                **{k: v for k, v in _HAPPENS.items() if k != "when"},
                when=Spec("cond", "where a method needs anything of the target"),
            ),
            one=True,
        ),
        captures=_list(
            _table(
                "which layers of the target are captured; the first that applies counts",
                when=_WHEN,
                **_SPAN,
                keys=_list(
                    _table(
                        key=_s("a config key that names layers", required=True),
                        offset=Spec("int", "added to an id, it gives the boundary"),
                        odd=_fate("default", "next"),
                        odd_stage=_s("when that happens", choices=_STAGES),
                        when=_WHEN,
                        **_SPAN,
                    ),
                    "the first that names any counts",
                ),
                default=_list(_COND, "the boundaries where none are named"),
                low=Spec("cond", "the first boundary that can be captured"),
                high=Spec("cond", "the last boundary that can be captured"),
                checked_low=Spec("cond", "the first boundary that is not refused, where others are lost"),
                checked_high=Spec("cond", "the last boundary that is not refused, where others are lost"),
                outside=_fate("lost"),
                outside_stage=_s("when that happens", choices=_STAGES),
                outside_late=Spec("bool", "after all else of that stage"),
                empty=_fate("default", "next"),
                empty_stage=_s("when that happens", choices=_STAGES),
                odd=_fate("default", "next"),
                odd_stage=_s("when that happens", choices=_STAGES),
                texts=_fate("lost"),
                mixed=_fate("default", "next"),
                mixed_stage=_s("when that happens", choices=_STAGES),
                whole=Spec("bool", "only integers are ids, not 2.0"),
                cast=Spec("bool", "each id is cast to an integer: 2.7 is 2, and a text of digits is one"),
                none=_s("the class of the error where no state is captured, if it is not that of fewer"),
                falsy=Spec("bool", "whatever counts as false counts as an empty list"),
                motley=_s("the class of the error for a table, or a list of several kinds of value", pattern=_ERROR),
                motley_stage=_s("when that happens", choices=_STAGES),
                ordered=Spec("bool", "they are captured in the order of the list, one twice where it stands twice"),
                spaced=Spec("cond", "how many, evenly from the first of default to the last"),
                fewer=_s("the class of the error where the fusion takes more or fewer", pattern=_ERROR),
                more=_s("the same where it takes fewer, if that is another", pattern=_ERROR),
                width=Spec("cond", "how wide the fusion takes a state of the target to be"),
                source=_s(SOURCED, required=True),
                basis=_ROW["basis"]._replace(required=False),
            )
        ),
        loaders=_map(
            _table(
                "what becomes of a tensor of another shape",
                axis=Spec("int", "the axis that is split over ranks; with it, larger and smaller", above=-1),
                larger=_fate("cut", "taken"),
                smaller=_fate("padded", "taken"),
                other=_fate("taken"),
                stage=_s("when that happens", choices=_STAGES),
                flat=Spec("bool", "the number of elements counts alone"),
                narrows=_s("the axis is cut before sizes are compared: the class of the error where there is none"),
                uneven=_s("the class of the error where the first axis is no multiple of what a parameter says"),
                ones=Spec("bool", "axes of one in front count for nothing"),
                partly=Spec("bool", "what is smaller on any axis fills a part of it"),
                source=_s(SOURCED),
            ),
            "name -> how a kind of parameter takes a tensor",
            NAME,
        ),
        rows=_list(_table("one thing that it does, and when", **_HAPPENS), required=True),
        requests=_list(
            _table(
                "what becomes of what a request asks for while tokens are drafted",
                id=_s("of the row", required=True, pattern=ID),
                asks=_list(_s("a parameter, as requests write it"), required=True, least=1),
                does=_s("what becomes of it", required=True, choices=DOES),
                when=_WHEN,
                **_SPAN,
                asked=Spec("cond", "which of its values ask for it; without it, any"),
                error=_HAPPENS["error"],
                see=_s("what more there is to say of it"),
                basis=_ROW["basis"],
                source=_s(SOURCED, required=True),
            )
        ),
    ),
    "class": _table(
        "how one class of an engine reads a drafter",
        title=TITLE,
        source=_s(SOURCED, required=True),
        basis=_ROW["basis"]._replace(required=False),
        extends=_s("id of a class whose tables this one adds to", pattern=ID),
        without=_list(_s("a parameter of the parent that this one does not have")),
        dims=_map(_COND, "name -> how the engine reads it", NAME, required=True),
        names=_list(
            _table(
                "how a name in the file becomes a parameter's",
                to=_s("what stands in its place", required=True),
                starts=_list(_s(), "what it begins with", one=True, least=1),
                part=_s("what it holds somewhere"),
                match=_s("a glob over names that are replaced as a whole"),
                unless=_list(_s("a glob over names that stay")),
            )
        ),
        skips=_list(
            _table(
                "tensors that are passed over",
                match=_list(_s(), "globs over names in the file", one=True, least=1, required=True),
                as_=_fate("harmless", "dropped", "target"),
                when=_WHEN,
                **_SPAN,
                lost=Spec("bool", "only those that find no parameter"),
                placed=Spec("bool", "only those of a module that is there: what stands before their last dot"),
                for_=_list(Spec("range"), "i in a..b: a glob for each i", one=True),
                early=Spec("bool", "before anything is loaded"),
                stage=_s("when that is refused, if not when parameters are looked for", choices=_STAGES),
                source=_s(SOURCED),
            )
        ),
        unknown=_fate("dropped")._replace(required=True),
        says=_s("the message of that error; {name} is the tensor"),
        spares=Spec("cond", "where this holds it is not asked whether all was loaded"),
        left=_s("of a file that is converted already, the class of the error for a tensor that finds none"),
        twice=_s("the class of the error for two tensors that find one parameter; without it the last counts"),
        twice_says=_s("the message of that error; {name} is the tensor"),
        stage=_s("when tensors find their parameters", choices=_STAGES),
        params=_map(
            _table(
                shape=_list(_COND, "one expression an axis", required=True),
                loader=_s("a loader of the profile", required=True),
                when=_WHEN,
                **_SPAN,
                for_=_list(Spec("range"), "i in a..b: a parameter for each i", one=True),
                missing=_fate("noise", "ones", "zeros", "target"),
                spared=_fate("noise", "ones", "zeros"),
                shared=Spec("cond", "where this holds the target's stands in for a missing one"),
                harmless=Spec("cond", "where this holds a missing one changes nothing"),
                replaced=Spec("cond", "where this holds the target's takes its place, whatever the file has"),
                unused=Spec("cond", "where this holds it is loaded, and nothing reads it"),
                plain=Spec("cond", "where this holds it is made as it is, whatever quantisation the drafter declares"),
                early=Spec("bool", "whether it is there, and its size, are looked at before anything is loaded"),
                gives=_list(_s("a parameter that it holds, with others, in one")),
                multiple=Spec("cond", "what the first axis must be a multiple of, to be regrouped"),
                pads=_s("a name that it shares with those which, padded alike, change nothing together"),
                joined=_s("a name that it shares with those which are put together before they are loaded"),
                source=_s(SOURCED),
            ),
            "name -> what the engine makes of it",
            required=True,
        ),
    ),
    "configs": _table(
        "what the classes of a library make of a config",
        title=TITLE,
        version=_s("the version that was read", required=True),
        source=_s(SOURCED, required=True),
        basis=_ROW["basis"]._replace(required=False),
        known=_list(_s("a model_type that it has a class for, which was not read")),
        types=_map(
            _map(_KEY_OF_CLASS, "key -> the kinds of value that it may have, in one text; and what it holds if absent"),
            "model_type -> the keys of its class",
            required=True,
        ),
    ),
    "launch": _table(
        "how an engine is launched",
        title=TITLE,
        version=_s("the version that was read", required=True),
        source=_s(SOURCED, required=True),
        packages=_list(_s("a package whose version is the engine's")),
        images=_list(_s("the name of an image that holds it, without a tag")),
        entry=Spec("bool", "an image runs the first command where none is named"),
        commands=_list(
            _table(
                words=_list(_s("a word; the first is a glob over the program's name"), required=True, least=1),
                positional=_s("the flag that a word belongs to which follows none", pattern=NAME),
                front=Spec("bool", "only the first word may stand so"),
                once=Spec("bool", "that flag, given by its name, takes the place of the word"),
                leads=_list(_s("a flag beside which that word must come first", pattern=NAME)),
            ),
            "how it is started",
            required=True,
            least=1,
        ),
        target=_list(_s("a flag, or a key of one, that names the target", pattern=NAME)),
        drafter=_list(_s("a flag, or a key of one, that names the drafter", pattern=NAME)),
        target_revision=_list(_s("a flag, or a key of one, that names the commit of the target", pattern=NAME)),
        drafter_revision=_list(_s("a flag, or a key of one, that names the commit of the drafter", pattern=NAME)),
        abbreviations=Spec("bool", "the beginning of a flag stands for it"),
        equals=Spec("bool", "a value may follow an =; true without it"),
        underscores=Spec("bool", "an underscore stands for a dash"),
        dotted=Spec("bool", "a table may be given key by key: --flag.key value"),
        unread=_list(_s("a flag that names a file with more flags", pattern=NAME)),
        unread_whole=Spec("bool", "such a file counts only where it is named by two words"),
        truthy=_list(_s(), "values of a variable that set a flag which takes none"),
        falsy=_list(_s(), "values of a variable that turn such a flag off"),
        negated=_list(_s(), "the start of a variable, and that of the one which turns the same flag off", least=2),
        own=Spec("cond", "where this holds, and no drafter is named, it looks for one in the target's own checkpoint"),
        flags=_map(
            _table(
                "a flag; its names are its own in dashes, if not given",
                dest=_s("the name that rules know it by, where that is another", pattern=NAME),
                names=_list(_s(), "how it is written", one=True, least=1),
                off=_list(_s(), "how it is written to turn it off", one=True, least=1),
                type_=_s(
                    "of its value",
                    choices=(
                        "str",
                        "int",
                        "float",
                        "stoi",
                        "stoul",
                        "stof",
                        "size",
                        "json",
                        "units",
                        "loose",
                        "words",
                        "falling",
                        "pairs",
                    ),
                ),
                takes=_s("how many words: one without it", pattern="none|one|optional|some|any|[1-9]"),
                value=Spec("value", "what it holds where no value is given; true without it"),
                choices=_list(Spec("value"), "the values that it takes"),
                low=Spec("int", "the least number that it takes"),
                high=Spec("int", "the most"),
                never=_list(Spec("int"), "numbers that it does not take, though others beside them"),
                form=_s("a regular expression that the whole text matches"),
                says=_s("what that is, in words"),
                words=_map(Spec("value"), "texts that it takes besides -> value"),
                default=Spec("value", "what it is where it is not given"),
                unset=_list(Spec("value"), "values that are as if it were not given"),
                many=Spec("bool", "given again, it adds"),
                joins=_s("given again it adds, with a comma; this word counts where there is no other"),
                dashes=Spec("bool", "keys of its table may be written with dashes, too"),
                null=Spec("bool", "an empty text, and None, stand for nothing"),
                held=_s("what its value must be, such as int >=1: looked at later than how it is typed", pattern=HELD),
                keys=_list(_s(), "the keys that its table may have"),
                kinds=_map(
                    _s(pattern=HELD),
                    "key of its table -> what it takes, as pydantic reads it; a ? for null too; limits or words follow",
                ),
                gone=_s("the engine had it once, and refuses it: what to use instead"),
                env=_s("the variable that sets it where it is not given"),
                apart=_list(_s(), "all that its short name takes as a word of its own"),
            ),
            "name -> how it is written and what it takes",
            NAME,
            required=True,
        ),
        advice=_list(
            _table(
                "what a flag should be; of those that apply the first of a flag counts",
                flag=_s("a flag, a key of one, or env.NAME", required=True),
                value=_COND._replace(required=True),
                when=_WHEN,
                because=_s("why", required=True),
                find=_s("where a user finds the value, if it is not known here"),
                source=_s(SOURCED),
                basis=_SEEN["basis"]._replace(required=False),
            )
        ),
    ),
    "trainer": _table(
        "what a trainer does with a drafter that it is to start from",
        title=TITLE,
        version=_s("the version that was read", required=True),
        source=_s(SOURCED, required=True),
        start=_table(
            "how it starts from a drafter",
            True,
            setting=_s("the setting of a run that names the drafter's folder"),
            takes=_s(
                "a folder as adapt writes it, its own training checkpoints only, or nothing",
                required=True,
                choices=("folder", "own", "nothing"),
            ),
            **_SEEN,
        ),
        layouts=_list(_TRAINED, "what it trains", required=True, least=1),
        map=_table(
            "what becomes of d2t",
            True,
            otherwise=_s(
                "the fate of the drafter's own where no file is given",
                required=True,
                choices=("kept", "rebuilt", "refused"),
            ),
            setting=_s("the setting that names the file; {name} stands for the file's path"),
            files=_list(_FILE, "those by which it takes a vocabulary"),
            **_SEEN,
        ),
        captures=_list(
            _table(
                "which layers of the target it captures; the first that speaks of the family counts",
                families=_list(_s("id of a family", pattern=ID), "without any, all"),
                setting=_s("the setting of a run that names them, over what the config says"),
                keys=_list(_s("a config key of the drafter that it reads them from")),
                also=Spec("bool", "the setting must be given too, though the config has them"),
                default=_list(EXPR, "the ids where none are named"),
                rules=_list(
                    _table(
                        architectures=_list(_s("of the target"), "without any, all"),
                        when=Spec("expr", "over the dims of the pair, and first and last, of the ids"),
                        offset=Spec(
                            "int", "added to an id, it gives the boundary: b is the input of layer b", required=True
                        ),
                        **_SEEN,
                    ),
                    "the first that applies counts",
                    required=True,
                    least=1,
                ),
            ),
            required=True,
            least=1,
        ),
        names=_list(
            _table(
                "the name of a tensor of the target that a run must be given where it is not the default",
                part=_s("of the target", required=True, choices=("embedding", "head", "norm")),
                setting=_s("the setting that names the target's tensor", required=True),
                default=_s("what it is otherwise", required=True),
                basis=_ROW["basis"],
                source=_ROW["source"],
            )
        ),
        rows=_list(
            _table(
                "a config key that means another thing to it, or nothing",
                **{**_ROW, "when": Spec("expr", "over the dims of the pair")},
                value=Spec("value", "the row applies where the config states this at the key"),
                unless=_s("the meaning of the key, of those in the family's [meanings], to which it does not apply"),
                families=_list(_s("id of a family", pattern=ID), "without any, all"),
            )
        ),
    ),
    "format": _table(
        "how a file of another format is read as a checkpoint",
        title=TITLE,
        source=_s(SOURCED, required=True),
        suffix=_s("how the name of such a file ends", required=True, pattern=r"\.\w+"),
        keys=_map(_KEY_IN, "config key -> where the file says it", required=True),
        types=_map(_TYPED, "a key of the file -> how the engine reads it; {a} is the architecture"),
        architectures=_map(
            _table(
                set=_map(Spec("value"), "config key -> what it holds"),
                keys=_map(_KEY_IN, "config keys beside those of all"),
                types=_map(_TYPED, "keys of the file beside those of all"),
                target=Spec("bool", "it is read as a target alone"),
            ),
            "an architecture, as the file calls it -> what a config of it says",
            required=True,
        ),
    ),
    "release": _table(
        "what a published drafter must and must not hold",
        title=TITLE,
        source=_s(SOURCED, required=True),
        leftovers=_list(
            _table(
                "what a training run leaves behind",
                name=_s("a glob over names of files; with / at its end, over names of folders", required=True),
                what=_s("what it is", required=True),
                severity=LEVEL,
            )
        ),
        wrappers=_list(_s("a part of a tensor's name that a wrapper of the training run leaves")),
        placeholders=_list(_s("text that stands where a fact was to be written")),
        secrets=_list(
            _table(
                "how a kind of secret is told",
                prefix=_s("how a secret begins", required=True),
                least=Spec("int", "how many letters and digits must follow", required=True),
                also=_s("other characters that may be among them"),
                what=_s("what it is", required=True),
            )
        ),
        secret_keys=_list(_s("a key whose text is a secret")),
        other_formats=_list(_s("a library_name or tag that speaks of another format")),
        relations=_list(_s("a value of base_model_relation")),
        wrong_relations=_list(_s("one that a whole checkpoint does not have")),
        licences=_list(_s("a value of license")),
    ),
}
FOLDERS = {
    "family": "families",
    "target": "targets",
    "scheme": "schemes",
    "pair": "pairs",
    "acceptance": "acceptances",
    "model": "models",
    "profile": "engines/profiles",
    "class": "engines/classes",
    "configs": "engines/configs",
    "launch": "launches",
    "format": "formats",
    "engine": "engines",
    "trainer": "trainers",
    "release": "releases",
}


# --- reading ------------------------------------------------------------------------------------------------------


class Problems:
    """Collect the errors of one file, each with its line; what a parent wrote has the parent's file and line."""

    def __init__(self, label: str, lines: Callable[[], Mapping[Where, int]] | None = None) -> None:
        self.label = label
        self._lines = lines  # path of every value -> its line, counted when one is asked for
        self.parent: Problems | None = None
        self.found: list[Finding] = []
        self.more = 0  # beyond MAX_FOUND

    @cached_property
    def lines(self) -> Mapping[Where, int]:
        """Return the line of every value by its path; of the file where nothing is known."""
        return (self._lines() if self._lines else None) or {(): 1}

    def line(self, path: Where) -> str:
        """Return file:line of a value, or of the nearest that encloses it; tables merge entry by entry."""
        if self.parent and path[:2] not in self.lines and path[:2] in self.parent.lines:
            return self.parent.line(path)
        while path not in self.lines:
            path = path[:-1]
        return f"{self.label}:{self.lines[path]}"

    def add(
        self, code: str, path: Where, observed: object = "", near: tuple[str, Collection[str]] = ("", ()), **parts: Any
    ) -> None:
        """Add a finding about the value at a path; near names a word and the known words it may have meant."""
        if len(self.found) >= MAX_FOUND:
            self.more += 1
            return
        seen = (visible(observed) if observed != "" else visible(near[0])) + (
            nearest(near[0], near[1]) if 0 < len(near[0]) <= 100 else ""
        )
        self.found.append(finding(code, _show(path), observed=seen, contract=self.line(path), **parts))

    def all(self) -> tuple[Finding, ...]:
        """Return what was found, and how many more there are."""
        if not self.more:
            return tuple(self.found)
        return (*self.found, replace(self.found[-1], subject="(file)", message=f"and {self.more} more findings"))


def _show(path: Where) -> str:
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            out += ("." if out else "") + (part if re.fullmatch(r"[\w-]+", part) else f'"{visible(part)}"')
    return out or "(file)"


_TYPES = {str: "text", int: "an integer", float: "a float", bool: "true or false", list: "a list", dict: "a table"}
_WANTED: Mapping[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), _TYPES[int]),
    "number": ((int, float), "a number"),
    "bool": ((bool,), _TYPES[bool]),
    "expr": ((str, int, bool), "an expression"),  # 3 may be written for "3"
    "cond": ((str, int, bool), "an expression of engines"),  # with texts
    "list": ((list,), _TYPES[list]),
    "map": ((dict,), _TYPES[dict]),
    "table": ((dict,), _TYPES[dict]),
}
_RANGE = re.compile(r"\s*([ij])\s+in\s+(.+?)\s*\.\.\s*(.+?)\s*(?:step\s+([1-9]\d?))?\s*")


def read_value(spec: Spec, value: Any, path: Where, out: Problems) -> Any:
    """Return a value parsed as its spec says; what is wrong is added, and None stands in its place."""
    if spec.one_or_many and not isinstance(value, list):
        value = [value]
    if spec.kind == "value":
        return _json_value(value, path, out)
    types, name = _WANTED.get(spec.kind, ((str,), _TYPES[str]))
    if type(value) not in types:
        out.add(
            "CON104", path, f"{visible(value, 80)} ({_TYPES.get(type(value), type(value).__name__)})", expected=name
        )
        return None
    if type(value) is int and abs(value) > MAX_INT:
        out.add("CON104", path, f"an integer of {value.bit_length()} bits", expected="a 64-bit integer")
        return None
    assert spec.of or spec.kind not in ("list", "map")
    match spec.kind:
        case "str" if value in spec.choices or (spec.pattern and re.fullmatch(spec.pattern, value)):
            pass
        case "str" if spec.choices:
            more = f", {spec.doc}" if spec.pattern else ""
            out.add("CON104", path, near=(value, spec.choices), expected=f"one of {', '.join(spec.choices)}{more}")
            return None
        case "str" if spec.pattern:
            out.add("CON104", path, value, expected=spec.doc or f"text like {spec.pattern}")
            return None
        case "int" | "number" if not (spec.above is None or value > spec.above) or not value <= (spec.most or MAX_INT):
            most = f", at most {spec.most}" if spec.most else ""
            out.add("CON104", path, value, expected=f"{name} above {spec.above}{most}")
            return None
        case "expr" | "cond" as kind:
            return _expr(str(value).lower() if type(value) is bool else str(value), path, out, kind == "cond")
        case "range":
            found = _RANGE.fullmatch(value)
            ends = [_expr(end, path, out) for end in found.groups()[1:3]] if found else []
            if not found:
                out.add("CON106", path, value, expected="i in a..b, or j in a..b step n")
            return (found[1], *ends, int(found[4] or 1)) if found and all(ends) else None
        case "list":
            if len(value) < spec.least:
                out.add("CON104", path, "none", expected=f"at least {spec.least} item")
                return None
            return tuple(read_value(spec.of, item, (*path, n), out) for n, item in enumerate(value))  # type: ignore[arg-type]
        case "map":
            for key in value:
                if spec.pattern and not re.fullmatch(spec.pattern, key):
                    out.add("CON103", (*path, key), key, expected=f"a name like {spec.pattern}")
            return {k: read_value(spec.of, v, (*path, k), out) for k, v in value.items()}  # type: ignore[arg-type]
        case "table":
            for key in value:
                if key not in spec.fields:
                    near = (key, [f for f in spec.fields if f not in value])
                    out.add("CON103", (*path, key), near=near, expected=f"one of {', '.join(spec.fields)}")
            for key, sub in spec.fields.items():
                if sub.required and key not in value:
                    out.add("CON105", (*path, key), "nothing", expected=f"{key}: {sub.doc or sub.kind}")
            return {k: read_value(spec.fields[k], v, (*path, k), out) for k, v in value.items() if k in spec.fields}
    return value


def _json_value(value: Any, path: Where, out: Problems) -> Any:
    """Return a value that JSON has too; TOML's dates and times, and numbers that are none, are no such values."""
    if isinstance(value, dict):
        return {k: _json_value(v, (*path, k), out) for k, v in value.items()}
    if isinstance(value, list):
        return [_json_value(v, (*path, n), out) for n, v in enumerate(value)]
    if type(value) not in (str, int, float, bool) or value != value or value in (float("inf"), float("-inf")):
        out.add("CON104", path, f"{visible(value, 80)} ({type(value).__name__})", expected="a value that JSON has")
        return None
    return value


def _expr(text: str, path: Where, out: Problems, texts: bool = False) -> Expr | None:
    try:
        return split(parse(text, texts)) if texts else parse(text)
    except ExprError as error:
        out.add("CON106", path, text, expected="an expression of the contract language", note=visible(error))
        return None


def json_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a contract kind, for editors; generated from what the reader reads."""
    spec = KINDS[kind]
    base = {"schema": {"const": SCHEMA}, "kind": {"const": kind}, "id": {"type": "string", "pattern": f"^({ID})$"}}
    body = _schema(spec)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"draftproof {kind} contract",
        **body,
        "properties": {**base, **body["properties"]},
        "required": [*base, *body.get("required", [])],
    }


def _schema(spec: Spec) -> dict[str, Any]:
    out: dict[str, Any] = {"description": spec.doc} if spec.doc else {}
    match spec.kind:
        case "str" | "range":
            out["type"] = "string"
        case "int" | "number":
            out["type"] = "integer" if spec.kind == "int" else "number"
            out |= {} if spec.above is None else {"exclusiveMinimum": spec.above}
            out |= {} if spec.most is None else {"maximum": spec.most}
        case "bool":
            out["type"] = "boolean"
        case "expr" | "cond":
            out["type"] = ["string", "integer", "boolean"]
        case "list":
            assert spec.of
            items = _schema(spec.of)
            many = {"type": "array", "items": items} | ({"minItems": spec.least} if spec.least else {})
            out |= {"anyOf": [items, many]} if spec.one_or_many else many
        case "map":
            assert spec.of
            values = _schema(spec.of)
            out |= {"type": "object", "additionalProperties": values}
            if spec.pattern:
                out |= {"propertyNames": {"pattern": f"^({spec.pattern})$"}}
        case "table":
            out |= {
                "type": "object",
                "properties": {k: _schema(v) for k, v in spec.fields.items()},
                "additionalProperties": False,
            }
            if required := [k for k, v in spec.fields.items() if v.required]:
                out["required"] = required
    if spec.choices and not spec.pattern:
        out["enum"] = list(spec.choices)
    if spec.pattern and spec.kind == "str":
        out["pattern"] = f"^({'|'.join([*map(re.escape, spec.choices), spec.pattern])})$"
    return out


# --- files --------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<newline>\n) | (?:[ \t\r]|\#[^\n]*)+
    | (?P<text> \"{3}(?:\\.|[^\\])*?(?:\"{3,5}|\Z) | '{3}.*?(?:'{3,5}|\Z) | "(?:[^"\\\n]|\\[^\n])*"? | '[^'\n]*'? )
    | (?P<mark>[\[\]{}=,.]) | (?P<bare>[^\s\[\]{}=,.\#"']+)""",
    re.VERBOSE | re.DOTALL,
)


def scan(text: str, spans: dict[Where, tuple[int, int]] | None = None) -> tuple[dict[Where, int], str]:
    """Map the path of every value of a TOML text to the line where it starts; returns also the bound it breaks, or "".

    One pass over the tokens with a stack of open brackets. It never fails: where a text is not valid TOML, the lines
    after the mistake are worth nothing. Into spans goes where each value of one token begins and ends.
    """
    lines: dict[Where, int] = {(): 1}
    rows: dict[Where, int] = {}  # array of tables -> how many so far
    stack: list[tuple[Where, int]] = []  # of each open bracket, the path and the item's index; -1 in an inline table
    table: Where = ()
    path: Where = ()
    key: list[str] = []
    line, header, state, bound = 1, 0, "key", ""  # state: what comes next, a key, a value, or "done" after one
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind is None:  # blanks
            continue
        token = match[0]
        if kind == "newline":
            line += 1
            if not stack:
                key, header, state = [], 0, "key"
        elif kind != "mark" and state == "key":
            key.append(_unquoted(token))
            bound = f"at most {MAX_PARTS} parts in a key" if len(key) > MAX_PARTS else ""
        elif (kind != "mark" or token in "[{") and state == "value":
            if stack and stack[-1][1] >= 0:
                path = (*stack[-1][0], stack[-1][1])
                lines[path] = line
                bound = f"at most {MAX_VALUES} values" if len(lines) > MAX_VALUES else ""
            if spans is not None and kind != "mark":
                spans[path] = match.span()
            key, state = [], "key" if token == "{" else "value" if token == "[" else "done"
            if kind == "mark":
                stack.append((path, 0 if token == "[" else -1))
                bound = f"at most {MAX_NESTING} nested brackets" if len(stack) > MAX_NESTING else bound
        elif token == "[" and not stack and not key:
            header += 1
        elif token == "]" and header and key:
            table = _header(key, header > 1, line, lines, rows)
            key, state = [], "done"
        elif token == "=" and state == "key":
            base = stack[-1][0] if stack else table
            path = (*base, *key)
            for n in range(len(base) + 1, len(path) + 1):
                lines.setdefault(path[:n], line)
            state = "value"
            bound = f"at most {MAX_VALUES} values" if len(lines) > MAX_VALUES else ""
        elif token == "," and stack:
            where, index = stack[-1]
            key, state = [], "value" if index >= 0 else "key"
            stack[-1] = (where, index + 1 if index >= 0 else -1)
        elif token in "]}" and stack and (stack[-1][1] >= 0) == (token == "]"):
            stack.pop()
            key, state = [], "done"
        if kind == "text":
            line += token.count("\n")
        elif kind == "bare" and len(token) > MAX_BARE:
            bound = f"at most {MAX_BARE} characters without quotes"
        if bound:
            lines[()] = line
            break
    return lines, bound


def _header(key: list[str], array: bool, line: int, lines: dict[Where, int], rows: dict[Where, int]) -> Where:
    """Note the lines of a [table] or [[array]] header; returns the path that the keys below it belong to."""
    where: Where = ()
    for n, part in enumerate(key, 1):
        where = (*where, part)
        lines.setdefault(where, line)
        if n == len(key):
            if array:
                rows[where] = rows.get(where, 0) + 1
            elif where not in rows:
                lines[where] = line
        if where in rows:
            where = (*where, rows[where] - 1)
            lines.setdefault(where, line)
    return where


def _unquoted(token: str) -> str:
    if token[0] == '"' and "\\" in token:
        try:
            return str(tomllib.loads(f"k = {token}")["k"])
        except ValueError:
            return token
    return token[1:-1] if token[0] in "\"'" else token


def read_file(path: Path) -> bytes:
    """Return the bytes of a plain file, at most one more than MAX_BYTES; raises OSError, also for a pipe or device."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError("not a plain file")
    with open(path, "rb") as file:
        return file.read(MAX_BYTES + 1)


def _small(text: str) -> bool:
    """Tell whether a text is too small to break any bound of scan, by counts that are never too low."""
    brackets, parts = text.count("[") + text.count("{"), text.count(".") + 1
    return (
        len(text) < min(4096, MAX_VALUES)
        and brackets <= MAX_NESTING
        and parts <= MAX_PARTS
        and all(len(line) <= MAX_BARE for line in text.splitlines())
    )


def read_toml(path: Path, label: str, sealed: bool = False) -> tuple[dict[str, Any] | None, Problems]:
    """Read a TOML file within the bounds, which a sealed one keeps; what is wrong with it is in the problems."""
    out = Problems(label)
    try:
        raw = read_file(path)
        text = raw.decode("utf-8")
    except (OSError, ValueError) as error:
        seen = getattr(error, "strerror", None) or error
        out.add("CON101", (), seen, expected="a readable UTF-8 file")
        return None, out
    if raw.startswith(b"\xef\xbb\xbf"):
        out.add("CON101", (), "a byte-order mark", expected="UTF-8 without a byte-order mark")
        return None, out
    if len(raw) > MAX_BYTES:
        out.add("CON101", (), "more", expected=f"at most {MAX_BYTES} bytes")
        return None, out
    if sealed or _small(text):
        out, bound = Problems(label, lambda: scan(text)[0]), ""
    else:
        lines, bound = scan(text)
        out = Problems(label, lambda: lines)
    if bound:
        out.add("CON101", (), "more", expected=bound)
        return None, out
    try:
        return tomllib.loads(text), out
    except (tomllib.TOMLDecodeError, RecursionError, MemoryError, ValueError) as error:
        found = re.search(r"at line (\d+)", str(error))
        out.lines = {(): int(found[1]) if found else text.count("\n") + 1}
        out.add("CON102", (), error, expected="TOML 1.0")
        return None, out
