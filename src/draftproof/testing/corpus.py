"""Public reports of drafter faults as checkpoint pairs, for the tests of an engine or a trainer.

    from draftproof.testing import corpus

    for case in corpus.CASES:
        folder = corpus.build(case, tmp_path)   # broken/ and right/, each with drafter/, target/ and pair.toml

``python -m draftproof.testing.corpus`` holds draftproof itself to it: what is caught, what is missed, what is a false
alarm. The files are whole where they are read, headers and configs, and sparse where they are not: the weights.
"""

from __future__ import annotations

import json
import os
import re
import struct
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from draftproof.findings import Finding, Report
    from draftproof.library import Library

SIDES = ("broken", "right")
BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "U8": 1, "I8": 1, "BOOL": 1}
DRAFTER, TARGET = "corpus/drafter", "corpus/target"  # what the folders are said to hold
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 1024000000\n"
Table = dict[str, tuple[str, tuple[int, ...]]]  # name on disk -> dtype, shape


@dataclass(frozen=True)
class Expected:
    """Say what must be found: a code (a glob), a level, and what the finding must show. No level: any above info."""

    code: str
    shows: tuple[str, ...]
    level: str = ""

    def matches(self, found: Finding) -> bool:
        """Tell whether a finding is this one and shows all it must, numbers whole."""
        text = " ".join(
            (found.subject, found.message, found.expected, found.observed, found.note, found.help, *found.bindings)
        )
        level = found.level == self.level if self.level else found.level in ("error", "warning", "unknown")
        return level and fnmatchcase(found.code, self.code) and all(_shown(part, text) for part in self.shows)


def _shown(part: str, text: str) -> bool:
    before, after = (r"(?<![\w.])" if part[:1].isdigit() else ""), (r"(?!\.?\w)" if part[-1:].isdigit() else "")
    return re.search(before + re.escape(part) + after, text) is not None


@dataclass(frozen=True)
class Case:
    """Hold one report, or one of its variants: what is wrong, and what must be found."""

    id: str
    report: str
    fault_class: str
    url: str
    fault: str
    expect: tuple[Expected, ...]
    also: tuple[str, ...] = ()
    family: str = ""
    parts: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def said(self, key: str, side: str) -> str:
        """Return which engine is asked of one side, or how it is launched; "" where the case speaks of none."""
        return str(self.parts.get(side, {}).get(key, self.parts.get(key, "")))

    @property
    def sides(self) -> tuple[str, ...]:
        """Return broken and right; a guard against false alarms has no broken side."""
        return SIDES if self.expect else SIDES[1:]


@dataclass(frozen=True)
class Result:
    """Hold what became of a case: what was not found though it must be, and what was found though it must not be."""

    case: Case
    missed: tuple[str, ...]
    alarms: tuple[str, ...]


def _load() -> tuple[dict[str, Any], tuple[Case, ...]]:
    data = tomllib.loads(Path(__file__).with_name("corpus.toml").read_text(encoding="utf-8"))
    cases = []
    for id, row in data["case"].items():
        name = id.partition("-")[0]
        report = data["report"][name]
        expect = tuple(Expected(e["code"], tuple(e["shows"]), e.get("level", "")) for e in row["expect"])
        also = tuple(row.get("also", ()))
        family = row.get("family", "")
        cases.append(Case(id, name, report["class"], report["url"], row["fault"], expect, also, family, row))
    return data, tuple(cases)


_DATA, CASES = _load()
URLS: Mapping[str, str] = {id: row["url"] for id, row in _DATA["report"].items()}
ELSEWHERE: Mapping[str, str] = {  # reports that have no case -> what it takes to judge them
    id: _DATA["needs"][row["needs"]] for id, row in _DATA["report"].items() if "needs" in row
}


# --- tables -------------------------------------------------------------------------------------------------------


def checkpoint(case: Case, role: str, side: str) -> tuple[dict[str, Any], Table]:
    """Return config and tensor table of one side of a case: the model it names, then what the case changes."""
    edits = case.parts.get(side, {}).get(role, {})
    model = _model(edits.get("model", case.parts[role]))
    config: dict[str, Any] = json.loads(json.dumps(model["config"]))
    sizes = {**_flat(config), **model.get("sizes", {})}
    layout = {**_DATA["layout"][edits.get("layout", model["layout"])], **model.get("tensors", {})}
    table = dict(_rows(layout, sizes))
    for pattern in (*model.get("without", ()), *edits.get("without", ())):
        table = {name: row for name, row in table.items() if not fnmatchcase(name, pattern)}
    table |= dict(_rows(edits.get("tensors", {}), sizes))
    for old, new in edits.get("dtype", {}).items():
        table = {name: (new if dtype == old else dtype, shape) for name, (dtype, shape) in table.items()}
    if "verifier" in model:
        _put(config, model["verifier"], TARGET)
    for key, value in edits.get("config", {}).items():
        _put(config, key, value)
    for key in edits.get("null", ()):
        _put(config, key, None)
    for key in edits.get("drop", ()):
        *path, last = key.split(".")
        inner = config
        for part in path:
            inner = inner[part]
        del inner[last]
    return config, table


def _model(name: str) -> dict[str, Any]:
    """Return a model of the data; one that is like another adds to its config."""
    model: dict[str, Any] = _DATA["model"][name]
    if "like" not in model:
        return model
    base = _model(model["like"])
    return {**base, **model, "config": {**base["config"], **model["config"]}}


def _put(config: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for part in path:
        config = config.setdefault(part, {})
    config[last] = value


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for value in config.values():
        inner |= _flat(value) if isinstance(value, Mapping) else {}
    return inner | {key: value for key, value in config.items() if type(value) is int}


def _rows(layout: Mapping[str, str], sizes: Mapping[str, int]) -> Iterator[tuple[str, tuple[str, tuple[int, ...]]]]:
    """Yield name, dtype and shape of a layout; {0..3} in a name stands for four, {N} for the number of layers."""
    for name, text in layout.items():
        first, *rest = text.split()
        dtype, axes = (first, rest) if first in BYTES else ("BF16", [first, *rest])
        shape = tuple(sum(_product(term, sizes) for term in axis.split("+")) for axis in axes)
        name = name.replace("{N}", str(sizes.get("num_hidden_layers")))
        span = re.search(r"\{(\d+)\.\.(\d+)\}", name)
        for i in range(int(span[1]), int(span[2]) + 1) if span else (0,):
            yield (name.replace(span[0], str(i)) if span else name), (dtype, shape)


def _product(term: str, sizes: Mapping[str, int]) -> int:
    out = 1
    for factor in term.split("*"):
        out *= int(factor) if factor.isdigit() else sizes[factor]
    return out


# --- files --------------------------------------------------------------------------------------------------------


def build(case: Case, folder: Path | str) -> Path:
    """Write the checkpoints of a case below a folder, broken and right; returns the folder of the case."""
    root = Path(folder) / case.id
    for side in case.sides:
        for role in ("drafter", "target"):
            if role in case.parts:
                _write(root / side / role, case, role, side)
        (root / side / "pair.toml").write_text(_pair(case, side), encoding="utf-8")
    return root


def _pair(case: Case, side: str) -> str:
    """Return the pair contract of one side, with what the case declares beyond its files."""
    edits = case.parts.get(side, {})
    model = _model(edits.get("drafter", {}).get("model", case.parts["drafter"]))
    alone = "target" not in case.parts
    facts = {
        **({} if alone else {"trained_on": TARGET}),
        **model.get("facts", {}),
        **case.parts.get("facts", {}),
        **edits.get("facts", {}),
    }
    lines = [
        "schema = 1", 'kind = "pair"', 'id = "pair"', f"title = {json.dumps(f'{case.id}, {side}: {case.fault}')}",
        f'drafter = {{ model = "./drafter", repo = "{DRAFTER}" }}',
        f'target = {{ model = "./{"drafter" if alone else "target"}", repo = "{DRAFTER if alone else TARGET}" }}',
    ]  # fmt: skip
    engine, launch = case.said("engine", side), case.said("launch", side)
    lines += [f"engines = [{json.dumps(engine)}]"] if engine else []
    lines += [f'family = "{case.family}"'] if (case.family and side == "broken") or alone else []
    lines += ["", "[facts]"]
    lines += [f'{k} = {{ value = {json.dumps(v)}, source = "the report" }}' for k, v in facts.items()]
    lines += ["", "[launch]", f"{json.dumps(engine.partition('@')[0])} = {json.dumps(launch)}"] if launch else []
    return "\n".join([*lines, ""])


def _write(folder: Path, case: Case, role: str, side: str) -> None:
    config, table = checkpoint(case, role, side)
    edits = case.parts.get(side, {}).get(role, {})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    shards, hollow = edits.get("shards", 1), edits.get("hollow", ())
    files = [f"model-{n + 1:05d}-of-{shards:05d}.safetensors" for n in range(shards)] if shards > 1 else []
    names = sorted(n for n in table if n not in hollow)
    parts = {file: names[n * len(names) // shards : (n + 1) * len(names) // shards] for n, file in enumerate(files)}
    for file, part in (parts or {"model.safetensors": names}).items():
        write_sparse(folder / file, {name: table[name] for name in part})
    if files:
        where = {name: file for file, part in parts.items() for name in part} | dict.fromkeys(hollow, files[-1])
        total = sum(_size(*table[name]) for name in names)
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    first = folder / (files or ["model.safetensors"])[0]
    if "cut" in edits:
        os.truncate(first, edits["cut"])
    if edits.get("pointer"):
        first.write_text(POINTER, encoding="utf-8")
    for name, layout in edits.get("more", {}).items():
        write_sparse(folder / name, dict(_rows(layout, {})))
    for name, size in edits.get("files", {}).items():
        (folder / name).write_bytes(b"\0" * size)
    if "tokenizer" in edits:
        (folder / "tokenizer.json").write_text(json.dumps(_tokenizer(**edits["tokenizer"])), encoding="utf-8")


def write_sparse(path: Path, table: Table) -> None:
    """Write a safetensors file with a true header and no data on disk: as long as its tensors, and all zeros."""
    header: dict[str, Any] = {}
    end = 0
    for name, (dtype, shape) in table.items():
        start, end = end, end + _size(dtype, shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + end)


def _size(dtype: str, shape: Iterable[int]) -> int:
    out = BYTES[dtype]
    for n in shape:
        out *= n
    return out


def _tokenizer(
    ids: int, words: str = "t", type: str = "BPE", added: Mapping[str, str] | None = None
) -> dict[str, Any]:  # fmt: skip
    """Return a tokenizer.json of so many ids, each with a word of its own, the third joined of two others."""
    texts = [f"{words}{i}" for i in range(ids)]
    texts[2:3] = ["".join(texts[:2])] if ids > 2 else []
    vocab: Any = [[text, -1.0] for text in texts] if type == "Unigram" else {t: i for i, t in enumerate(texts)}
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)  # without them none is read
    rows = [{"id": int(i), "content": text, **plain, "special": True} for i, text in (added or {}).items()]
    model = {"type": type, "vocab": vocab} | ({"merges": [" ".join(texts[:2])]} if type == "BPE" else {})
    return {"version": "1.0", "added_tokens": rows, "model": model}


# --- verdicts -----------------------------------------------------------------------------------------------------


def check(case: Case, folder: Path, side: str, library: Library | None = None) -> Report:
    """Check one side of a case that was built in a folder, with the engine and the launch that its pair names."""
    from draftproof import api  # noqa: PLC0415
    from draftproof.library import Library  # noqa: PLC0415

    return api.check_pair_id(str(folder / side / "pair.toml"), library or Library())


def judge(case: Case, folder: Path, library: Library | None = None) -> Result:
    """Check both sides of a case that was built in a folder, and hold them to what it expects."""
    found = {side: check(case, folder, side, library).findings for side in case.sides}
    broken, right = found.get("broken", ()), found["right"]
    missed = [f"{e.code} that shows {', '.join(e.shows)}" for e in case.expect if not any(map(e.matches, broken))]
    if case.expect and not any(f.level == "pass" for f in right):
        missed.append("a right twin of which anything holds")
    alarms = [f"right: {_told(f)}" for f in right if f.level in ("error", "warning", "unknown")]
    alarms += [f"right too: {_told(f)}" for f in right if any(e.matches(f) for e in case.expect)]
    alarms += [
        f"broken: {_told(f)}" for f in broken
        if f.level in ("error", "warning", "unknown")
        and not any(fnmatchcase(f.code, code) for code in case.also) and not any(e.matches(f) for e in case.expect)
    ]  # fmt: skip
    return Result(case, tuple(missed), tuple(dict.fromkeys(alarms)))


def _told(found: Finding) -> str:
    return f"{found.code} {found.level} {found.subject}: {found.message} ({found.observed})"


def run(cases: Iterable[Case] = CASES) -> list[Result]:
    """Build and judge every case in a temporary folder."""
    from draftproof.library import Library  # noqa: PLC0415

    out, library = [], Library()
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            out.append(judge(case, build(case, folder), library))
    return out


def table(results: Iterable[Result]) -> str:
    """Return reports, caught, missed and false alarms per class of fault, and what there is to say of each."""
    done = {result.case.id: result for result in results}
    by_report: dict[str, list[Result]] = {}
    for result in done.values():
        by_report.setdefault(result.case.report, []).append(result)
    lines = [f"{'class of fault':24}{'reports':>8}{'here':>6}{'caught':>8}{'missed':>8}{'false alarms':>14}"]
    total = [0] * 5
    for name in dict.fromkeys(row["class"] for row in _DATA["report"].values()):
        reports = [id for id, row in _DATA["report"].items() if row["class"] == name]
        here = [by_report[id] for id in reports if id in by_report]
        missed = sum(any(r.missed for r in rows) for rows in here)
        alarms = sum(any(r.alarms for r in rows) for rows in here)
        row = [len(reports), len(here), len(here) - missed, missed, alarms]
        total = [a + b for a, b in zip(total, row)]
        lines.append(f"{name:24}" + _columns(row))
    lines += [f"{'all':24}" + _columns(total), ""]
    for needs in dict.fromkeys(ELSEWHERE.values()):
        ids = [id for id, text in ELSEWHERE.items() if text == needs]
        lines.append(f"{len(ids):3} need {needs}: {' '.join(ids)}")
    for result in done.values():
        lines += [f"{result.case.id}: missed: {text}" for text in result.missed]
        lines += [f"{result.case.id}: false alarm: {text}" for text in result.alarms]
    return "\n".join(lines)


def _columns(row: Iterable[int]) -> str:
    return "".join(f"{n:>{width}}" for n, width in zip(row, (8, 6, 8, 8, 14)))


def main() -> int:
    """Print the table; return 1 if anything is missed or is a false alarm."""
    results = run()
    sys.stdout.write(table(results) + "\n")
    return int(any(result.missed or result.alarms for result in results))


if __name__ == "__main__":
    sys.exit(main())
