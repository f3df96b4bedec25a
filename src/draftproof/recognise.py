"""Which contract speaks of a checkpoint: architecture, tensors, model type and config keys, weighed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from draftproof.checkpoint import Checkpoint, listed
from draftproof.contracts import Contract, TensorRule
from draftproof.dims import Absent, Bindings, Known, is_true, value_of
from draftproof.findings import Finding, finding, nearest, unknown, visible
from draftproof.hub import small_json
from draftproof.library import Library


def recognise(
    library: Library, checkpoint: Checkpoint, kind: str, id: str = "", *, in_target: bool = False
) -> tuple[Contract | None, list[Finding]]:
    """Return the contract that recognises a checkpoint best, and why not where none or two do.

    One that is declared to speak of a model whose tensors were not read is taken, for its config may tell too little.
    An id may name a group: mtp stands for every contract mtp-*. With in_target, only families that stand in their
    target's checkpoint are asked for; without it, none of them, unless the id names them.
    """
    files = library.files(kind)
    id = id or ("" if in_target else _declared(library, checkpoint, kind))
    group = [] if id in files else [one for one in files if id and one.startswith(f"{id}-")]
    if id and not group:
        contract, found = library.get(kind, id)
        return contract, list(found)
    if kind == "family" and not (group or in_target) and (adapter := _adapter(checkpoint)):
        return None, [adapter]
    other = "target" if kind == "family" else "family"
    opposite = "" if id or in_target else _declared(library, checkpoint, other)
    ranked = [] if opposite else rank(library, checkpoint, kind, among=group, in_target=in_target or bool(group))
    best = [one for one in ranked if one[0] == ranked[0][0]]
    if len(best) == 1 and (best[0][0] >= SURE or not rank(library, checkpoint, other, SURE)):
        contract, found = library.get(kind, best[0][1])
        return contract, [] if contract else list(found)
    config, source = checkpoint.config, checkpoint.source
    if len(best) > 1:
        seen = " and ".join(f"{id} ({_evidence(library.detect(kind, id), checkpoint)})" for _, id in best)
        ids = [id for _, id in best]
        help = (
            f"say which is meant: {' or '.join(f'--family {id}' for id in ids)}"
            if kind == "family"
            else ("change [detect] of one of them, so that one alone matches: both are contracts at hand")
        )
        return None, [
            unknown("TEN409", source.name, expected="one contract", observed=seen, where=source.label, help=help)
        ]
    if config.broken or any(f.code == "SRC114" for f in checkpoint.findings):
        return None, []  # what could not be read has been said
    if any(isinstance(config(key), Known) for key in _DIFFUSION):
        seen = f"a part of a diffusion model ({visible(config.text('_class_name')) or 'it names no class'})"
        expected = "a checkpoint of a language model"
        return None, [finding("SRC125", source.name, expected=expected, observed=seen, where=source.label)]
    code = "TEN408" if kind == "family" else "TEN410"
    known = f"one of {', '.join(group or files)}"
    seen = f"architectures {visible(config.texts('architectures'))}, model_type {visible(config.text('model_type'))!r}"
    turned = [] if group or in_target or opposite else rank(library, checkpoint, other, SURE)
    if opposite or (turned and not (kind == "family" and _plain(library, checkpoint))):
        role = "target" if other == "target" else "drafter"
        help = "give the drafter first, and its target as target"
        if kind == "family":  # its config may be that of a plain model, and its tensors renamed
            inner = [one for _, one in rank(library, checkpoint, "family", in_target=True)]
            name = visible(source.name)
            help += (
                f"; the drafter that stands in it: draftproof check --drafter {name} --family {inner[0]}"
                if inner
                else "; if it is a drafter, its tensors are not named as one's: name its contract with --family"
            )
        seen = f"{seen}: a {role} ({opposite or turned[0][1]})"
        return None, [
            finding(
                "PAIR422",
                f"{checkpoint.role} {source.name}",
                f"this is not a {checkpoint.role}",
                expected=f"a {checkpoint.role}",
                observed=seen,
                help=help,
            )
        ]
    names = [a for id in group or files for a in library.detect(kind, id).get("any_architecture", ())]
    odd = [a for a in config.texts("architectures") if a not in names]
    near = next((m for a in odd if (m := nearest(a, names, 0.8))), "")
    note, help = nearly(library, checkpoint, group or list(files)) if kind == "family" and not in_target else ("", "")
    return None, [
        unknown(
            code, f"{checkpoint.role} {source.name}", expected=known, observed=seen + near, where=source.label,
            note=note, help=help,
        )
    ]  # fmt: skip


_DIFFUSION = ("_diffusers_version", "_class_name")  # keys of a diffusion model's config
_LOW_RANK = (".lora_", "lora_A", "lora_B", "lora_embedding_", ".hada_w", ".lokr_w", ".ia3_")  # in an adapter's names


def _adapter(checkpoint: Checkpoint) -> Finding | None:
    """Say that the tensors are those of an adapter, where most of them are."""
    table = checkpoint.table()
    odd = [name for name in table.tensors if any(part in name for part in _LOW_RANK)]
    if not table.read or not odd or 2 * len(odd) < len(table.tensors):
        return None
    base = small_json(checkpoint.source, "adapter_config.json").get("base_model_name_or_path")
    into = visible(base) if isinstance(base, str) and base else "its base model"
    help = f"merge it into {into}, save the result, and give that folder"
    seen = f"{len(odd)} of {len(table.tensors)} tensors of an adapter: {listed(odd, 3)}"
    label = checkpoint.source.label
    return finding("TEN435", checkpoint.source.name, expected="whole weights", observed=seen, where=label, help=help)


def nearly(library: Library, checkpoint: Checkpoint, ids: Sequence[str]) -> tuple[str, str]:
    """Say how near each family comes, and by what it fails: "eagle3: 12 of 15 tensor names, lacks fc.weight".

    Returns that, and what to do. A name counts if one of the family's dialects gives it, with the others of its kind.
    """
    table = checkpoint.table()
    names = list(table.tensors)
    rows: list[tuple[int, str, str]] = []
    for id in ids:
        contract, _ = library.get("family", id)
        if contract is None or (contract.in_target and len(ids) == len(library.files("family"))):
            continue
        best, lacking = _named(contract, checkpoint)
        why = [f"{len(best)} of {len(names)} tensor names"] if names else []
        why += [f"lacks {listed(lacking, 3)}"] if names and lacking else []
        why += _ruled_out(contract.detect, checkpoint)
        near = 2 * len(best) >= len(names) > 0
        rows.append((len(lacking) - len(best) if near else 1 << 30, id, ", ".join(why) if near else "no"))
    rows.sort()
    close = [f"{id}: {why}" for _, id, why in rows if why != "no"][:4]
    far = [id for _, id, why in rows if why == "no"]
    if not names:
        return "", ""
    said = "; ".join([*close, f"no: {listed(far, 4)}"] if far else close) or "no family comes near"
    write = f"write a contract for it: draftproof init --drafter {visible(checkpoint.source.name)} is a start"
    help = f"if {rows[0][1]} is meant, say so with --family {rows[0][1]}; else {write}" if close else write
    return said, help


def readings(library: Library, checkpoint: Checkpoint) -> list[str]:
    """Return the families that a checkpoint can be of which none recognises: all that it states and holds is theirs.

    A whole model can draft by tokens alone; what stands in its target's checkpoint is told by that.
    """
    table, config = checkpoint.table(), checkpoint.config
    whole = bool(rank(library, checkpoint, "target", SURE))
    own = config.texts("architectures")
    found = []
    for id in library.files("family"):
        detect = library.detect("family", id)
        if detect.get("in_target") or _ruled_out(detect, checkpoint):
            continue
        shared = any(a in detect.get("plain_architecture", ()) for a in own)
        contract = library.get("family", id)[0] if table.read or whole or shared else None
        if contract is None:
            continue
        if table.read and checkpoint.source.has_files:
            good, lacking = _named(contract, checkpoint)
            if len(good) == len(table.tensors) > 0 and not lacking:
                found.append(id)
        elif shared or (whole and contract.standalone):
            found.append(id)
    inside = rank(library, checkpoint, "family", in_target=True)
    return found + [id for score, id in inside if score == inside[0][0]]


def _named(contract: Contract, checkpoint: Checkpoint) -> tuple[set[str], list[str]]:
    """Return the names of a family that a checkpoint has, in the best of its dialects, and those required it lacks."""
    names = list(checkpoint.table().tensors)
    decoded = [[d.decode(n) for n in names] for d in contract.dialects]
    good = [{c for c in row if c is not None and next(contract.rules_for(c), None)} for row in decoded]
    best = max(good, key=len, default=set())
    dims = Bindings(contract.dims, {"drafter": checkpoint.config.under(contract.nested)})
    wanted = [r for r in contract.tensors.values() if r.presence == "required" and _applies(r, dims)]
    return best, [n for r in wanted if (n := r.name.replace("{i}", "0").replace("{j}", "0")) not in best]


def _applies(rule: TensorRule, dims: Bindings) -> bool:
    """Tell whether a rule is known to ask for a tensor, or may do so for each index of a row."""
    ends = [(value_of(loop.first, dims), value_of(loop.stop, dims)) for loop in rule.over]
    empty = any(type(first) is type(stop) is int and first >= stop for first, stop in ends)
    return not empty and (rule.when is None or is_true(rule.when, dims))


def _ruled_out(detect: Mapping[str, Any], checkpoint: Checkpoint) -> list[str]:
    """Return what rules a contract out, whatever else speaks for it."""
    config, names = checkpoint.config, checkpoint.table().tensors
    out = [
        f"ruled out by {key} in config.json" for key in detect.get("no_config", ()) if isinstance(config(key), Known)
    ]
    out += [f"ruled out by {p}" for p in detect.get("no_tensor", ()) if _any_name(names, p)]
    out += [
        f"{key} is not {' or '.join(texts)}"
        for key, texts in detect.get("texts", {}).items()
        if not isinstance(seen := config(key), Known) or seen.value not in texts
    ]
    return out


def _evidence(detect: Mapping[str, Any], checkpoint: Checkpoint) -> str:
    """Return by what a contract recognises a checkpoint."""
    config, table = checkpoint.config, checkpoint.table()
    own = config.texts("architectures")
    out = [a for key in ("any_architecture", "plain_architecture") for a in detect.get(key, ()) if a in own]
    out += [f"{key} = {config.text(key)}" for key in detect.get("texts", {}) if config.text(key)]
    out += [f"model_type {m}" for m in detect.get("any_model_type", ()) if m == config.text("model_type")]
    out += [key for key in detect.get("any_config", ()) if isinstance(config(key), Known)]
    if table.read and not out:
        out += [p for p in detect.get("any_tensor", ()) if _any_name(table.tensors, p)]
    return f"by {listed(out, 3)}"


def _plain(library: Library, checkpoint: Checkpoint) -> bool:
    """Tell whether it may be a drafter yet: its architecture is one that drafters share, its tensors were not read."""
    if checkpoint.source.has_files or checkpoint.table().read:
        return False
    shared = [library.detect("family", id).get("plain_architecture", ()) for id in library.files("family")]
    return any(a in names for a in checkpoint.config.texts("architectures") for names in shared)


def _declared(library: Library, checkpoint: Checkpoint, kind: str) -> str:
    """Return the contract that is declared to speak of a model whose tensors were not read; or ""."""
    source = checkpoint.source
    model, _ = library.model(source.repo) if source.provenance in ("derived", "partial") else (None, ())
    declared = str(model.contract.value) if model and model.contract else ""
    return declared if declared in library.files(kind) else ""


SURE = 8  # the score of a known architecture


def rank(
    library: Library,
    checkpoint: Checkpoint,
    kind: str,
    least: int = 1,
    among: Sequence[str] = (),
    *,
    in_target: bool = False,
) -> list[tuple[int, str]]:
    """Return score and id of the contracts that recognise a checkpoint, best first; only [detect] tables are read.

    A first look at the files' text finds the likely ones; the others are read only if none of those is sure.
    """
    config = checkpoint.config
    words = [w for w in (*config.texts("architectures"), config.text("model_type")) if w]
    asked = among or list(library.files(kind))
    likely = [one for one in library.mentioning(kind, words) if one in asked]
    ranked: list[tuple[int, str]] = []
    for ids in (likely, [i for i in asked if i not in likely]):
        for one in ids:
            detect = library.detect(kind, one)
            if bool(detect.get("in_target")) is not in_target and not among:
                continue
            if (score := _score(detect, checkpoint, kind == "target" or "in_target" in detect)) >= least:
                ranked.append((score, one))
        if any(score >= SURE for score, _ in ranked):
            break
    return sorted(ranked, key=lambda one: (-one[0], one[1]))


def _score(detect: Mapping[str, Any], checkpoint: Checkpoint, open: bool) -> int:
    """Weigh the evidence: 8 an architecture or a text, 4 tensors, 2 a model type, 1 a config key; 0 if ruled out."""
    config = checkpoint.config

    def has(key: str) -> bool:
        return isinstance(config(key), Known)

    if any(has(key) for key in detect.get("no_config", ())):
        return 0
    texts: Mapping[str, tuple[str, ...]] = detect.get("texts", {})
    if any(isinstance(config(key), Absent) or (has(key) and config(key).value not in texts[key]) for key in texts):  # type: ignore[union-attr]
        return 0
    stated = config.texts("architectures")
    own, common = detect.get("any_architecture", ()), detect.get("plain_architecture", ())
    shared = any(a in common for a in stated)
    score = SURE * any(has(key) for key in texts)
    score += SURE * any(a in own for a in stated)
    score += 2 * (config.text("model_type") in detect.get("any_model_type", ()))
    if (open or (common and not own)) and not score and not shared and stated:
        return 0  # of a whole model whose stated architecture is another, like names of tensors prove nothing
    score += any(has(key) for key in detect.get("any_config", ()))
    patterns, against = detect.get("any_tensor", ()), detect.get("no_tensor", ())
    if (patterns and score < SURE) or against:
        table = checkpoint.table() if not open else checkpoint.table([p for p in patterns if "*" not in p])
        if table.read:
            if any(_any_name(table.tensors, p) for p in against):
                return 0
            score += 4 * any(_any_name(table.tensors, p) for p in patterns)
    return score + SURE * (shared and score > 0)


def _any_name(names: Mapping[str, Any], pattern: str) -> bool:
    return any(fnmatchcase(n, pattern) for n in names) if "*" in pattern else pattern in names
