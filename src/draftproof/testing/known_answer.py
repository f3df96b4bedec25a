"""A target, a drafter and ``expected.json`` with what an engine must do with them, for the engine's own tests.

    def test_my_engine(draftproof_fixture):
        made = draftproof_fixture(break_every=5)      # made.target, made.drafter: folders; made.expected: a dict
        assert accepted(made.target, made.drafter, made.expected["prompt"]) == made.expected["accepted"]

Without a fault the pair's accepted tokens are known in closed form; llama.cpp and vLLM 0.33.0 were seen to give exactly
them. With one, it is expected what the recorded engines did. ``draftproof fixture`` writes the same from the command
line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftproof.findings import nearest
from draftproof.testing import cases, fixtures, truth
from draftproof.testing.fixtures import Model

KNOWN = "known"  # the cases on the pair that is known in closed form
MOST = 40  # names in a message


class Refused(ValueError):
    """Say what cannot be made, and what can."""


@dataclass(frozen=True)
class Made:
    """Hold where a pair was written, and what an engine must do with it."""

    target: Path
    drafter: Path
    expected: Mapping[str, Any]


def families() -> dict[str, list[str]]:
    """Return family -> the names of its faults."""
    found: dict[str, list[str]] = {}
    for case in cases.cases():
        if case.kind != "perturbed":
            names = found.setdefault(case.family, [])
            names += [] if case.kind == "healthy" else [case.id.removeprefix(f"{case.family}/")]
    return found


def write(folder: Path, family: str = KNOWN, dialect: str = "", break_every: int = 0, fault: str = "") -> Made:
    """Write target/, drafter/ and expected.json into a folder that is made; raises Refused."""
    known = families()
    if family not in known:
        raise Refused(f"no pair of family {family!a}{nearest(family, known)}; there are {', '.join(known)}")
    if fault and fault not in known[family]:
        alike = [name for name in known[family] if name.startswith(fault.partition("/")[0])] or known[family]
        shown = f"{', '.join(alike[:MOST])}{', …' if len(alike) > MOST else ''}"
        raise Refused(f"no fault {fault!a} of {family}{nearest(fault, known[family])}; "
                      f"{len(known[family])} are known: {shown}")  # fmt: skip
    if break_every < 0 or break_every == 1:
        raise Refused(f"break_every is {break_every}: expected 0, or 2 and more")
    exact = not fault and truth.family_of(family) == truth.family_of(KNOWN)  # its accepted tokens are known
    if break_every and not exact:
        exact_of = truth.family_of(KNOWN)
        raise Refused(
            f"break_every goes with the family {exact_of}, and with no fault: what it must give is then exact"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Refused(f"{ascii(str(folder))[1:-1]} exists and is not an empty folder")
    case = cases.case(f"{KNOWN if exact else family}/{fault or cases.HEALTHY}")
    target, drafter = cases.models(case)
    expected: dict[str, Any] = {"family": family, "fault": fault, "drafter": case.folder}
    if exact:
        pair = fixtures.known(break_every)
        target, drafter = pair.target, pair.drafter
        expected |= {
            "outcome": "meant", "break_every": break_every, "prompt": list(pair.prompt), "tokens": list(pair.tokens),
            "drafts_per_step": pair.drafts, "steps": pair.steps, "drafted": pair.drafted, "accepted": pair.accepted,
            "accepted_by_position": list(pair.accepted_by_position),
        }  # fmt: skip
    launch = cases.case(f"{truth.family_of(KNOWN)}/{cases.HEALTHY}").launch if exact else {}
    expected["facts"] = {key: fact.value for key, fact in truth.facts(case).items()}  # what it was trained with
    expected["launch"] = {engine: list(words) for engine, words in {**launch, **case.launch}.items()}
    expected["env"] = {engine: dict(words) for engine, words in case.env.items()}
    expected["engines"] = {
        table.name: {key: value for key, value in table.rows[case.id]._asdict().items() if key != "id" and value}
        for table in truth.tables()
        if case.id in table.rows
    }
    if dialect:
        drafter, expected["engines"] = in_dialect(drafter, dialect), {}
        expected["dialect"] = dialect
    fixtures.write(target, folder / "target")
    fixtures.write(drafter, folder / case.folder)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")
    return Made(folder / "target", folder / case.folder, expected)


def in_dialect(drafter: Model, name: str) -> Model:
    """Return a drafter with the names of another dialect of its family; raises Refused."""
    view = truth.view(drafter)
    contract = view.contract
    known = {one.name: one for one in contract.dialects if not one.format} if contract else {}
    if name not in known or view.dialect is None:
        raise Refused(f"no dialect {name!a}{nearest(name, known)}; there are {', '.join(known) or 'none'}")
    out = drafter.copy()
    out.tensors = {
        known[name].encode(view.dialect.decode(disk) or disk): tensor for disk, tensor in drafter.tensors.items()
    }
    return out
