"""Write what the docs say of rules and contract files, from the code that reads them.

`python docs/generate.py` writes docs/rules/, docs/schema/ and the outputs in the README; with `--check` it writes
nothing, and exits with 1 if a file is stale, missing or an orphan.
"""

from __future__ import annotations

import io
import re
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path

from draftproof import cli
from draftproof.language import KINDS, json_schema
from draftproof.render import as_json, rule_text
from draftproof.rules import BANDS, RULES

DOCS = Path(__file__).resolve().parent
MADE = ("rules", "schema")  # folders that hold nothing else


def index_text() -> str:
    """Return docs/rules/README.md: every code by band, with a link to its page."""
    out = ["# Rules", "", "Codes are stable and never reused. `draftproof explain CODE` prints the same pages."]
    for prefix, band in BANDS.items():
        rows = [r for r in RULES.values() if r.code.startswith(prefix)]
        out += ["", f"## {prefix}: {band}", "", "| code | name | rung | level | summary |", "|---|---|---|---|---|"]
        out += [f"| [{r.code}]({r.code}.md) | {r.name} | {r.rung} | {r.severity} | {r.summary} |" for r in rows]
    return "\n".join(out) + "\n"


def readme_text(old: str) -> str:
    """Return the README with the output of each `<!-- draftproof ... -->` in the block below it."""

    def output(found: re.Match[str]) -> str:
        out = io.StringIO()
        with redirect_stdout(out):
            cli.main(shlex.split(found[1])[1:])
        return f"<!-- {found[1]} -->\n```text\n{out.getvalue()}```\n"

    return re.sub(r"<!-- (draftproof .*?) -->\n```text\n.*?```\n", output, old, flags=re.DOTALL)


def pages() -> dict[str, str]:
    """Return every generated file: its path below docs/, and its text."""
    made = {"rules/README.md": index_text()}
    made |= {f"rules/{rule.code}.md": rule_text(rule) for rule in RULES.values()}
    made |= {f"schema/{kind}.schema.json": as_json(json_schema(kind)) for kind in KINDS}
    return made


def problems(docs: Path = DOCS) -> list[str]:
    """Return what is not as generated: missing, stale or orphaned files."""
    made = pages()
    there = {p.relative_to(docs).as_posix(): p for folder in MADE for p in (docs / folder).rglob("*") if p.is_file()}
    readme = docs.parent / "README.md"
    if readme.is_file() and readme.read_text(encoding="utf-8") != readme_text(readme.read_text(encoding="utf-8")):
        made["../README.md"] = readme_text(readme.read_text(encoding="utf-8"))
        there["../README.md"] = readme
    out = [f"{name}: missing" for name in made.keys() - there.keys()]
    out += [f"{name}: orphan" for name in there.keys() - made.keys()]
    out += [f"{n}: stale" for n in made.keys() & there.keys() if there[n].read_text(encoding="utf-8") != made[n]]
    return sorted(out)


def write(docs: Path = DOCS) -> None:
    """Write every generated file, and remove the orphans."""
    for problem in problems(docs):
        path = docs / problem.rpartition(": ")[0]
        if path.name == "README.md" and path.parent.name == "..":
            path.write_text(readme_text(path.read_text(encoding="utf-8")), encoding="utf-8")
        elif problem.endswith("orphan"):
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(pages()[path.relative_to(docs).as_posix()], encoding="utf-8")


def main() -> int:
    """Write, or with --check only look; returns the exit code."""
    found = problems()
    if sys.argv[1:] == ["--check"]:
        print("\n".join(found) or "docs are current")
        return int(bool(found))
    if sys.argv[1:]:
        print(__doc__)
        return 2
    write()
    print(f"{len(pages())} files, {len(found)} of them new, changed or removed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
