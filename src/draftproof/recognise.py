"""Which contract speaks of a checkpoint: architecture, tensors, model type and config keys, weighed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from draftproof.checkpoint import Checkpoint
from draftproof.contracts import Contract
from draftproof.dims import Absent, Known
from draftproof.findings import Finding, finding, unknown, visible
from draftproof.library import Library


def recognise(
    library: Library, checkpoint: Checkpoint, kind: str, id: str = "", *, in_target: bool = False
) -> tuple[Contract | None, list[Finding]]:
    """Return the contract that recognises a checkpoint best, and why not where none or two do.

    An id may name a group: mtp stands for every contract mtp-*. With in_target, only families that stand in their
    target's checkpoint are asked for; without it, none of them, unless the id names them.
    """
    files = library.files(kind)
    group = [] if id in files else [one for one in files if id and one.startswith(f"{id}-")]
    if id and not group:
        contract, found = library.get(kind, id)
        return contract, list(found)
    ranked = rank(library, checkpoint, kind, among=group, in_target=in_target or bool(group))
    best = [one for one in ranked if one[0] == ranked[0][0]]
    other = "target" if kind == "family" else "family"
    if len(best) == 1 and (best[0][0] >= SURE or not rank(library, checkpoint, other, SURE)):
        contract, found = library.get(kind, best[0][1])
        return contract, [] if contract else list(found)
    config, source = checkpoint.config, checkpoint.source
    if len(best) > 1:
        seen = " and ".join(id for _, id in best)
        return None, [unknown("TEN409", source.name, expected="one contract", observed=seen, where=source.label)]
    if config.broken or any(f.code == "SRC114" for f in checkpoint.findings):
        return None, []  # what could not be read has been said
    code = "TEN408" if kind == "family" else "TEN410"
    known = f"one of {', '.join(group or files)}"
    seen = f"architectures {visible(config.texts('architectures'))}, model_type {visible(config.text('model_type'))!r}"
    turned = [] if group or in_target else rank(library, checkpoint, other, SURE)
    if turned and not (kind == "family" and _plain(library, checkpoint)):
        role = "target" if other == "target" else "drafter"
        help = "give the drafter first, and its target as target"
        if kind == "family":  # its config may be that of a plain model, and its tensors renamed
            help += "; if it is a drafter, its tensors are not named as one's: name its contract with --family"
        seen = f"{seen}: a {role} ({turned[0][1]})"
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
    return None, [unknown(code, f"{checkpoint.role} {source.name}", expected=known, observed=seen, where=source.label)]


def _plain(library: Library, checkpoint: Checkpoint) -> bool:
    """Tell whether it may be a drafter yet: its architecture is one that drafters share, its tensors were not read."""
    if checkpoint.source.kind == "folder" or checkpoint.table().read:
        return False
    shared = [library.detect("family", id).get("plain_architecture", ()) for id in library.files("family")]
    return any(a in names for a in checkpoint.config.texts("architectures") for names in shared)


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
    score = SURE * any(has(key) for key in texts)
    score += SURE * any(a in detect.get("any_architecture", ()) for a in config.texts("architectures"))
    score += 2 * (config.text("model_type") in detect.get("any_model_type", ()))
    if open and not score and config.texts("architectures"):
        return 0  # of a target whose stated architecture is another, like names of tensors prove nothing
    score += any(has(key) for key in detect.get("any_config", ()))
    patterns, against = detect.get("any_tensor", ()), detect.get("no_tensor", ())
    if (patterns and score < SURE) or against:
        table = checkpoint.table() if not open else checkpoint.table([p for p in patterns if "*" not in p])
        if table.read:
            if any(_any_name(table.tensors, p) for p in against):
                return 0
            score += 4 * any(_any_name(table.tensors, p) for p in patterns)
    shared = any(a in detect.get("plain_architecture", ()) for a in config.texts("architectures"))
    return score + SURE * (shared and score > 0)


def _any_name(names: Mapping[str, Any], pattern: str) -> bool:
    return any(fnmatchcase(n, pattern) for n in names) if "*" in pattern else pattern in names
