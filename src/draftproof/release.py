"""Is a folder fit to be published? What a release holds beyond its tensors, and the block for its model card.

Functions from a source, its card and a view to findings; what is looked for is a contract of kind `release`. They
stand in the order in which `check_release` asks them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from draftproof import __version__
from draftproof.api import Case, examine, examine_models, open_side, recordings, report, side
from draftproof.checkpoint import listed
from draftproof.conform import View, dtype_of, rope_of, summary_text
from draftproof.contracts import Fact, Release
from draftproof.dims import Absent, Bindings, Known, Unknown, value_of
from draftproof.findings import Finding, Report, Section, finding, holds, nearest, unknown, visible
from draftproof.hub import REPO, SHARD, WEIGHTS, Source, open_model
from draftproof.library import Library
from draftproof.pair import declared_facts, related, rope_text, same_model
from draftproof.strict import strict_json

CARD = "README.md"
CARD_LIMIT = 4 << 20  # bytes
FRONT_LIMIT = 256 << 10  # characters of a card's front matter
JSON_LIMIT = 1 << 20  # bytes of a JSON file that is searched for paths and secrets
LONGEST_PATH = 4096  # characters
MAX_STRINGS = 20_000  # texts of a file that are searched
RULES_ID = "hub"  # the contract of kind release that is asked
UNKNOWN = "*unknown*"


@dataclass
class Card:
    """Hold a model card: what its front matter states, its prose without code, and what reading it found."""

    data: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    raw: str = ""  # with its code and comments
    findings: list[Finding] = field(default_factory=list)

    def texts(self, key: str) -> list[str]:
        """Return a text, or the texts of a list."""
        value = self.data.get(key)
        return [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, str) and v.strip()]

    @property
    def base_models(self) -> list[str]:
        """Return the base models that are well formed."""
        return [name for name in self.texts("base_model") if REPO.fullmatch(name)]


# --- the question -------------------------------------------------------------------------------------------------


def check_release(folder: Any, library: Library, target: Any | None = None, family: str = "") -> tuple[Report, str]:
    """Check a folder that is to be published: rungs 1 and 2, and the release; returns the report and the card block."""
    words = ["draftproof", "check", "--release", str(folder)]
    words += ["--target", str(target)] if target is not None else []
    rerun, subject = shlex.join(words + (["--family", family] if family else [])), visible(folder)
    opened = open_side(folder, "drafter", library)
    rules, broken = library.get("release", RULES_ID)
    if isinstance(opened, Finding) or opened.source.kind != "folder" or not isinstance(rules, Release):
        found = list(broken)
        if isinstance(opened, Finding):
            found.append(opened)
        elif opened.source.kind != "folder":
            help = "a release is a folder of files: give the one that is to be published"
            found.append(finding("SRC117", subject, expected="a folder", observed=f"a {opened.source.kind}", help=help))
        return Report(subject, (Section.of("release", found),), rerun=rerun), ""
    source = opened.source
    card = read_card(source)
    case, target = examine_models(source, target, library, family, _said_by(card, source, library))
    view = case.drafter or View(opened)
    about = [*card.findings, *base_model(card, case), *licence(card, rules), *metadata(card, rules)]
    about += [*leftovers(source, rules), *wrapped(view, rules), *serving(source, view), *stated_dtype(view)]
    about += [*leaks(source, view, card, rules), *placeholders(view, card, rules)]
    if case.couple is None and target is None:
        about += fit_with_card(source, card, library, family)
    made = report(case, subject if target is None else f"{subject} with {visible(target)}", rerun)
    made = replace(made, sections=(*made.sections, Section.of("release", about)), bytes_read=source.bytes_read)
    return made, card_block(case, view, card)


def _said_by(card: Card, source: Source, library: Library) -> dict[str, Fact]:
    """Return what the card declares, where nothing else does: the one base model is the target it was trained on."""
    if len(card.base_models) != 1 or "trained_on" in declared_facts(library, source.repo):
        return {}
    return {"trained_on": Fact(card.base_models[0], "its model card: base_model")}


# --- the card -----------------------------------------------------------------------------------------------------

_FRONT = re.compile(r"\ufeff?\s*---[ \t]*\r?\n(.*?)(?<=\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_FENCED = r"^[ \t]*(```+|~~~+).*?(?:^[ \t]*\1[^\n]*$|\Z)"
_CODE = re.compile(rf"{_FENCED}|<!--.*?(?:-->|\Z)|(`{{1,3}})[^`\n]+\2", re.DOTALL | re.MULTILINE)  # and comments


def read_card(source: Source) -> Card:
    """Read README.md and its YAML front matter; what is wrong with it is a finding."""
    card, where = Card(), source.label
    if CARD not in source.files:
        near = [n for n in source.files if n.lower() in ("readme", "readme.md", "readme.txt", "readme.rst")]
        seen = f"no such file; there is {listed(near)}" if near else "no such file"
        card.findings.append(finding("REL501", CARD, expected="a model card", observed=seen, where=where))
        return card
    size = source.files[CARD]
    raw = source.take(CARD, CARD_LIMIT) if size <= CARD_LIMIT else None
    if not isinstance(raw, bytes):
        seen = raw.observed if raw else f"{size} bytes"
        card.findings.append(
            unknown("SRC113", CARD, expected=f"a file of at most {CARD_LIMIT} bytes", observed=seen, where=where)
        )
        return card
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        card.findings.append(_front_broken(f"not UTF-8: byte {error.start}", where))
        return card
    card.findings.append(holds("REL501", CARD, f"{len(raw)} bytes"))
    match = _FRONT.match(text)
    card.raw = text
    card.text = _CODE.sub(" ", text[match.end() :] if match else text)
    if match is None:
        begins = re.match(r"\ufeff?\s*---[ \t]*\r?\n", text)
        seen = "--- is opened and not closed" if begins else "text without front matter"
        code = "REL503" if begins else "REL502"
        card.findings.append(finding(code, CARD, expected="YAML between two lines ---", observed=seen, where=where))
        return card
    data, problem = read_front(match[1])
    if problem:
        card.findings.append(_front_broken(problem, where))
    else:
        card.data = data
        card.findings.append(holds("REL503", CARD, f"{len(data)} keys"))
    return card


def _front_broken(problem: str, where: str) -> Finding:
    return finding("REL503", CARD, expected="a YAML mapping", observed=problem, where=where)


def read_front(text: str) -> tuple[dict[str, Any], str]:
    """Read a front matter: plain YAML without aliases and duplicate keys; returns it, or what is wrong with it."""
    import yaml  # type: ignore[import-untyped]  # noqa: PLC0415 (only a release has a card)

    if len(text) > FRONT_LIMIT:
        return {}, f"{len(text)} characters: too large to be read"
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        problem = _odd_node(root, set(), yaml.MappingNode, yaml.SequenceNode)
        data = None if problem else yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or str(error)
        return {}, f"line {mark.line + 2}: {visible(said)}" if mark else visible(said)
    except RecursionError:
        return {}, "nested too deep"
    except (ValueError, OverflowError) as error:  # a date of month 13
        return {}, visible(error)
    if problem:
        return {}, problem
    if not isinstance(data, dict):
        return {}, "nothing" if data is None else f"a {type(data).__name__}, not a mapping"
    return {str(key): value for key, value in data.items()}, ""


def _odd_node(node: Any, seen: set[int], mapping: Any, sequence: Any) -> str:
    """Return what a YAML node holds that a card must not: a key twice, or a part that stands in two places."""
    if id(node) in seen:
        return f"line {node.start_mark.line + 2}: an alias stands for it elsewhere: write it out"
    if isinstance(node, (mapping, sequence)):
        seen.add(id(node))
    if isinstance(node, mapping):
        keys: set[str] = set()
        for key, value in node.value:
            if key.value in keys if isinstance(key.value, str) else False:
                return f"line {key.start_mark.line + 2}: {visible(key.value)} stands twice"
            keys.add(str(key.value))
            if problem := _odd_node(value, seen, mapping, sequence):
                return problem
    elif isinstance(node, sequence):
        for item in node.value:
            if problem := _odd_node(item, seen, mapping, sequence):
                return problem
    return ""


def base_model(card: Card, case: Case) -> Iterator[Finding]:
    """Check the base model that the card names, and that it is the target that was declared."""
    if not card.data:
        return
    subject, value = f"{CARD}: base_model", card.data.get("base_model")
    items = value if isinstance(value, list) else [value]
    if value is None or not items:
        yield finding("REL504", subject, expected="ORG/NAME of the target", observed="nothing")
        return
    bad = [str(v) for v in items if not isinstance(v, str) or not re.fullmatch(r"[\w.\-]+/[\w.\-]+", v)]
    if bad:
        help = "a path says nothing to others: write the ORG/NAME" if _is_path(bad[0]) else ""
        yield finding("REL504", subject, "base_model is no ORG/NAME", expected="ORG/NAME of the target",
                      observed=listed(bad), help=help)  # fmt: skip
        return
    yield holds("REL504", subject, listed(map(str, items)))
    yield from _agrees(subject, [str(v) for v in items], case)


def _agrees(subject: str, names: Sequence[str], case: Case) -> Iterator[Finding]:
    """Compare the base models of a card with each target that something else states."""
    stated: dict[str, str] = {}
    if case.drafter is not None and isinstance(seen := case.drafter.stated("verifier"), Known):
        stated[str(seen.value)] = seen.witness
    source = case.drafter.checkpoint.source if case.drafter else Source("")
    if fact := declared_facts(case.library, source.repo).get("trained_on"):
        stated.setdefault(str(fact.value), fact.source)
    if case.target is not None and case.target.checkpoint.source.repo:
        stated.setdefault(case.target.checkpoint.source.repo, "the target that was given")
    for name, witness in stated.items():
        if not REPO.fullmatch(name):
            continue
        relation = next((r for one in names if (r := _relation(case.library, one, name))), "")
        if relation == "same":
            yield holds("REL505", subject, f"{name} ({witness})")
        elif relation:
            yield finding("REL505", subject, level="info", expected=f"{visible(name)} ({witness})",
                          observed=f"{listed(names)}: {relation}")  # fmt: skip
        else:
            yield finding("REL505", subject, expected=f"{visible(name)} ({witness})", observed=listed(names))


def _relation(library: Library, card: str, stated: str) -> str:
    """Return "same", how one is a quantised or fine-tuned other, or "" where nothing relates them."""
    if same_model(library, card, stated):
        return "same"
    for one, other in ((card, stated), (stated, card)):
        said = related(library, one, other)
        if said.startswith("quantised"):
            return f"{other} is a {said.replace('of it', f'copy of {one}')}"
    return ""


def licence(card: Card, rules: Release) -> Iterator[Finding]:
    """Check the licence that the card states."""
    if not card.data:
        return
    subject, value = f"{CARD}: license", card.data.get("license")
    items = value if isinstance(value, list) else [value]
    if value is None or not items or items == [""]:
        yield finding("REL506", subject, expected="an identifier such as apache-2.0", observed="nothing")
        return
    for item in items:
        if not isinstance(item, str):
            shown = f"{visible(item)} ({type(item).__name__})"
            help = "YAML reads an unquoted no, yes or date as another type: quote it"
            yield finding("REL506", subject, "license is no text", expected="an identifier such as apache-2.0",
                          observed=shown, help=help)  # fmt: skip
        elif item == "unknown":
            yield unknown("REL506", subject, "the licence is declared to be unknown", expected="a licence",
                          observed=item)  # fmt: skip
        elif item == "other":
            lacking = [k for k in ("license_name", "license_link") if not card.texts(k)]
            if lacking:
                yield finding("REL506", subject, "license is other, and not named", level="warning",
                              expected="license_name and license_link", observed=f"no {' and no '.join(lacking)}",
                              help="name it, and link to its text")  # fmt: skip
            else:
                yield holds("REL506", subject, f"other: {card.texts('license_name')[0]}")
        elif item.lower() in rules.licences:
            yield holds("REL506", subject, item)
        else:
            seen = visible(item) + nearest(item.lower(), rules.licences)
            yield finding("REL506", subject, "license is no identifier of the Hub", level="warning",
                          expected="an identifier of the Hub, or other with license_name and license_link",
                          observed=seen, help="write the identifier that the Hub lists, else other")  # fmt: skip


def metadata(card: Card, rules: Release) -> Iterator[Finding]:
    """Check the types of library_name, tags and their like, and that they do not speak of another format."""
    if not card.data:
        return
    good = True
    for key, many in (("library_name", False), ("pipeline_tag", False), ("base_model_relation", False), ("tags", True)):
        value = card.data.get(key)
        if value is None:
            continue
        texts = value if isinstance(value, list) and many else [value]
        if any(not isinstance(v, str) or not v.strip() for v in texts):
            good = False
            yield finding("REL507", f"{CARD}: {key}", expected="a list of texts" if many else "a text",
                          observed=visible(value, 80))  # fmt: skip
            continue
        odd = [v for v in texts if v.lower() in rules.other_formats] if key in ("library_name", "tags") else []
        if key == "base_model_relation" and (value not in rules.relations or value in rules.wrong_relations):
            odd = texts
        if odd:
            good = False
            expected = "what a whole checkpoint of its own is"
            if key == "base_model_relation":
                expected = f"one of {', '.join(r for r in rules.relations if r not in rules.wrong_relations)}"
            yield finding("REL507", f"{CARD}: {key}", "the card speaks of another format", expected=expected,
                          observed=listed(odd), help="remove it, or write what the folder holds")  # fmt: skip
    if good:
        yield holds("REL507", CARD, "library_name, pipeline_tag and tags")


# --- the files ----------------------------------------------------------------------------------------------------


def leftovers(source: Source, rules: Release) -> Iterator[Finding]:
    """Name what a training run left behind, a finding for each kind of it."""
    held: dict[tuple[str, Any], list[str]] = {}
    for name in (*source.files, *(f"{n}/" for n in source.folders)):
        row = next((r for r in rules.leftovers if fnmatchcase(name, r.name)), None)
        if row is not None:
            held.setdefault((row.what, row.severity), []).append(name)
    for (what, level), names in held.items():
        yield finding("REL510", listed(names, 3), f"{what} of the training run", level=level, where=source.label,
                      expected="what serving needs, alone", observed=listed(names))  # fmt: skip
    if not held:
        yield holds("REL510", source.name, "no leftovers of a training run")


def wrapped(view: View, rules: Release) -> Iterator[Finding]:
    """Name tensors whose names carry a trainer's wrapper inside, where rung 1 did not say so already."""
    if any(f.code == "TEN406" for f in view.findings) or not view.table.read:
        return
    odd = [n for n in view.table.tensors if set(n.split(".")) & set(rules.wrappers)]
    if odd:
        yield finding("REL511", listed(odd, 2), expected="names of a serving checkpoint", observed=listed(odd, 4),
                      where=view.checkpoint.source.label)  # fmt: skip
    else:
        yield holds("REL511", view.checkpoint.source.name, "no wrapper in a tensor's name")


def serving(source: Source, view: View) -> Iterator[Finding]:
    """Name files that serving needs and that are not there."""
    files, where = source.files, source.label
    weights = [n for n in files if n.endswith(WEIGHTS)]
    shards = [n for n in weights if re.fullmatch(SHARD, n)]
    lacking: list[tuple[str, str]] = []
    if not weights:
        lacking.append(("weights", "*.safetensors"))
    if shards and not any(n.endswith(".index.json") for n in files):
        lacking.append((f"index of {len(shards)} shards", "*.safetensors.index.json"))
    contract = view.contract
    for row in contract.serving if contract else ():
        names = [n.strip() for n in row.split("|")]
        if not any(n in files for n in names):
            lacking.append((f"file that {contract.id if contract else ''} needs of its own", " or ".join(names)))
    for what, name in lacking:
        yield finding("REL512", name, f"{what}: not there", expected=name, observed="no such file", where=where)
    if not lacking:
        yield holds("REL512", source.name, "every file that serving needs")
    for name in [f"{module}.py" for module in _own_modules(view) if f"{module}.py" not in files]:
        yield finding("REL512", name, "code that auto_map in config.json names is not there", level="info", where=where,
                      expected=name, observed="no such file: engines have code of their own")  # fmt: skip
    torch = [n for n in weights if not n.endswith(".safetensors")]
    if torch and len(torch) == len(weights):
        yield finding("REL517", listed(torch, 3), expected="safetensors files", observed=listed(torch), where=where)


def _own_modules(view: View) -> list[str]:
    """Return the modules that config.json names as code in the folder itself."""
    data = view.checkpoint.config.data.get("auto_map")
    rows = data.values() if isinstance(data, dict) else ()
    values = [v for row in rows for v in (row if isinstance(row, list) else [row])]
    names = [v.partition(".")[0] for v in values if isinstance(v, str) and "--" not in v and "." in v]
    return list(dict.fromkeys(names))


def stated_dtype(view: View) -> Iterator[Finding]:
    """Say where the config leaves the dtype of its weights to the reader."""
    if view.contract is not None and view.keys("dtype") and isinstance(seen := view.stated("dtype"), Absent):
        yield finding("REL513", "config.json: dtype", expected=f"{view.keys('dtype')[0]}", observed="nothing",
                      where=seen.where)  # fmt: skip


# --- what must not get out ----------------------------------------------------------------------------------------

_ABSOLUTE = re.compile(r"(/[^/\0\n]+){2,}/?|file://.+|~[/\\].+|[A-Za-z]:[\\/].+|\\\\[\w.-]+\\.+")
_RELATIVE = re.compile(r"\.{1,2}[/\\].*|[^/\s]+(/[^/\s]+){2,}/?|(.*/)?(checkpoint|epoch|step|iter)[-_]?\d+/?")
_OF_NAMES = ("_name_or_path", "name_or_path", "base_model", "base_model_name_or_path")  # keys that name a model
_TEXTS = (".py", ".sh", ".md", ".txt", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".ipynb", ".jinja", ".gitattributes")
_NO_SECRET = ("", "none", "null", "true", "false")
_SKIPPED = ("tokenizer.json", "vocab.json", "tekken.json")  # tables of tokens


def leaks(source: Source, view: View, card: Card, rules: Release) -> Iterator[Finding]:
    """Search the JSON files, and the card, for paths of the machine it was trained on, and for secrets."""
    verifier = view.keys("verifier")
    paths = secrets = 0
    stated = {key: value for key, value in card.data.items() if key != "base_model"}
    for file, data in (*_json_files(source, view, rules), (CARD, stated)):
        for key, text in _strings(data):
            subject = f"{file}: {key}"
            name = key.rpartition(".")[2].partition("[")[0]
            keyed = name in rules.secret_keys and text.strip().lower() not in _NO_SECRET
            if what := _secret(text, rules) or ("a secret, by its key" if keyed else ""):
                secrets += 1
                yield _leaked(subject, what, text, source)
            elif _is_path(text) or (name in _OF_NAMES and _is_relative(text)):
                paths += 1
                expected = "ORG/NAME" if name in _OF_NAMES or key in verifier else "no path of this machine"
                code = "REL515" if file == "config.json" and key in verifier else "REL514"
                yield finding(code, subject, expected=expected, observed=visible(text, 120), where=source.label)
    for file, text in ((CARD, card.raw), *_text_files(source, rules)):
        for number, line in enumerate(text.splitlines(), 1):
            if what := _secret(line, rules):
                secrets += 1
                yield _leaked(f"{visible(file)}, line {number}", what, "", source)
    if not paths:
        yield holds("REL514", source.name, "no path of a machine in its JSON files")
    if not secrets:
        yield holds("REL516", source.name, "no secret in its JSON files and its card")


def _leaked(subject: str, what: str, text: str, source: Source) -> Finding:
    shown = f"{what}, in a text of {len(text)} characters" if text else what
    return finding("REL516", subject, expected="no secret", observed=shown, where=source.label)


def _secret(text: str, rules: Release) -> str:
    """Return what kind of secret stands in a text; prose around it does not hide it."""
    for row in rules.secrets:
        start = text.find(row.prefix)
        while start >= 0:
            rest = re.compile(f"[A-Za-z0-9{re.escape(row.also)}]*").match(text, start + len(row.prefix))
            alone = start == 0 or not (text[start - 1].isalnum() or text[start - 1] == "_")
            if alone and rest is not None and len(rest[0]) >= row.least:
                return row.what
            start = text.find(row.prefix, start + 1)
    return ""


def _is_path(text: str) -> bool:
    return len(text) < LONGEST_PATH and bool(_ABSOLUTE.fullmatch(text))


def _is_relative(text: str) -> bool:
    return len(text) < LONGEST_PATH and bool(_RELATIVE.fullmatch(text))


def _json_files(source: Source, view: View, rules: Release) -> Iterator[tuple[str, Any]]:
    """Yield the JSON files that are small, are no table of tokens, and are not left over from the training."""
    for name, size in source.files.items():
        odd = name in _SKIPPED or name.endswith(".index.json")
        odd = odd or _left(name, rules)
        if name == "config.json":
            yield name, view.checkpoint.config.data
        elif name.endswith(".json") and not odd and 0 < size <= JSON_LIMIT:
            raw = source.take(name, JSON_LIMIT)
            data, _ = strict_json(raw) if isinstance(raw, bytes) else (None, [])
            yield name, data


def _text_files(source: Source, rules: Release) -> Iterator[tuple[str, str]]:
    """Yield the small scripts and settings of a folder as text; what is left over from the training is not read."""
    for name, size in source.files.items():
        if name.endswith(_TEXTS) and name != CARD and 0 < size <= JSON_LIMIT and not _left(name, rules):
            raw = source.take(name, JSON_LIMIT)
            yield name, raw.decode("utf-8", "replace") if isinstance(raw, bytes) else ""


def _left(name: str, rules: Release) -> bool:
    return any(fnmatchcase(name, row.name) for row in rules.leftovers)


def _strings(data: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text of plain data with its path, up to a bound."""
    stack: list[tuple[str, Any]] = [(path, data)]
    count = 0
    while stack and count < MAX_STRINGS:
        at, value = stack.pop()
        if isinstance(value, str):
            count += 1
            yield at, value
        elif isinstance(value, Mapping):
            stack += [(f"{at}.{k}" if at else str(k), v) for k, v in reversed([*value.items()])]
        elif isinstance(value, list):
            stack += [(f"{at}[{n}]", v) for n, v in reversed([*enumerate(value)])]


def placeholders(view: View, card: Card, rules: Release) -> Iterator[Finding]:
    """Name text of a template that was never filled in: in the card outside code, and in what it states."""
    found: list[str] = []
    for key, value in _strings(card.data):
        found += [f"{key}: {visible(value, 60)}" for p in rules.placeholders if _stands(p, value)][:1]
    for key, value in _strings(view.checkpoint.config.data):
        found += [f"config.json: {key}: {visible(value, 60)}" for p in rules.placeholders if _stands(p, value)][:1]
    for line in card.text.splitlines():
        found += [visible(line.strip(), 60) for p in rules.placeholders if _stands(p, line)][:1]
    if found:
        subject = CARD if any(not f.startswith("config.json") for f in found) else "config.json"
        yield finding("REL509", subject, expected="facts, or nothing", observed=listed(found, 4),
                      where=view.checkpoint.source.label)  # fmt: skip
    elif card.data or card.text:
        yield holds("REL509", CARD, "no placeholder")


def _stands(placeholder: str, text: str) -> bool:
    """Tell whether a placeholder stands in a text, as a word where it is one."""
    before = r"(?<!\w)" if placeholder[0].isalnum() else ""
    after = r"(?!\w)" if placeholder[-1].isalnum() else ""
    return placeholder in text and re.search(before + re.escape(placeholder) + after, text) is not None


def fit_with_card(source: Source, card: Card, library: Library, family: str) -> Iterator[Finding]:
    """Say where a drafter does not fit the base model that only its card names, if that is at hand."""
    for name in card.base_models:
        other = open_model(name, recordings(library))
        subject = f"{CARD}: base_model"
        ask = f"draftproof check --release {shlex.quote(source.name)} --target {name}"
        if isinstance(other, Finding):
            yield finding("REL508", subject, "the fit with it was not judged", level="info", help=ask,
                          expected=f"{name} at hand", observed=other.observed)  # fmt: skip
            continue
        case = examine(source, other, library, family=family, facts=_said_by(card, source, library))
        wrong = [f for f in case.fits or () if f.level == "error"]
        if wrong:
            yield finding("REL508", subject, expected=f"a drafter that fits {name}",
                          observed="; ".join(f"{f.code} {f.subject}: {f.message}" for f in wrong[:4]),
                          help=f"see {ask}")  # fmt: skip
        elif case.fits is not None:
            seen = f"no error, {sum(f.level == 'unknown' for f in case.fits)} unknown: {ask}"
            yield finding("REL508", subject, "nothing speaks against the fit with it", level="info",
                          expected=f"a drafter that fits {name}", observed=seen)  # fmt: skip


# --- the block for the card ---------------------------------------------------------------------------------------


def card_block(case: Case, view: View, card: Card) -> str:
    """Return a Markdown block for the model card: family, geometry, conventions, engines; unknown where not known."""
    rows = [*_identity(case, view, card), *_geometry(case, view), *_conventions(case, view)]
    lines = ["## Drafter", "", "| | |", "|---|---|", *(f"| {name} | {_cell(text)} |" for name, text in rows), ""]
    lines += ["### Engines", "", "| engine | version read | what it does with this drafter |", "|---|---|---|"]
    lines += [f"| {_cell(e)} | {_cell(v)} | {_cell(does)} |" for e, v, does in _engines(case, view)]
    lines += ["", f"Accept length: {UNKNOWN}; draftproof read the files, and ran no engine.", ""]
    lines += [f"<!-- printed by draftproof {__version__}: draftproof check --release DIR --card -->"]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Escape a text for a cell of a Markdown table."""
    return visible(text, 1000).replace("|", "\\|").replace("<", "&lt;")


def _identity(case: Case, view: View, card: Card) -> Iterator[tuple[str, str]]:
    contract, source = view.contract, view.checkpoint.source
    yield "family", f"`{contract.id}`: {contract.title}" if contract else UNKNOWN
    target = _target(case, card)
    yield "target", target or UNKNOWN
    made = side(view)
    yield "tensor names", f"`{view.dialect.name}`" if view.dialect else UNKNOWN
    if view.table.read and view.table.complete and view.table.tensors:
        files = len(set(view.table.files.values()))
        size = sum(source.files.get(n, 0) for n in set(view.table.files.values()))
        text = f"{len(view.table.tensors)}, {made.parameters or 0:,} parameters"
        yield "tensors", f"{text}, {size:,} bytes in {files} file{'s' if files != 1 else ''}"
    else:
        yield "tensors", f"{UNKNOWN}: {view.table.basis or 'not read'}"


def _target(case: Case, card: Card) -> str:
    """Return the target and who names it."""
    if case.target is not None and case.target.checkpoint.source.repo:
        return f"{case.target.checkpoint.source.repo}"
    verifier = case.drafter.stated("verifier") if case.drafter else Absent("")
    if isinstance(verifier, Known):
        return f"{verifier.value} ({verifier.witness})"
    return f"{listed(card.base_models)} (its model card)" if card.base_models else ""


def _geometry(case: Case, view: View) -> Iterator[tuple[str, str]]:
    if view.contract is None:
        yield "geometry", UNKNOWN
        return
    dims = case.couple.dims if case.couple else view.dims
    yield "geometry", summary_text(view.contract, dims, UNKNOWN) or UNKNOWN
    for name, part in (("context", "context"), ("layers", "layers")):
        seen = view.size(part)
        unit = " tokens" if part == "context" else ""
        if view.contract.sizes.get(part):
            yield name, f"{seen.value}{unit}" if isinstance(seen, Known) else UNKNOWN
    trained = _facts(case, view).get("trained_context")
    yield "trained at", f"{trained.value} tokens ({trained.source})" if trained else UNKNOWN


def _facts(case: Case, view: View) -> Mapping[str, Fact]:
    return case.couple.facts if case.couple else declared_facts(case.library, view.checkpoint.source.repo)


def _conventions(case: Case, view: View) -> Iterator[tuple[str, str]]:
    contract = view.contract
    dtype, _ = dtype_of(view)
    yield "dtype", f"{dtype.value} ({dtype.witness})" if isinstance(dtype, Known) else UNKNOWN
    if contract is None:
        return
    scheme = view.stated("quantisation")
    method = scheme.value.get("quant_method", "unnamed") if isinstance(scheme, Known) else ""
    yield "quantisation", str(method) if method else UNKNOWN if isinstance(scheme, Unknown) else "none declared"
    rope, _ = rope_of(view)
    if contract.keys.get("rope", {}).get("theta"):
        yield "rope", rope_text(rope) if "theta" in rope else f"{UNKNOWN}: rope_theta is not stated"
    if contract.conventions:
        stated = [s for key in contract.aux_keys if isinstance(s := view.lookup(key), Known)]
        yield "captured layers", f"{stated[0].value} ({stated[0].key})" if stated else f"{UNKNOWN}: not named"
        fact = _facts(case, view).get("aux_convention")
        names = list(contract.conventions)
        said = f"{fact.value} ({fact.source})" if fact else f"{names[0]}, the only one of its family"
        yield "layer ids are", said if fact or len(names) == 1 else f"{UNKNOWN}: one of {', '.join(names)}"
    for f in case.fits or ():
        if f.code == "PAIR423":
            yield f.subject, f.message if f.level == "pass" else f"{UNKNOWN}: {f.expected}"


def _engines(case: Case, view: View) -> Iterator[tuple[str, str, str]]:
    """Yield what is known of each engine: the rows that apply, those that cannot be judged, else nothing."""
    dims = case.couple.dims if case.couple else view.dims if view.contract else Bindings({}, {})
    for _, engine, _ in case.library.all("engine"):
        if engine is None:
            continue
        applies, undecided = [], []
        for row in engine.rows:
            value = value_of(row.when, dims)
            if value is True:
                applies.append(f"{row.does}: {row.see} ({row.basis}: {row.source})")
            elif isinstance(value, Unknown):
                undecided.append(row.key)
        text = "; ".join(applies)
        if undecided and not case.couple:
            text += f"{'; ' if text else ''}{UNKNOWN} without a target: {listed(dict.fromkeys(undecided))}"
        yield engine.title, engine.version, text or f"{UNKNOWN}: of what was read of it, nothing speaks against it"
