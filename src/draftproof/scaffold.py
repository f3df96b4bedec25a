"""The start of a contract, ready to edit: of a pair with what was found, or of a family that no contract knows.

What is known stands with its source, what is not stands as a comment that says what to declare, and nothing that
fails is accepted: proposals are comments, and an acceptance needs a reason that only a person can write.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from keyword import iskeyword
from pathlib import Path
from typing import Any, NamedTuple

from draftproof.api import RUNGS, Case, declared_target, examine_models, open_side, report, side
from draftproof.checkpoint import Checkpoint
from draftproof.container import Tensor
from draftproof.contracts import MAX_TENSORS, RESERVED
from draftproof.dims import Known
from draftproof.findings import Finding, Report, Section, finding, visible
from draftproof.hub import Source
from draftproof.language import DTYPE_SETS, FOLDERS, ID, KINDS, REPO
from draftproof.library import Library
from draftproof.pair import aux_usable, declared_facts
from draftproof.recognise import recognise

WIDTH = 110  # characters of a comment
MOST = 40  # findings proposed of one level


class Draft(NamedTuple):
    """Hold the text of a contract, of which kind it is, and its id."""

    kind: str
    id: str
    text: str


def init(
    drafter: Any, target: Any | None, library: Library, *, family: str = "", path: Path | None = None
) -> Draft | Report:
    """Return the start of a contract: of the pair, or of the drafter's family where none is known; else why not.

    With path the contract is named after it, and folders are written relative to it; in a folder of families it is
    that of a family.
    """
    subject = " with ".join(visible(m) for m in (drafter, target) if m is not None)
    opened = open_side(drafter, "drafter", library)
    if isinstance(opened, Finding):
        return Report(subject, (Section.of("conforms", [opened]),))
    contract, found = recognise(library, opened, "family", family)
    wanted = path is not None and path.absolute().parent.name == FOLDERS["family"]
    if contract is None or wanted:
        unknown_yet = wanted or (not family and any(f.code == "TEN408" for f in found))
        if unknown_yet and not opened.config.broken and opened.table().read and opened.table().tensors:
            return _family(opened, library, path)
        return Report(subject, (Section.of("conforms", [*opened.findings, *found]),))
    declared = "" if contract is None or contract.in_target else declared_target(opened, contract, library)
    case, target = examine_models(opened.source, target or declared or None, library, family)
    spec = str(target or "")
    named = re.fullmatch(rf"({REPO})(@[0-9a-f]{{40}})?", spec)
    unread = bool(case.source) and all(f.level == "unknown" and f.code.startswith("SRC") for f in case.source)
    away = case.target is None and named is not None and unread
    if case.drafter is None or (case.target is None and not away):
        lacking = [] if target is not None or case.source else [
            finding("SRC117", "target", "a pair needs a target", expected="--target MODEL",
                    observed="none was given, and the drafter declares none",
                    help="give it; for a family contract instead: --output contracts/families/ID.toml")]  # fmt: skip
        return Report(subject, (Section.of("conforms", [*case.source, *lacking]),))
    theirs = case.target.checkpoint.source if case.target else _away(spec)
    return _pair(case, theirs, family, path)


def _away(spec: str) -> Source:
    """Return what is known of a model that is not at hand: its name, and the commit that was asked for."""
    repo, _, at = spec.partition("@")
    return Source(repo, "recording", repo=repo, revision=at or None)


# --- TOML ---------------------------------------------------------------------------------------------------------


def toml(value: Any) -> str:
    """Write a text, number, yes or no, list or table of these in TOML, on one line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {toml(v)}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, str):
        clean = value.encode("utf-8", "backslashreplace").decode("utf-8")
        return json.dumps(clean, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml(name)


def _comment(text: str, indent: str = "") -> Iterator[str]:
    """Yield a text as lines of a comment."""
    import textwrap  # noqa: PLC0415

    lead = f"{indent}# "
    yield from textwrap.wrap(visible(text, 2000), WIDTH, initial_indent=lead, subsequent_indent=lead,
                             break_long_words=False, break_on_hyphens=False)  # fmt: skip


# --- a pair -------------------------------------------------------------------------------------------------------


def _pair(case: Case, theirs: Source, family: str, path: Path | None) -> Draft:
    assert case.drafter is not None
    own = case.drafter.checkpoint.source
    title = f"{visible(_short(own))} with {visible(_short(theirs))}"
    id = path.stem if path else _id(f"{_short(own)}-with-{_short(theirs)}")
    out = [f"# contracts/pairs/{id}.toml", "schema = 1", 'kind = "pair"', f"id = {toml(id)}", f"title = {toml(title)}"]
    for role, source in (("drafter", own), ("target", theirs)):
        entry, note = _side(source, path)
        out += [*(_comment(note) if note else ()), f"{role} = {toml(entry)}"]
    contract = case.drafter.contract
    if contract and (family or contract.in_target):
        out.append(f"family = {toml(contract.id)}")
    out.append("")
    made = report(case, "")
    for row in (side(view) for view in (case.drafter, case.target) if view):
        words = [row.contract or "no contract knows it", f"{row.dialect} names" if row.dialect else "", row.provenance]
        out += _comment(f"{row.role}: {', '.join(filter(None, words))}")
    out += [] if case.target else _comment("target: not at hand, so that nothing was compared with it")
    out += _comment("; ".join(f"{s.rung}: {s.verdict}" for s in made.sections if s.rung in RUNGS))
    fails = [f for f in made.findings if f.level in ("error", "warning") and not f.code.startswith("CON")]
    open_ = [f for f in made.findings if f.level == "unknown"]
    out += ["", *_proposals("allow", fails, "fails: mend it, or accept it with a reason, and only with one")]
    out += ["", *_proposals("expect_unknown", open_, "could not be judged: find out, or accept that it is not known")]
    out += ["", "[facts]  # what no file says; each with its source", *_facts(case)]
    return Draft("pair", id, "\n".join(out) + "\n")


def _short(source: Source) -> str:
    return source.repo or (Path(os.path.abspath(source.folder)).name if source.folder else source.name)


def _id(text: str) -> str:
    clean = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")
    return clean[:100] if re.fullmatch(ID, clean[:100]) else "mine"


def _side(source: Source, path: Path | None) -> tuple[dict[str, Any], str]:
    """Return how a pair names one side, and what must be said of it."""
    if source.folder is None:
        if source.revision:
            return {"model": source.name, "revision": source.revision}, ""
        return {"model": source.name}, 'its revision is not known: add revision = "40 hex digits" once it is recorded'
    where = Path(os.path.abspath(source.folder))
    note = "" if path else "an absolute path; with --output FILE it is written relative to FILE"
    model = where.as_posix()
    if path is not None:
        relative = os.path.relpath(where, os.path.abspath(path.parent)).replace(os.sep, "/")
        model = relative if relative.startswith(".") else f"./{relative}"
    if re.fullmatch(REPO, source.repo):
        at = f"at commit {source.revision}" if source.revision else "its commit is not known"
        return {"model": model, "repo": source.repo}, "; ".join(filter(None, [note, at]))
    said = 'add repo = "ORG/NAME" if it is known what it holds'
    return {"model": model}, "; ".join(filter(None, [note, said]))


def _proposals(key: str, found: Sequence[Finding], what: str) -> Iterator[str]:
    """Yield acceptances as comments, each below what its finding says; nothing where there is nothing to accept."""
    if not found:
        yield from _comment(f"{key}: there is nothing to accept")
        return
    yield from _comment(f"What {what}.")
    yield f"# {key} = ["
    for f in found[:MOST]:
        seen = [f"{word} {text}" for word, text in (("expected", f.expected), ("observed", f.observed)) if text]
        yield from _comment(f"{f.code} {f.subject}: {f.message}. {'; '.join(seen)}", "#   ")
        yield f"#   {toml({'code': f.code, 'subject': _glob(f.subject), 'because': ''})},"
    if len(found) > MOST:
        yield f"#   # and {len(found) - MOST} more: draftproof check prints all"
    yield "# ]"


def _glob(subject: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", subject)


_ASKS = {  # fact -> what to declare
    "trained_on": ("ORG/NAME", "the target whose hidden states it was trained on"),
    "aux_convention": ("boundary", "what its layer ids mean"),
    "aux_layers": ([0], "the layers it was trained on, in that convention"),
    "trained_context": (4096, "the length it was trained at, in tokens"),
    "partial_rotary_factor": (1.0, "the factor it was trained with"),
}


def _facts(case: Case) -> Iterator[str]:
    """Yield what is declared with its source, and as comments what is not."""
    assert case.drafter is not None
    view, contract = case.drafter, case.drafter.contract
    facts = declared_facts(case.library, view.checkpoint.source.repo)
    asked = {f.code for f in case.fits or () if f.level == "unknown"}
    verifier = view.stated("verifier")
    for name, (example, meaning) in _ASKS.items():
        if name in facts:
            yield f"{name} = {toml({'value': facts[name].value, 'source': facts[name].source})}"
            continue
        if name.startswith("aux") and not (contract and contract.conventions):
            continue
        if name == "partial_rotary_factor" and "PAIR412" not in asked:
            continue
        if name == "trained_on" and contract and contract.in_target:
            continue
        if name == "trained_on" and isinstance(verifier, Known) and verifier.value:
            yield from _comment(f"trained_on: {verifier.witness} says {verifier.value}")
            continue
        if name == "aux_convention" and contract:
            meaning += f": {' or '.join(contract.conventions)}{_usable(case)}"
            example = next(iter(contract.conventions))
        yield from _comment(f"not declared: {meaning}")
        yield f"# {name} = {toml({'value': example, 'source': ''})}"
    for name, fact in facts.items():
        if name not in _ASKS:
            yield f"{name} = {toml({'value': fact.value, 'source': fact.source})}"
    for f in case.fits or ():
        if f.code == "PAIR423" and f.level == "unknown":
            yield from _comment(f"not declared: what {f.subject} means in this checkpoint: {f.expected}")
            yield f"# meanings.{f.subject} = {toml({'value': '', 'source': ''})}"


def _usable(case: Case) -> str:
    """Say which conventions the stated ids allow, where they do not allow all."""
    couple = case.couple
    if couple is None:
        return ""
    stated = [s for key in couple.family.aux_keys if isinstance(s := couple.drafter.lookup(key), Known)]
    if not stated or not isinstance(stated[0].value, list):
        return ""
    names = [c.name for c in aux_usable(couple, stated[0].value)]
    if len(names) == len(couple.family.conventions):
        return ""
    return f"; {stated[0].value} can be {' or '.join(names) or 'neither'} of this target"


# --- a family -----------------------------------------------------------------------------------------------------

_NAMED = {  # config key -> dim, in the order in which one is preferred where values coincide
    "hidden_size": "hidden", "intermediate_size": "intermediate", "head_dim": "head_dim", "vocab_size": "vocab",
    "draft_vocab_size": "draft_vocab", "target_hidden_size": "target_hidden", "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads", "num_hidden_layers": "layers", "q_lora_rank": "q_rank",
    "kv_lora_rank": "kv_rank", "qk_nope_head_dim": "nope", "qk_rope_head_dim": "rotary", "v_head_dim": "v_dim",
    "moe_intermediate_size": "moe_intermediate",
}  # fmt: skip
_NO_SIZE = re.compile(
    r"(token|position|context|length|theta|window|seed|epoch|step|batch|version|_ids?$|rope_|factor|revision)"
)
_OF_HEAD = re.compile(r"(^|_)(head_dim|nope|rotary|v_dim|dim)(_|$)")  # a size of one head
_COUNT = re.compile(r"(^|_)(num|n|layers|heads|experts|count|k|top)(_|$)")
_PARTS = (  # parts of a tensor's name -> dims that its axes are likelier made of
    (("q_proj", "o_proj"), ("heads", "head_dim")),
    (("k_proj", "v_proj"), ("kv_heads", "head_dim")),
    (("q_norm", "k_norm"), ("head_dim",)),
    (("gate_proj", "up_proj", "down_proj", "mlp"), ("intermediate",)),
    (("embed", "lm_head", "t2d"), ("vocab", "draft_vocab")),
    (("d2t",), ("draft_vocab",)),
)
_SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id", "mask_token_id")
_EPS = ("rms_norm_eps", "layer_norm_eps", "norm_eps", "layer_norm_epsilon")
_PLACE = re.compile(r"\{[ij]\}")
_INDEX = re.compile(r"0|[1-9]\d{0,5}")
_ROLES = {
    "fusion": "fc.weight",
    "embedding": "embed_tokens.weight",
    "head": "lm_head.weight",
    "map": "d2t",
    "mask": "t2d",
}


@dataclass
class Sizes:
    """Hold the sizes that a config states: dim -> key, and value; and which of them were used."""

    keys: dict[str, str] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    derived: dict[str, str] = field(default_factory=dict)  # dim -> expression, where no key states it
    used: set[str] = field(default_factory=set)

    def put(self, name: str, key: str, value: int) -> None:
        """Add a dim, unless one of its name is there."""
        if name not in self.keys:
            self.keys[name], self.values[name] = key, value

    def use(self, text: str) -> str:
        """Return an expression, noting the dims in it."""
        self.used |= {n for n in re.findall(r"[a-z_][A-Za-z0-9_]*", text) if n in self.values}
        return text


def sizes_of(config: Mapping[str, Any]) -> tuple[Sizes, str]:
    """Return the sizes in a config, and the nested table they stand in, if it is one."""
    tables = [k for k, v in config.items() if isinstance(v, Mapping) and type(v.get("hidden_size")) is int]
    nested = tables[0] if "hidden_size" not in config and len(tables) == 1 else ""
    flat = dict(_ints(config[nested] if nested else config))
    sizes = Sizes()
    for key in sorted(flat, key=lambda k: [*_NAMED].index(k) if k in _NAMED else len(_NAMED)):
        name = _NAMED.get(key) or _dim(key)
        sizes.put(name, key, flat[key])
    hidden, heads = sizes.values.get("hidden", 0), sizes.values.get("heads", 0)
    if "head_dim" not in sizes.values and heads and hidden and hidden % heads == 0:
        sizes.values["head_dim"], sizes.derived["head_dim"] = hidden // heads, "hidden // heads"
    return sizes, nested


def _ints(config: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, int]]:
    for key, value in config.items():
        at = f"{path}{key}"
        if type(value) is int and 1 <= value < 2**31 and not _NO_SIZE.search(str(key)):
            if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", at):
                yield at, value
        elif isinstance(value, Mapping) and path.count(".") < 2:
            yield from _ints(value, f"{at}.")


def _dim(key: str) -> str:
    """Return the name of a dim for a config key: num_experts -> experts."""
    name = re.sub(r"\W", "_", key).lower()
    name = re.sub(r"^num_|_size$", "", name) or name
    return f"{name}_" if name in RESERVED or iskeyword(name) or name in ("i", "j") else name


def express(size: int, sizes: Sizes, name: str = "") -> list[str]:
    """Return how a size may be written over the dims of a config, likeliest first; the number itself where it cannot.

    One dim, a multiple of one, a product of a count and a size, a sum of two, a part of one: 21504 is 3 * hidden.
    Readings that are much less likely than the first are left out.
    """
    if size < 2:
        return [str(size)]
    liked = {d for parts, dims in _PARTS if any(p in name for p in parts) for d in dims}
    values = {n: v for n, v in sizes.values.items() if v > 1 and n != "layers"}
    found: dict[str, float] = {}

    def add(text: str, cost: float, *dims: str) -> None:
        cost -= 1.5 * bool(liked) * (set(dims) <= liked)
        found.setdefault(text, cost + sum([*values].index(d) for d in dims) / 100)

    for a, v in values.items():
        times, part = size // v, v // size
        if v == size:
            add(a, 0, a)
        elif size % v == 0 and 2 <= times <= 16 and v > 16:
            add(f"{times} * {a}", (1.4 if times <= 4 else 2.5) + times / 200, a)
        elif v % size == 0 and 2 <= part <= 16 and size > 16:
            add(f"{a} // {part}", 4 + part / 200, a)
    for a in (a for a in values if _COUNT.search(a)):
        for size_, w in values.items():
            if size_ == a:
                continue
            own = a.endswith("heads") and bool(_OF_HEAD.search(size_))
            for times in (1, 2):
                if size == times * values[a] * w:
                    text = f"{a} * {size_}" if times == 1 else f"{times} * {a} * {size_}"
                    add(text, (1 if own else 4) + 2 * (times - 1), a, size_)
        if a.endswith("heads") and size % values[a] == 0:
            for one, two in _sums(size // values[a], values):
                if _OF_HEAD.search(one) and _OF_HEAD.search(two):
                    add(f"{a} * ({one} + {two})", 1.2, a, one, two)
    for one, two in _sums(size, values):
        add(f"{one} + {two}", 3, one, two)
    ranked = sorted(found, key=lambda t: (found[t], t))
    first, _, rest = ranked[0].partition(" * ") if ranked else ("", "", "")
    ranked = [t for t in ranked if t != f"{values.get(first)} * {rest}"]  # a count, written as its number
    return [t for t in ranked if t in values or found[t] <= found[ranked[0]] + 1.3] or [str(size)]


def _sums(size: int, values: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    names = [n for n in values if n not in ("heads", "kv_heads")]
    for n, one in enumerate(names):
        for two in names[n + 1 :]:
            if values[one] + values[two] == size and size > 16:
                yield one, two


def _family(checkpoint: Checkpoint, library: Library, path: Path | None) -> Draft:
    source, config, table = checkpoint.source, checkpoint.config, checkpoint.table()
    sizes, nested = sizes_of(config.data)
    id = path.stem if path else _id(_short(source))
    rows = list(_rows(table.tensors, sizes))
    dtypes = ", ".join(sorted({t.dtype for t in table.tensors.values()}))
    out = [f"# contracts/families/{id}.toml", *_comment(
        f"The start of a family, from the {len(table.tensors)} tensors ({dtypes}) of {source.label}. Every shape is "
        "what this one checkpoint has: look at each, above all where another reading is noted. It is used where it "
        f"stands in contracts/families/: draftproof check --drafter {source.name}"
    )]  # fmt: skip
    out += ["schema = 1", 'kind = "family"', f"id = {toml(id)}"]
    out += [f"title = {toml(f'as {visible(_short(source))} has it: say what it is')}"]
    out += [f"source = {toml(f'the headers of {visible(source.label)}: say where the layout is written')}"]
    out += [f"nested = {toml(nested)}"] if nested else []
    out += ["", "[detect]", *_detect(checkpoint, library)]
    body, lines = [], []
    for row in rows[:MAX_TENSORS]:
        body += row
    if len(rows) > MAX_TENSORS:
        body.append(f"# and {len(rows) - MAX_TENSORS} more, which a contract cannot hold")
    parts = list(_of_parts(config.data, nested, sizes, table.tensors))
    for name in [n for n in sizes.derived if n in sizes.used]:
        sizes.use(sizes.derived[name])
    lines += ["", "[dims]  # bound once; add default = … where a key may be left out"]
    lines += [
        f"{_key(n)} = {toml({'drafter': sizes.keys[n]} if n in sizes.keys else {'default': sizes.derived[n]})}"
        for n in sizes.values
        if n in sizes.used
    ]
    if "max_position_embeddings" in _top(config.data, nested):
        lines.append('context = { drafter = "max_position_embeddings" }')
    out += [*lines, "", "[tensors]  # Linear weights are [out, in]", *body, "", "[dialects]", "bare = {}", *parts]
    return Draft("family", id, "\n".join(out) + "\n")


def _top(config: Mapping[str, Any], nested: str) -> Mapping[str, Any]:
    return {**config, **(config[nested] if nested else {})}


def _detect(checkpoint: Checkpoint, library: Library) -> Iterator[str]:
    """Yield what tells the family: its architecture if that is its own, else a tensor that others have not."""
    own = checkpoint.config.texts("architectures")
    taken = {
        a
        for kind in ("family", "target")
        for id in library.files(kind)
        for key in ("any_architecture", "plain_architecture")
        for a in library.detect(kind, id).get(key, ())
    }
    mine = [a for a in own if a not in taken]
    if mine:
        yield f"any_architecture = {toml(mine)}"
        return
    yield from _comment("the architecture is that of other models, so a tensor that those have not must tell it")
    if own:
        yield f"plain_architecture = {toml(own)}"
    names = [n for n in checkpoint.table().tensors if not re.search(r"[*?\[]", n)]
    plain = re.compile(r"(^|\.)(layers|norm|embed_tokens|lm_head)\.")
    odd = [n for n in names if not plain.search(n)] or names
    yield f"any_tensor = {toml(sorted(odd)[:2])}"


class Row(NamedTuple):
    """Hold tensors of one shape and dtype, whose names differ by indices alone."""

    name: str  # with {i}, and {j}
    tensor: Tensor
    loops: tuple[str, ...] = ()


def _rows(tensors: Mapping[str, Tensor], sizes: Sizes) -> Iterator[list[str]]:
    """Yield the rule of each tensor, or row of them, with other readings of its shape as a comment."""
    for name in filter(_PLACE.search, tensors):
        yield [*_comment(f"{toml(name)} cannot stand in a contract, where {{i}} and {{j}} are indices")]
    for row in collapse(tensors, sizes):
        read = [express(n, sizes, row.name) for n in row.tensor.shape]
        entry: dict[str, Any] = {}
        if row.loops:
            entry["for"] = row.loops[0] if len(row.loops) == 1 else list(row.loops)
        entry["shape"] = [sizes.use(one[0]) for one in read]
        if row.tensor.dtype not in DTYPE_SETS["float"]:
            entry["dtype"] = "index" if row.tensor.dtype in DTYPE_SETS["index"] else row.tensor.dtype
        both = zip(row.tensor.shape, read, strict=True)
        other = [f"{n} is also {' or '.join(one[1:3])}" for n, one in both if one[1:]]
        line = f"{toml(row.name)} = {toml(entry)}"
        yield [line + (f"  # {'; '.join(dict.fromkeys(other))}" if other else "")]


def collapse(tensors: Mapping[str, Tensor], sizes: Sizes) -> Iterator[Row]:
    """Yield the tensors, those whose names differ by an index, or two, as one row; others alone."""
    groups: dict[str, dict[tuple[int, ...], Tensor]] = {}
    for name, tensor in tensors.items():
        if _PLACE.search(name):
            continue
        parts = name.split(".")
        at = [n for n, part in enumerate(parts) if _INDEX.fullmatch(part)][-2:]
        index = tuple(int(parts[n]) for n in at)
        shown = [f"{{{'ij'[at.index(n)]}}}" if n in at else part for n, part in enumerate(parts)]
        groups.setdefault(".".join(shown), {})[index] = tensor
    for pattern, members in groups.items():
        yield from _row(pattern, members, sizes)


def _row(pattern: str, members: Mapping[tuple[int, ...], Tensor], sizes: Sizes) -> Iterator[Row]:
    first = next(iter(members.values()))
    if () in members:
        yield Row(pattern, first)
    elif "{j}" not in pattern:
        yield from _runs(pattern, {index[0]: tensor for index, tensor in members.items()}, sizes)
    else:
        ends = [max(index[n] for index in members) + 1 for n in (0, 1)]
        same = all(_kind(t) == _kind(first) for t in members.values())
        if same and len(members) == ends[0] * ends[1] and min(ends) > 1:
            loops = tuple(f"{x} in 0..{sizes.use(_end(e, sizes))}" for x, e in zip("ij", ends, strict=True))
            yield Row(pattern, first, loops)
            return
        for i in sorted({index[0] for index in members}):
            inner = pattern.replace("{i}", str(i), 1).replace("{j}", "{i}")
            yield from _runs(inner, {index[1]: t for index, t in members.items() if index[0] == i}, sizes)


def _kind(tensor: Tensor) -> tuple[str, tuple[int, ...]]:
    return tensor.dtype, tensor.shape


def _runs(pattern: str, members: Mapping[int, Tensor], sizes: Sizes) -> Iterator[Row]:
    """Yield a row for each run of indices whose tensors are of one shape; one that stands alone has its number."""
    numbers = sorted(members)
    start = 0
    for n, number in enumerate(numbers):
        last = n + 1 == len(numbers)
        if not last and numbers[n + 1] == number + 1 and _kind(members[numbers[n + 1]]) == _kind(members[number]):
            continue
        first = numbers[start]
        start = n + 1
        whole = first == 0 and last and number + 1 == sizes.values.get("layers")
        if first == number and not whole:
            yield Row(pattern.replace("{i}", str(number)), members[number])
        else:
            end = _end(number + 1, sizes) if last else str(number + 1)
            yield Row(pattern, members[first], (f"i in {first}..{sizes.use(end)}",))


def _end(number: int, sizes: Sizes) -> str:
    """Return the dim that counts to a number, or the number."""
    same = [n for n, v in sizes.values.items() if v == number and not n.endswith("heads")]
    counts = [n for n in same if n == "layers" or _COUNT.search(sizes.keys.get(n, ""))]
    return min(counts, key=lambda n: n != "layers") if counts else str(number)


def _of_parts(config: Mapping[str, Any], nested: str, sizes: Sizes, tensors: Mapping[str, Tensor]) -> Iterator[str]:
    """Yield roles, sizes and keys: what can be told by name, and none for the rest."""
    top = _top(config, nested)
    roles = {part: name for part, name in _ROLES.items() if name in tensors}
    known = {part: dim for part, dim in (("hidden", "hidden"), ("layers", "layers")) if dim in sizes.values}
    if "vocab" in sizes.values:
        known |= {"draft_vocab": "draft_vocab" if "draft_vocab" in sizes.values else "vocab", "target_vocab": "vocab"}
    sizes.used |= {dim for dim in known.values() if dim in sizes.values}
    if "max_position_embeddings" in top:
        known["context"] = "context"
    for table, found in (("roles", roles), ("sizes", known)):
        none = [part for part in KINDS["family"].fields[table].fields if part not in ("none", *found)]
        yield from ("", f"[{table}]", *(f"{part} = {toml(name)}" for part, name in found.items()))
        yield f"none = {toml(none)}"
    has = {key: [k for k in keys if k in top] for key, keys in (
        ("special", _SPECIAL), ("eps", _EPS), ("dtype", ("dtype", "torch_dtype")),
        ("quantisation", ("quantization_config",)),
    )}  # fmt: skip
    verifier = config.get("speculators_config")
    inner = verifier.get("verifier") if isinstance(verifier, Mapping) else None
    stated = isinstance(inner, Mapping) and isinstance(inner.get("name_or_path"), str)
    yield from ("", "[keys]", *(f"{key} = {toml(keys)}" for key, keys in has.items()))
    yield f"verifier = {toml(['speculators_config.verifier.name_or_path'] if stated else [])}"
    rope = {"theta": ("rope_theta",), "tables": ("rope_parameters", "rope_scaling"),
            "partial": ("partial_rotary_factor",), "interleaved": ("rope_interleave",)}  # fmt: skip
    yield f"rope = {toml({part: [k for k in keys if k in top] for part, keys in rope.items()})}"
