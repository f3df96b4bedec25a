"""The command line. Wiring only: parse the words, ask one question, render the answer, return the exit code."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from draftproof import __version__

EXIT_CODES = "exit codes: 0 holds, 1 does not, 2 wrong usage or broken contract, 4 could not be judged"

_EXAMPLES = """\
a model is a local folder, ORG/NAME or ORG/NAME@COMMIT

  draftproof check --drafter ./my-eagle3 --target moonshotai/Kimi-K2.5
  draftproof check --drafter ./my-eagle3                 the drafter alone, or with the target it declares
  draftproof check --launch "vllm serve …"               the models that a line names, launched so
  draftproof check kimi-k2-eagle3-on-k25                 a pair contract, with what it accepts
  draftproof check --config draft_config.json            a config, before anything is trained
  draftproof check --release ./my-eagle3                 a folder that is to be published
  draftproof adapt AQ-MedAI/Kimi-K2-Instruct-eagle3 --to moonshotai/Kimi-K2.5
  draftproof adapt ./my-eagle3 --to ./target --write ./adapted
  draftproof adapt ./my-eagle3 --to ./target --for TRAINER --write ./start
  draftproof adapt ./my-eagle3 --engine vllm --engine sglang --write ./portable
  draftproof diff ./drafter-v1 ./drafter-v2              what changed, and which verdicts change with it
  draftproof init --drafter ./my-eagle3 --target ./target --output contracts/pairs/mine.toml
  draftproof show eagle3                                 a contract, resolved
  draftproof list                                        what is known
  draftproof record ./my-eagle3 --as ORG/NAME@COMMIT     keep what a checkpoint says, to check it without its bytes
  draftproof record ORG/NAME                             the same, from the Hub
  draftproof record --all                                refresh the recordings that pairs use
  draftproof record my-pair --drafter-revision COMMIT    move a pair to a new version, and record it
  draftproof cache --prune --older 30                    what was kept of the Hub, here: remove what is a month old
  draftproof truth                                       what is predicted, beside what engines did
  draftproof fixture --break-every 5 --out ./known       a pair whose accepted tokens are known exactly
  draftproof launch --drafter A --target B --engine vllm    the command that is right, and why
  draftproof explain TEN403                              what a code means, and what to do
"""


_MODEL = {"metavar": "MODEL"}
_FAMILY = ("--family", {"metavar": "ID", "help": "the family, where it cannot be told"})
_KINDS = (
    *(
        "families",
        "targets",
        "schemes",
        "pairs",
        "acceptances",
        "engines/profiles",
        "engines/classes",
        "launches",
        "formats",
        "engines",
        "trainers",
        "releases",
        "recordings",
    ),
    "rules",
)
_Argument = tuple[str, dict[str, Any]]
_ARGUMENTS: dict[str, tuple[str, tuple[_Argument, ...]]] = {
    "check": (
        "is a drafter well formed, and does it fit its target",
        (
            ("pair", {"nargs": "?", "help": "id of a pair contract, or a pair's TOML file"}),
            ("--drafter", _MODEL | {"help": "a local folder, ORG/NAME or ORG/NAME@COMMIT"}),
            ("--target", _MODEL | {"help": "default: the target that the drafter declares"}),
            ("--config", {"metavar": "FILE", "help": "a drafter's config alone, in place of --drafter"}),
            ("--release", {"metavar": "DIR", "help": "a folder that is to be published: its card and files, too"}),
            ("--card", {"action": "store_true", "help": "with --release: print a block for the model card instead"}),
            _FAMILY,
            (
                "--engine",
                {
                    "action": "append",
                    "default": [],
                    "metavar": "NAME[@VERSION]",
                    "help": "say what this engine will do with it, too; all: every one that is known",
                },
            ),
            (
                "--launch",
                {"metavar": "LINE", "help": "how it is launched, as typed: read, never run; alone it names the models"},
            ),
            ("--verbose", {"action": "store_true", "help": "show the checks that hold, too"}),
        ),
    ),
    "adapt": (
        "can a drafter initialise one for another target: what must change, tensor by tensor",
        (
            ("drafter", {"metavar": "DRAFTER", "help": "a local folder, ORG/NAME or ORG/NAME@COMMIT"}),
            ("--to", {"metavar": "TARGET", "help": "the target it shall draft for; with --engine that it declares"}),
            ("--like", {"metavar": "OTHER_DRAFTER", "help": "plan for the geometry of this drafter, or of its config"}),
            (
                "--for",
                {
                    "dest": "trainer",
                    "metavar": "TRAINER",
                    "help": "say what this trainer will do with it, and write its form",
                },
            ),
            (
                "--engine",
                {
                    "action": "append",
                    "default": [],
                    "metavar": "NAME[@VERSION]",
                    "help": "what must change so that all of these run it as meant; all: every one that is known",
                },
            ),
            ("--write", {"metavar": "DIR", "help": "write the new checkpoint; DRAFTER must be a local folder"}),
            (
                "--force",
                {
                    "action": "store_true",
                    "help": "replace DIR, if it holds a checkpoint and nothing that adapt did not write",
                },
            ),
            ("--anyway", {"action": "store_true", "help": "write even where the plan says no"}),
            _FAMILY,
        ),
    ),
    "diff": (
        "what changed from one version of a drafter to another, and which verdicts change with it",
        (
            ("old", _MODEL | {"metavar": "OLD", "help": "a local folder, ORG/NAME[@COMMIT], or a recording's file"}),
            ("new", _MODEL | {"metavar": "NEW", "help": "the version to review"}),
            (
                "--target",
                _MODEL
                | {
                    "action": "append",
                    "default": [],
                    "help": "also judge both with this target; those declared, and those of pairs, are always judged",
                },
            ),
            (
                "--as",
                {"dest": "repo", "metavar": "ORG/NAME", "help": "what a folder holds: what is known of it counts"},
            ),
            _FAMILY,
        ),
    ),
    "init": (
        "write the start of a contract: of a pair, with what was found, or of a family that is not known",
        (
            ("--drafter", _MODEL | {"required": True, "help": "a local folder, ORG/NAME or ORG/NAME@COMMIT"}),
            ("--target", _MODEL | {"help": "default: the target that the drafter declares"}),
            _FAMILY,
        ),
    ),
    "show": (
        "print a contract, resolved, or a recording",
        (("id", {"metavar": "ID", "help": "of a family, target, pair, engine or trainer, or ORG/NAME of a model"}),),
    ),
    "list": (
        "print the ids of what is known",
        (("kind", {"nargs": "?", "help": "of one kind only", "choices": _KINDS}),),
    ),
    "record": (
        "keep config, tensor table and hashes of checkpoints as recordings; move a pair to another commit",
        (
            (
                "path",
                {
                    "metavar": "MODEL",
                    "nargs": "*",
                    "help": "ORG/NAME[@REV] on the Hub, or a folder with config.json and safetensors files; or a pair",
                },
            ),
            (
                "--as",
                {"dest": "name", "metavar": "ORG/NAME@COMMIT", "help": "what a folder is, if no Hub cache snapshot"},
            ),
            ("--all", {"action": "store_true", "help": "refresh all recordings that the pairs of the contracts use"}),
            ("--force", {"action": "store_true", "help": "replace a recording that stands and differs"}),
            ("--drafter-revision", {"metavar": "COMMIT", "help": "of a pair: pin its drafter, and record it there"}),
            ("--target-revision", {"metavar": "COMMIT", "help": "of a pair: pin its target, and record it there"}),
            (
                "--from",
                {
                    "dest": "folder",
                    "metavar": "DIR",
                    "help": "the folder of that commit, if no Hub is to be read",
                },
            ),
        ),
    ),
    "cache": (
        "show what was kept of the Hub on this machine, or remove it",
        (
            ("--prune", {"action": "store_true", "help": "remove what is kept"}),
            (
                "--older",
                {
                    "metavar": "DAYS",
                    "type": float,
                    "default": 0.0,
                    "help": "with --prune: only what is older than DAYS",
                },
            ),
        ),
    ),
    "truth": (
        "whether what is predicted is what engines did; and what a build of one does with the same cases now",
        (
            ("--engine", {"metavar": "NAME", "help": "of this engine only; one is needed with --python"}),
            (
                "--python",
                {"metavar": "PYTHON", "help": "the interpreter that holds the build; benchmarks/truth makes one"},
            ),
            ("--runner", {"metavar": "NAME", "help": "with --python: one of the engine's runners; all without it"}),
            ("--only", {"metavar": "REGEX", "default": "", "help": "with --python: cases whose ids match"}),
            ("--record", {"metavar": "DIR", "help": "with --python: write the new tables into DIR"}),
        ),
    ),
    "fixture": (
        "write a tiny target and drafter, with what an engine must do with them: for an engine's own tests",
        (
            (
                "--family",
                {
                    "metavar": "F",
                    "default": "known",
                    "help": "of the drafter; else that of the pair known in closed form",
                },
            ),
            ("--dialect", {"metavar": "D", "default": "", "help": "the spelling of its tensor names"}),
            ("--break-every", {"metavar": "N", "type": int, "default": 0, "help": "each N-th token is proposed wrong"}),
            (
                "--fault",
                {"metavar": "NAME", "default": "", "help": "what is wrong with it; a name that is none lists all"},
            ),
            ("--out", {"metavar": "DIR", "required": True, "help": "a folder that is made"}),
        ),
    ),
    "launch": (
        "print the command that launches an engine for a drafter, with the reason of each flag",
        (
            ("--drafter", _MODEL | {"required": True, "help": "a local folder, ORG/NAME or ORG/NAME@COMMIT"}),
            ("--target", _MODEL | {"help": "default: the target that the drafter declares"}),
            ("--engine", {"metavar": "NAME[@VERSION]", "required": True, "help": "the engine to launch"}),
            _FAMILY,
            ("--verbose", {"action": "store_true", "help": "show the checks that hold, too"}),
        ),
    ),
    "explain": (
        "print what a code means, why it matters and what to do",
        (("code", {"metavar": "CODE", "help": "such as TEN403"}),),
    ),
}
_COMMON: tuple[_Argument, ...] = (
    ("--format", {"choices": ("text", "json"), "default": "text", "help": "text for people, json for programs"}),
    ("--output", {"metavar": "FILE", "help": "write the answer, or the recording, to FILE"}),
    ("--contracts", {"metavar": "DIR", "help": "a folder of contracts of your own, beside the shipped ones"}),
    (
        "--hub",
        {
            "choices": ("auto", "live", "recordings", "offline"),
            "default": "auto",
            "help": "where ORG/NAME is read: the Hub, or a recording where it proves as much or no Hub answers (auto); "
            "the Hub alone; recordings alone; what is on this machine",
        },
    ),
)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Ask for the terminal's width once: argparse makes a formatter for every argument."""

    width = 0

    def __init__(self, prog: str, **more: Any) -> None:
        if not _Formatter.width:
            try:
                columns = int(os.environ.get("COLUMNS", "0")) or os.get_terminal_size(1).columns
            except (OSError, ValueError):
                columns = 80
            _Formatter.width = max(columns - 2, 20)
        super().__init__(prog, **{"width": _Formatter.width, **more})


def parser(only: str = "") -> argparse.ArgumentParser:
    """Return the parser of the command line; with only, it knows that command alone, and is made faster."""
    top = argparse.ArgumentParser(
        prog="draftproof",
        description="Contract tests for speculative-decoding drafters.",
        epilog=f"{_EXAMPLES}\n{EXIT_CODES}",
        formatter_class=_Formatter,
    )
    top.add_argument("--version", action="version", version=f"draftproof {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (help, arguments) in _ARGUMENTS.items():
        if only in ("", name):
            text = f"{help[0].upper()}{help[1:]}."
            one = commands.add_parser(name, help=help, description=text, epilog=EXIT_CODES, formatter_class=_Formatter)
            for flag, options in (*arguments, *_COMMON):
                one.add_argument(*(("-v", flag) if flag == "--verbose" else (flag,)), **options)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    top = parser(words[0] if words and words[0] in _ARGUMENTS else "")
    args = top.parse_args(words)
    if empty := _empty(words):
        top.error(f"the {empty} is an empty text: was a variable not set?")
    code = 0
    try:
        text, code = _COMMANDS[args.command](args, top)
        return _deliver(text, args.output, top) or code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader went away: nothing to tell it
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code


def _empty(words: Sequence[str]) -> str:
    """Return the option whose value is an empty text; a launch line and an engine have findings of their own."""
    for before, word in zip(("", *words), words, strict=False):
        name = before if word == "" else word.partition("=")[0] if word.startswith("--") and word.endswith("=") else ""
        if name.startswith("--") and name not in ("--launch", "--engine"):
            return name.lstrip("-")
    return ""


def _deliver(text: str, output: str | None, top: argparse.ArgumentParser) -> int:
    """Write the answer to a file or to the terminal; characters that it cannot show are escaped."""
    try:
        if output:
            Path(output).write_text(text, encoding="utf-8", errors="backslashreplace")
        elif sys.stdout is not None:
            reconfigure = getattr(sys.stdout, "reconfigure", None)
            if reconfigure:
                reconfigure(errors="backslashreplace")
            sys.stdout.write(text)
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        sys.stderr.write(ascii(f"draftproof: cannot write {output or 'the answer'}: {why}")[1:-1] + "\n")
        return 2
    return 0


def _library(args: argparse.Namespace, top: argparse.ArgumentParser, *, empty: bool = False) -> Any:
    """Return the library that a command asks; empty: it writes into its folder, which may hold nothing yet."""
    from draftproof.language import FOLDERS  # noqa: PLC0415
    from draftproof.library import Library  # noqa: PLC0415

    if args.contracts and not Path(args.contracts).is_dir():
        top.error(f"--contracts {args.contracts!a}: no such folder")
    kinds = dict.fromkeys(folder.partition("/")[0] for folder in (*FOLDERS.values(), "recordings"))
    if args.contracts and not empty and not any((Path(args.contracts) / kind).is_dir() for kind in kinds):
        above = Path(os.path.abspath(args.contracts))
        meant = f"; did you mean {str(above.parent)!a}?" if above.name in kinds else ""
        top.error(f"--contracts {args.contracts!a}: no contracts in it: none of the folders {', '.join(kinds)}{meant}")
    from draftproof.api import Connection  # noqa: PLC0415

    own = Path(args.contracts) if args.contracts else Path("contracts")
    hub = Connection(args.hub) if args.hub != "recordings" else None
    return Library(own, hub=hub) if own.is_dir() else Library(hub=hub)


def _report(report: Any, args: argparse.Namespace) -> tuple[str, int]:
    from draftproof import render  # noqa: PLC0415

    level = "pass" if getattr(args, "verbose", False) else "info"
    text = render.as_json(report.to_dict()) if args.format == "json" else render.report_text(report, level=level)
    return text, report.exit_code


def _check(args: argparse.Namespace, top: argparse.ArgumentParser) -> tuple[str, int]:
    from draftproof import api  # noqa: PLC0415

    if args.pair == "":
        top.error("the pair is an empty text: was a variable not set?")
    if args.launch is not None and not (args.pair or args.config or args.release):
        library = _library(args, top)
        sides = (args.drafter or None, args.target or None)
        return _report(api.check_launch(args.launch, library, *sides, args.family or "", args.engine), args)
    if args.launch is not None and not args.pair:
        top.error("--launch goes with a pair, with --drafter, or alone")
    if sum(map(bool, (args.pair, args.drafter, args.config, args.release))) != 1:
        top.error("check takes one of: a pair id, --drafter MODEL, --config FILE, --release DIR")
    if args.card and not args.release:
        top.error("--card goes with --release DIR")
    library = _library(args, top)
    if args.pair:
        if args.target or args.family:
            top.error(
                f"{args.pair!a} is read as a pair, which names its own target and family; "
                f"a model is given as --drafter {args.pair!a}"
            )
        return _report(api.check_pair_id(args.pair, library, args.engine, args.launch or ""), args)
    if args.release:
        return _release(args, library)
    if args.config:
        return _report(api.check_config(Path(args.config), library, args.target, args.family or ""), args)
    return _report(api.check_models(args.drafter, args.target, library, args.family or "", args.engine), args)


def _launch(args: argparse.Namespace, top: argparse.ArgumentParser) -> tuple[str, int]:
    from draftproof import api, render  # noqa: PLC0415

    made, report = api.make_launch(args.drafter, args.target, args.engine, _library(args, top), args.family or "")
    if args.format == "json":
        return render.as_json({"schema": 1, **made, "report": report.to_dict()}), report.exit_code
    return render.launch_text(made) + _report(report, args)[0], report.exit_code


def _release(args: argparse.Namespace, library: Any) -> tuple[str, int]:
    from draftproof import release  # noqa: PLC0415

    report, card = release.check_release(args.release, library, args.target, args.family or "")
    if not args.card or not card:
        return _report(report, args)
    return (_json({"card": card}) if args.format == "json" else card), report.exit_code


def _adapt(args: argparse.Namespace, top: argparse.ArgumentParser) -> tuple[str, int]:
    from draftproof import adapt, rewrite  # noqa: PLC0415

    library = _library(args, top)
    for flag in ("force", "anyway"):
        if getattr(args, flag) and not args.write:
            top.error(f"--{flag} goes with --write DIR")
    if not args.to and not args.engine:
        top.error("adapt takes --to TARGET, or --engine NAME for the target that the drafter declares")
    more = {"like": args.like, "family": args.family or "", "trainer": args.trainer or "", "engines": args.engine}
    if args.write:
        more |= {"force": args.force, "anyway": args.anyway}
        return _report(rewrite.write(args.drafter, args.to, library, Path(args.write), **more), args)
    return _report(adapt.adapt(args.drafter, args.to, library, **more), args)


def _diff(args: argparse.Namespace, top: argparse.ArgumentParser) -> tuple[str, int]:
    from draftproof.diff import diff  # noqa: PLC0415
    from draftproof.hub import REPO  # noqa: PLC0415

    if args.repo is not None and not REPO.fullmatch(args.repo):
        top.error(f"--as {args.repo!a}: expected ORG/NAME")
    more = {"family": args.family or "", "targets": args.target, "repo": args.repo or ""}
    library = _library(args, top)
    return _report(_moved(diff(args.old, args.new, library, **more), _taken(library)), args)


def _taken(library: Any) -> Any:
    """Return what a command moved over the network, and what the cache gave, since that was last asked."""
    from draftproof.hub import Taken  # noqa: PLC0415

    return library.hub.taken() if library.hub is not None else Taken()


def _moved(report: Any, taken: Any) -> Any:
    """Return a report that says as well what was moved."""
    from dataclasses import replace  # noqa: PLC0415

    return replace(
        report,
        bytes_read=report.bytes_read + taken.bytes,
        requests=report.requests + taken.requests,
        cached=report.cached + taken.cached,
    )


def _init(args: argparse.Namespace, top: argparse.ArgumentParser) -> tuple[str, int]:
    from dataclasses import replace  # noqa: PLC0415

    from draftproof import render, scaffold  # noqa: PLC0415
    from draftproof.hub import Taken  # noqa: PLC0415
    from draftproof.language import ID  # noqa: PLC0415

    path = Path(args.output) if args.output else None
    if path is not None and (path.suffix != ".toml" or not re.fullmatch(ID, path.stem)):
        top.error(f"--output {args.output!a}: expected ID.toml; an id is of lower-case letters, digits, dots, _ and -")
    if path is not None and os.path.lexists(path):
        top.exit(2, f"draftproof: {ascii(str(path))[1:-1]} exists, and may have been edited; give another FILE\n")
    library = _library(args, top)
    made = scaffold.init(args.drafter, args.target, library, family=args.family or "", path=path)
    _taken(library)
    taken = library.hub.total() if library.hub is not None else Taken()
    if not isinstance(made, scaffold.Draft):
        args.output = None  # it names the contract, not the answer
        text, code = _report(_moved(replace(made, bytes_read=0, requests=0, cached=0), taken), args)
        return text, code or 1
    data = {"kind": made.kind, "id": made.id, "text": made.text, **taken._asdict()}
    over = taken.requests or taken.cached
    read = render.read_text(taken.bytes, taken.requests, taken.cached) + "\n" if over else ""
    if path is None:
        sys.stderr.write(read if args.format == "text" else "")  # the other stream is the contract
        return (_json(data) if args.format == "json" else made.text), 0
    args.output = None
    if code := _deliver(made.text, str(path), top):
        return "", code
    shown = ascii(str(path))[1:-1]
    then = f"draftproof check {shown}" if made.kind == "pair" else "look at it, and ask again: no family was known"
    text = f"wrote {shown}, a {made.kind} contract; now: {then}\n"
    return (_json({"file": str(path), **data}) if args.format == "json" else text + read), 0


def _show(args: argparse.Namespace, top: argparse.ArgumentParser) -> tuple[str, int]:
    from draftproof import api  # noqa: PLC0415

    return _plain(api.show(args.id, _library(args, top)), args)


def _list(args: argparse.Namespace, top: argparse.ArgumentParser) -> tuple[str, int]:
    from draftproof import api  # noqa: PLC0415

    return _plain(api.listing(_library(args, top), args.kind), args)


def _record(args: argparse.Namespace, top: argparse.ArgumentParser) -> tuple[str, int]:
    from draftproof import refresh  # noqa: PLC0415
    from draftproof.findings import visible  # noqa: PLC0415

    revisions = {role: getattr(args, f"{role}_revision") for role in ("drafter", "target")}
    if any(revision is not None for revision in revisions.values()):
        if len(args.path) != 1 or args.all or args.force:
            top.error("--drafter-revision and --target-revision go with one pair, and replace what they must")
        return _revise(args.path[0], revisions, args, top)
    if args.folder:
        top.error("--from goes with --drafter-revision or --target-revision")
    if args.all:
        return _record_all(args, top)
    if not args.path:
        top.error("record takes folders, ORG/NAME[@REV], or --all")
    output, args.output = args.output, None  # it names the recording, not the answer
    if len(args.path) > 1 and (output or args.name):
        top.error("--as and --output go with one model")
    library = _library(args, top, empty=True)
    own = Path(args.contracts or "contracts")
    folder = own / "recordings" if own.is_dir() else Path()
    made = []
    for spec in args.path:
        more = {"name": args.name or "", "output": Path(output) if output else None, "replace": args.force}
        fresh = refresh.refresh(spec, library, folder, **more)
        made.append(refresh.review(fresh, library) if fresh.state == "written" and not fresh.local else fresh)
        if fresh.state == "stands":
            why = "differs from it" if fresh.old else "is no recording of it"
            help = "give --force to replace it, or --output FILE to write it elsewhere"
            sys.stderr.write(f"draftproof: {visible(fresh.path)} exists, and {why}; {help}\n")
    return _recorded(made, [], [], library, args)


def _record_all(args: argparse.Namespace, top: argparse.ArgumentParser) -> tuple[str, int]:
    """Refresh what the contracts of this folder use."""
    from draftproof import refresh  # noqa: PLC0415
    from draftproof.library import shipped_root  # noqa: PLC0415

    if args.path or args.name or args.output or args.force:
        top.error("--all refreshes what the pairs of the contracts name: it takes no models, --as, --output or --force")
    own = Path(args.contracts or "contracts")
    if not own.is_dir():
        top.error("--all: there is no folder contracts here; give --contracts DIR")
    if Path(refresh.__file__).resolve().parent in own.resolve().parents and own.resolve() == shipped_root().resolve():
        top.error("--all: these contracts ship with draftproof, and are not edited; give --contracts DIR")
    library = _library(args, top)
    done = refresh.refresh_all(library, own)
    if not done.made:
        why = "; ".join(done.left) or "no pair names a model on the Hub"
        top.exit(2, f"draftproof: nothing to refresh in {ascii(str(own))[1:-1]}: {why}\n")
    return _recorded(done.made, done.pairs, done.left, library, args)


def _recorded(
    made: Sequence[Any], pairs: Sequence[Any], left: Sequence[str], library: Any, args: argparse.Namespace
) -> tuple[str, int]:
    """Say what came of each recording, and of the pairs that read them."""
    from dataclasses import replace  # noqa: PLC0415

    from draftproof import refresh, render  # noqa: PLC0415

    code = refresh.exit_code(one.exit_code for one in made)
    taken = _taken(library)
    if len(made) == 1 and made[0].state == "failed" and not args.all:
        text, _ = _report(_moved(replace(made[0].report, bytes_read=0, requests=0, cached=0), taken), args)
        return text, code
    if args.format == "json":
        data: dict[str, Any] = {"recordings": [one.to_dict() for one in made]}
        if len(made) == 1 and made[0].state in ("written", "same"):
            data |= {"file": str(made[0].path), "repo": made[0].repo}
        data["pairs"] = [
            {"pair": id, "before": before, "check": report.to_dict(), "idle": [f.subject for f in refresh.idle(report)]}
            for id, before, report in pairs
        ]
        data |= {"left": list(left), **taken._asdict(), "exit_code": code}
        return _json(data), code
    parts = [render.recorded_text(one) for one in made]
    for id, before, report in pairs:
        was = "" if before == report.verdict else f"{render.verdict_word(before)} → "
        lines = [f"pair {id}: {was}{render.verdict_text(report)}"]
        lines += [f"  no longer needed: {f.subject} ({f.contract})" for f in refresh.idle(report)]
        parts.append("\n".join(lines) + "\n")
    if left:
        parts.append("\n".join(left) + "\n")
    if len(made) > 1:
        count = {state: sum(one.state == state for one in made) for state in ("written", "same", "stands", "failed")}
        words = {"written": "recorded", "same": "as before", "stands": "not replaced", "failed": "not recorded"}
        parts.append(", ".join(f"{n} {words[state]}" for state, n in count.items() if n) + "\n")
    if pairs and any(one.state == "written" for one in made):
        parts.append("next: pytest -m snapshot, and --snapshot-update once it is as meant\n")
    if taken.requests or taken.cached:
        parts.append(render.read_text(taken.bytes, taken.requests, taken.cached) + "\n")
    return "\n".join(parts), code


def _revise(
    id: str, revisions: dict[str, Any], args: argparse.Namespace, top: argparse.ArgumentParser
) -> tuple[str, int]:
    """Move a pair to another commit: write the recording, then the pair, and show what changed."""
    from draftproof import api, render  # noqa: PLC0415
    from draftproof.diff import diff  # noqa: PLC0415
    from draftproof.findings import Report, visible  # noqa: PLC0415
    from draftproof.revise import revise  # noqa: PLC0415

    if args.name or args.output:
        top.error("--as and --output go with a folder; the recordings of a pair have their place beside it")
    if "" in revisions.values() or args.folder == "":
        top.error("a revision or folder is an empty text: was a variable not set?")
    if args.folder and all(revisions.values()):
        top.error("--from is the folder of one commit: move drafter and target one after the other")
    library = _library(args, top)
    made = revise(id, revisions, args.folder or "", library)
    if isinstance(made, Report):
        text, code = _report(made, args)
        return text, code or 1
    reviews = [diff(old, new, library) for old, new in made.versions]
    for path, content in made.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else render.as_json(content)
        if code := _deliver(text, str(path), top):
            return "", code
    after = api.check_pair_id(id, _library(args, top))
    taken = _taken(library)
    stale = [f for f in after.findings if f.code == "CON112"]
    files = [os.path.relpath(path) for path in made.files]
    if args.format == "json":
        data = {"files": files, "says": made.says, "reviews": [r.to_dict() for r in reviews], "check": after.to_dict()}
        return _json(data | taken._asdict()), 0
    said = [*made.says, *(f"written: {path}" for path in files)]
    said.append(f"{after.subject} now: {render.verdict_text(after)}")
    said += [f"no longer needed: {f.subject} ({f.contract})" for f in stale]
    said.append("next: pytest -m snapshot, and --snapshot-update once it is as meant")
    if taken.requests or taken.cached:
        said.append(render.read_text(taken.bytes, taken.requests, taken.cached))
    shown = "\n".join(visible(line, 1000) for line in said)
    return "\n".join([*(render.report_text(r) for r in reviews), shown]) + "\n", 0


def _cache(args: argparse.Namespace, top: argparse.ArgumentParser) -> tuple[str, int]:
    import time  # noqa: PLC0415

    from draftproof.cache import Cache, default_folder  # noqa: PLC0415
    from draftproof.findings import visible  # noqa: PLC0415

    if args.older < 0 or (args.older and not args.prune):
        top.error("--older DAYS goes with --prune, and is not negative")
    cache = Cache(default_folder())
    removed = cache.prune(args.older * 86400, time.time()) if args.prune else None
    now = cache.usage()
    if args.format == "json":
        data = {"folder": now.folder, "entries": now.entries, "bytes": now.bytes}
        return _json(data | ({"removed": removed.entries, "freed": removed.bytes} if removed else {})), 0
    lines = [f"removed  {removed.entries} entries, {removed.bytes:,} bytes"] if removed else []
    lines += [f"folder   {visible(now.folder, 4000)}", f"holds    {now.entries} entries, {now.bytes:,} bytes"]
    return "\n".join(lines) + "\n", 0


def _truth(args: argparse.Namespace, top: argparse.ArgumentParser) -> tuple[str, int]:
    from draftproof.testing import truth  # noqa: PLC0415

    if args.python is None and (args.only or args.runner or args.record):
        top.error("--only, --runner and --record go with --python")
    if args.python is not None and not args.engine:
        top.error("--python goes with --engine NAME")
    try:
        re.compile(args.only)
    except re.error as error:
        top.error(f"--only {args.only!a}: {error}")
    told = (
        truth.agreement(args.engine)
        if args.python is None
        else truth.again(args.python, args.engine, args.runner, args.only, Path(args.record) if args.record else None)
    )
    return (_json(told.data) if args.format == "json" else told.text), told.exit_code


def _fixture(args: argparse.Namespace, top: argparse.ArgumentParser) -> tuple[str, int]:
    from draftproof.testing import known_answer  # noqa: PLC0415

    try:
        made = known_answer.write(Path(args.out), args.family, args.dialect, args.break_every, args.fault)
    except known_answer.Refused as error:
        top.error(str(error))
    except OSError as error:
        top.exit(2, f"draftproof: cannot write {ascii(args.out)[1:-1]}: {error.strerror or error}\n")
    data = {"target": str(made.target), "drafter": str(made.drafter), "expected": made.expected}
    told = {key: made.expected[key] for key in ("drafted", "accepted", "fault") if made.expected.get(key)}
    shown = "".join(f"; {key} {value}" for key, value in told.items())
    text = f"wrote {args.out}: target, {made.drafter.name}, expected.json{shown}"
    return (_json(data) if args.format == "json" else f"{ascii(text)[1:-1]}\n"), 0


def _explain(args: argparse.Namespace, top: argparse.ArgumentParser) -> tuple[str, int]:
    from draftproof import render  # noqa: PLC0415
    from draftproof.findings import nearest, visible  # noqa: PLC0415
    from draftproof.rules import RULES  # noqa: PLC0415

    rule = RULES.get(args.code.upper())
    if rule is None:
        near = nearest(args.code.upper(), RULES)
        top.exit(2, f"draftproof: no code {visible(args.code)}{near}; `draftproof list rules` prints all\n")
    return (_json(rule._asdict()) if args.format == "json" else render.rule_text(rule)), 0


def _json(data: dict[str, Any]) -> str:
    """Return plain data as JSON of a versioned schema, as a report has one."""
    from draftproof import findings, render  # noqa: PLC0415

    return render.as_json({"schema": findings.SCHEMA, **data})


def _plain(data: Any, args: argparse.Namespace) -> tuple[str, int]:
    from draftproof import render  # noqa: PLC0415
    from draftproof.findings import Report  # noqa: PLC0415

    if isinstance(data, Report):
        return _report(data, args)
    return (_json(data) if args.format == "json" else "\n".join(render.tree_text(data)) + "\n"), 0


_COMMANDS = {
    "check": _check,
    "adapt": _adapt,
    "init": _init,
    "diff": _diff,
    "show": _show,
    "list": _list,
    "record": _record,
    "cache": _cache,
    "truth": _truth,
    "fixture": _fixture,
    "explain": _explain,
    "launch": _launch,
}


def run() -> NoReturn:
    """Run one command as a program, and end it at once: no garbage is collected, no module taken apart."""
    gc.disable()
    code = main()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # none there, or closed
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
