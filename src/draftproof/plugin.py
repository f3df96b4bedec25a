"""The pytest plugin. Wiring only: options, marks, one parameter per pair, a summary. Imports nothing heavy."""

from __future__ import annotations

import gc
import json
import os
import shlex
import sys
from functools import cached_property, lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator
    from importlib.machinery import ModuleSpec

    from draftproof.findings import Finding, Report
    from draftproof.library import Library

MARKS = {
    "shape": "rungs 1 to 3: configs and headers only; no torch, no network",
    "weights": "rung 4: values of a few tensors",
    "forward": "rung 5: the reference forward runs",
    "gpu": "rung 6: benchmarks on a GPU",
    "live": "rung 6: a running server",
    "snapshot": "reviewed views of every pair",
}
SETTINGS = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "contracts")
OWN = Path(__file__).parent / "testing" / "test_shape.py"  # the test classes that need no file
OWN_NAME = "draftproof.testing.test_shape"
REQUIRED = ("shape", "weights", "gpu", "live")
HUB = ("auto", "live", "recordings", "offline")
_STATE: pytest.StashKey[State] = pytest.StashKey()
_PROPERTY = "draftproof"
NO_ENGINE = "no-engine"


class State:
    """Hold what one session knows: the library, the reports made so far, and the counts of all tests."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.reports: dict[str, Report] = {}
        self._library: Library | None = None
        self._broken: list[Finding] | None = None
        self.item: Any = None  # the test that runs
        self.uncollected = False  # Python looks for no garbage, because of this

    def collect(self, none: bool) -> None:
        """Have Python look for garbage, or not for a while; not where another has told it so."""
        if none and gc.isenabled():
            gc.disable()
            self.uncollected = True
        elif not none and self.uncollected:
            gc.enable()
            self.uncollected = False

    def release(self) -> None:
        """Let go of what was read: pytest has Python look through all that is left, more than once."""
        self.reports, self._library = {}, None
        self.collect(none=False)

    @property
    def fail_on(self) -> str:
        """Return the threshold: the option, else the ini key."""
        return str(self.config.getoption("draftproof_fail_on") or self.config.getini("draftproof_fail_on"))

    @property
    def drafter(self) -> str:
        """Return --drafter, or ""."""
        return self.config.getoption("drafter") or ""

    @cached_property
    def root(self) -> Path:
        """Return the folder of this repository's own contracts."""
        own: str | None = self.config.getoption("draftproof_contracts")
        if own:
            return Path(os.path.abspath(self.config.invocation_params.dir / own))
        return self.base / str(self.config.getini("draftproof_contracts"))

    @property
    def base(self) -> Path:
        """Return pytest's root; where it took the value of --drafter for a path of tests, the current folder."""
        here, root = self.config.invocation_params.dir, self.config.rootpath
        return root if root in (here, *here.parents) else here

    def overlooked(self) -> Path | None:
        """Return a settings file or contracts folder of the current folder's own root that pytest passed over."""
        here, root = self.config.invocation_params.dir, self.config.rootpath
        parents = (here, *here.parents)
        below = parents[: parents.index(root)] if root in parents else parents
        names = SETTINGS if root not in parents or self.config.inipath is None else SETTINGS[:-1]
        return next((folder / name for folder in below for name in names if (folder / name).exists()), None)

    @property
    def library(self) -> Library:
        """Return the contracts of this repository and those that ship with draftproof."""
        if self._library is None:
            from draftproof.library import Library  # noqa: PLC0415

            mode = self.config.getoption("draftproof_hub") or ("auto" if self.drafter else "recordings")
            hub = None
            if mode != "recordings":
                from draftproof.api import Connection  # noqa: PLC0415

                hub = Connection(mode)
            self._library = Library(*([self.root] if self.root.is_dir() else []), hub=hub)
        return self._library

    def pairs(self, shipped: bool) -> list[str]:
        """Return the ids of the pairs to test: of this repository, or those that ship with draftproof."""
        from draftproof.library import Library  # noqa: PLC0415

        if self.root.is_dir():
            return [id for id, path in self.library.files("pair").items() if self.root in path.parents]
        return list(Library().files("pair")) if shipped else []

    @cached_property
    def asked(self) -> list[str]:
        """Return the engines of --engine, each once."""
        given: list[str] = self.config.getoption("engine")
        if not given:
            return []
        from draftproof.api import named_engines  # noqa: PLC0415

        return named_engines(given, self.library)

    def engines(self, param: str) -> list[str]:
        """Return the engines that are asked about with a pair: those of --engine, else those that the pair names."""
        if self.asked or self.drafter or not param:
            return self.asked
        from draftproof.api import named_engines  # noqa: PLC0415
        from draftproof.contracts import Pair  # noqa: PLC0415
        from draftproof.library import load  # noqa: PLC0415

        path = self.library.files("pair").get(param)
        if path is None or not any(self.library.holds("pair", param, word) for word in (b"engines", b"launch")):
            return []
        pair, _ = load(path, "pair", self.library)  # aside: of a broken one its own test speaks
        return named_engines(pair.asks, self.library) if isinstance(pair, Pair) else []

    def report(self, param: str) -> Report:
        """Return the report of a pair, or of --drafter and --target; made once."""
        if param not in self.reports:
            from draftproof import api  # noqa: PLC0415

            if self.drafter:
                target, family = self.config.getoption("target"), self.config.getoption("draftproof_family")
                self.reports[param] = api.check_models(self.drafter, target, self.library, family or "", self.asked)
            else:
                self.reports[param] = api.check_pair_id(param, self.library, self.asked)
        return self.reports[param]

    def broken(self) -> list[Finding]:
        """Return what is wrong with this repository's own contract files, those that no pair reads included."""
        from draftproof.language import FOLDERS  # noqa: PLC0415

        if self._broken is None:
            kinds = [kind for kind in FOLDERS if kind != "pair"]  # a pair has tests of its own
            if self.root.is_dir():
                self.library.read(*kinds)
            self._broken = self.library.broken(*kinds)
        return self._broken

    def rerun(self, item: pytest.Item) -> str:
        """Return the command that runs one test again, as typed where the user is."""
        words = ["pytest"]
        file, *names = item.nodeid.split("::")
        if self.drafter:
            words += ["-m", "shape", f"--drafter={self.drafter}"]
            for option, dest in (("--target", "target"), ("--draftproof-family", "draftproof_family")):
                if value := self.config.getoption(dest):
                    words.append(f"{option}={value}")
        elif item.path == OWN:
            words += ["--pyargs", "::".join((OWN_NAME, *names))]
        else:
            words.append("::".join((_from_here(self.config, file), *names)))
        words += [f"--engine={engine}" for engine in self.asked]
        for option in ("--draftproof-contracts", "--draftproof-fail-on"):
            if value := self.config.getoption(option):
                words.append(f"{option}={value}")
        return shlex.join(words)


@lru_cache(maxsize=64)
def _from_here(config: pytest.Config, file: str) -> str:
    """Return a file of tests as it is typed where the user is."""
    return os.path.relpath(config.rootpath / file, config.invocation_params.dir)


class _AsTheyAre:
    """Find draftproof's modules as Python does: pytest's way, for the asserts of tests, reads code six times slower."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return what finds one of the modules that hold no tests."""
        ours = name.startswith("draftproof.") and name != OWN_NAME
        return PathFinder.find_spec(name, path, target) if ours else None


def state_of(config: pytest.Config) -> State:
    """Return the state of the session."""
    return config.stash[_STATE]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and ini keys."""
    group = parser.getgroup("draftproof", "contract tests for speculative-decoding drafters")
    group.addoption("--drafter", metavar="MODEL", help="check this drafter, with no contract file")
    group.addoption("--target", metavar="MODEL", help="with --drafter; default: the target that the drafter declares")
    group.addoption(
        "--engine",
        action="append",
        default=[],
        metavar="NAME[@VERSION]",
        help="say what this engine will do with it, too; all: every one that is known",
    )
    group.addoption("--draftproof-family", metavar="ID", help="with --drafter: its family, where it cannot be told")
    group.addoption(
        "--draftproof-contracts", metavar="DIR", help="folder of contracts; default: contracts/ of the root"
    )
    group.addoption(
        "--draftproof-fail-on",
        choices=("error", "warning", "unknown"),
        help="what fails a test: errors (default), warnings too, or also what could not be judged",
    )
    group.addoption(
        "--draftproof-require",
        action="append",
        choices=REQUIRED,
        default=[],
        metavar="MARK",
        help=f"fail the run if nothing of this kind was decided: {', '.join(REQUIRED)}",
    )
    group.addoption(
        "--draftproof-hub",
        choices=HUB,
        metavar="MODE",
        help=f"where ORG/NAME is read: {', '.join(HUB)}; recordings for pairs, auto for --drafter",
    )
    parser.addini("draftproof_fail_on", "what fails a test: error, warning or unknown", default="error")
    parser.addini("draftproof_contracts", "folder of contracts, below the root", default="contracts")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks; with --drafter and no path, collect draftproof's own test classes."""
    for name, text in MARKS.items():
        config.addinivalue_line("markers", f"{name}: {text}")
    sys.meta_path.insert(0, _AsTheyAre)
    state = config.stash[_STATE] = State(config)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Summary(state), "draftproof-summary")
    if state.fail_on not in ("error", "warning", "unknown"):
        raise pytest.UsageError(f"draftproof_fail_on = {state.fail_on}: expected error, warning or unknown")
    for option in ("--target", "--draftproof-family"):
        if config.getoption(option) and not state.drafter:
            raise pytest.UsageError(f"{option} goes with --drafter")
    own = config.getoption("draftproof_contracts")
    if own and not state.root.is_dir():
        raise pytest.UsageError(f"--draftproof-contracts {own}: no such folder")
    if state.drafter and config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args[:] = [str(OWN)]
    if state.drafter and (lost := state.overlooked()):
        why = f"pytest took a path after them for one of tests, and would not see {lost}"
        raise pytest.UsageError(f"write --drafter=MODEL and --target=MODEL, with equals signs: {why}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let go of what was read, where no session ended."""
    if _AsTheyAre in sys.meta_path:  # an inner session has its own
        sys.meta_path.remove(_AsTheyAre)
    if state := config.stash.get(_STATE, None):  # not where another plugin refused to start
        state.release()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let go of what was read."""
    state_of(session.config).release()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that asks for draftproof_pair one parameter per pair; with draftproof_engine, one per engine, too."""
    if "draftproof_pair" not in metafunc.fixturenames:
        return
    state = state_of(metafunc.config)
    if state.drafter:
        target = metafunc.config.getoption("target")
        params = [state.drafter + (f" with {target}" if target else "")]
    else:
        params = state.pairs(shipped=metafunc.module.__name__ == OWN_NAME) or [""]
    ids = [ascii(p)[1:-1] or "no-pair" for p in params]
    if "draftproof_engine" in metafunc.fixturenames:
        rows = [(param, engine) for param in params for engine in state.engines(param)] or [("", NO_ENGINE)]
        ids = [f"{ascii(param)[1:-1]}-{engine}" for param, engine in rows]
        metafunc.parametrize(("draftproof_pair", "draftproof_engine"), rows, ids=ids, scope="session")
        return
    metafunc.parametrize("draftproof_pair", params, ids=ids, scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Drop the test of engines where none is asked about."""
    items[:] = [item for item in items if _parameter(item, "draftproof_engine") != NO_ENGINE]


def _parameter(item: pytest.Item, name: str) -> Any:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get(name) if callspec else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Note the test that runs: a fixture that asks pytest for it costs each test more than all else here.

    While tests of pairs read contracts and headers Python looks for no garbage: what they read is kept to the end.
    """
    state = state_of(item.config)
    state.item = item
    reads = item.get_closest_marker("shape") is not None and _parameter(item, "draftproof_pair") is not None
    state.collect(none=reads)  # after the last one once all is let go of


@pytest.fixture
def draftproof_verify(pytestconfig: pytest.Config, draftproof_pair: str) -> Any:
    """Return a function that holds rungs of the pair to the threshold: fails, skips with the reason, or passes."""
    state = state_of(pytestconfig)

    def verify(*rungs: str) -> None:
        item = state.item
        from draftproof import render  # noqa: PLC0415
        from draftproof.findings import Section, visible  # noqa: PLC0415

        if not draftproof_pair:
            pytest.fail(_nothing(state), pytrace=False)
        report = state.report(draftproof_pair)
        found = [f for section in report.sections if section.rung in rungs for f in section.findings]
        if "contract" in rungs and state.broken():
            found = list(dict.fromkeys([*found, *state.broken()]))
        decided = [f for f in found if f.level in ("pass", "error", "warning")]
        waiting = [f for f in found if f.level == "unknown" and not f.accepted]
        failed = [f for f in found if f.fails(state.fail_on)]
        rerun = state.rerun(item)
        counts = {
            "pair": draftproof_pair,
            "marks": [mark.name for mark in item.iter_markers() if mark.name in MARKS],
            "holds": sum(f.level == "pass" for f in found),
            "fail": len(failed),
            "unknown": sum(f.level == "unknown" for f in found),
            "expected": sum(f.level == "unknown" and bool(f.accepted) for f in found),
            "accepted": sum(f.level in ("error", "warning") and bool(f.accepted) for f in found),
            "decided": len(decided),
            "bytes": report.bytes_read,
            "requests": report.requests,
            "cached": report.cached,
            "worker": os.environ.get("PYTEST_XDIST_WORKER", ""),
            "rerun": rerun,
        }
        item.user_properties.append((_PROPERTY, json.dumps(counts)))
        if failed:
            shown = Section.of("", [f for f in found if f.level != "pass"])
            codes = ", ".join(dict.fromkeys(f.code for f in failed))
            text = render.section_text(shown)
            head, last = f"{visible(report.subject)}: {codes}", f"  {'rerun':<10}{visible(rerun, 4000)}"
            pytest.fail(f"{head}\n\n{text}\n{last}", pytrace=False)
        if waiting:
            _skip(draftproof_pair, "; ".join(f"{f.code} {f.subject}: {f.message} ({f.observed})" for f in waiting))
        if not decided:
            contract = next((s for s in report.sections if s.rung == "contract"), None)
            broken = contract is not None and contract.verdict == "fail"
            expected = ", ".join(sorted({f.code for f in found if f.level == "unknown"}))
            why = f"nothing is known that decides; as expected, {expected}" if expected else "no target was given"
            _skip(draftproof_pair, "the contract is broken, see test_conforms" if broken else why)

    return verify


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Cut the crash line of our failures to its head: on a CI, pytest prints the whole of it once more at the end."""
    report = yield
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash and any(name == _PROPERTY for name, _ in item.user_properties):
        crash.message = crash.message.split("\n", 1)[0]
    return report


def _skip(pair: str, why: str) -> None:
    """Skip with the reason, at the place of the test and not of this file."""
    from draftproof.findings import visible  # noqa: PLC0415

    raise pytest.skip.Exception(visible(f"{pair}: unknown: {why}", 4000), _use_item_location=True)


def _nothing(state: State) -> str:
    """Say that no pair was found, and what exists."""
    from draftproof.library import Library  # noqa: PLC0415

    known = {kind: ", ".join(state.library.files(kind)) for kind in ("pair", "family", "target")}
    own = state.pairs(shipped=False)
    first = (
        f"no test of these pairs was selected: {', '.join(own)}"
        if own
        else f"no pair contract in {state.root / 'pairs'}"
    )
    return (
        f"{first}\n"
        f"  pairs shipped with draftproof: {', '.join(Library().files('pair'))}\n"
        f"  families: {known['family']}\n  targets: {known['target']}\n"
        "  check a pair with no file: pytest -m shape --drafter=MODEL --target=MODEL"
    )


class Summary:
    """Gather what the tests found, from workers too, and say it at the end."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.tests: list[dict[str, Any]] = []
        self.unmet: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the counts of each test; they travel with the report."""
        if report.when == "call":
            rows = [json.loads(str(value)) for name, value in report.user_properties if name == _PROPERTY]
            self.tests += [row | {"outcome": report.outcome} for row in rows]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run in which a required kind was not decided."""
        config = session.config
        for mark in dict.fromkeys(config.getoption("draftproof_require")):
            done = [t for t in self.tests if mark in t["marks"] and t["decided"] and t["outcome"] != "skipped"]
            if not done:
                self.unmet.append(mark)
        good = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if self.unmet and good and not config.getoption("collectonly"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
        """Print the counts, what was required and not decided, and the next command to type."""
        asked = self.state.drafter or any(mark in (config.getoption("markexpr") or "") for mark in MARKS)
        nothing = exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and asked
        if not (self.tests or self.unmet or nothing):
            return
        terminalreporter.section("draftproof")
        if nothing:
            terminalreporter.line(_nothing(self.state))
        if self.tests:
            terminalreporter.line(self.counts())
        for mark in self.unmet:
            terminalreporter.line(f"required: {mark}, and no test of that kind decided anything", red=True)
        if self.tests:
            from draftproof.findings import visible  # noqa: PLC0415

            terminalreporter.line(f"next: {visible(self.next(), 4000)}")

    def counts(self) -> str:
        """Return one line: pairs, checks by outcome, bytes read; of a network all that each worker moved."""
        total = {key: sum(t[key] for t in self.tests) for key in ("holds", "fail", "unknown", "expected", "accepted")}
        reports = {(t["pair"], t["worker"]): t for t in self.tests}.values()  # a worker reads a pair once
        asked, kept = (sum(t[key] for t in reports) for key in ("requests", "cached"))
        read = {t["pair"]: 0 for t in reports}
        for t in reports:  # the same files of this machine, read by two workers, are no more bytes
            read[t["pair"]] = read[t["pair"]] + t["bytes"] if t["requests"] else max(read[t["pair"]], t["bytes"])
        over = f" in {asked} requests" if asked else ""
        over += f"; {kept} answers from the cache" if kept else ""
        expected = f" ({total['expected']} expected)" if total["expected"] else ""
        accepted = f", {total['accepted']} accepted" if total["accepted"] else ""
        pairs = f"{len(read)} pair{'s' if len(read) != 1 else ''}"
        return (
            f"{pairs}: {total['holds']} check{'s hold' if total['holds'] != 1 else ' holds'}, {total['fail']} fail, "
            f"{total['unknown']} unknown{expected}{accepted}; {sum(read.values()):,} bytes read{over}"
        )

    def next(self) -> str:
        """Return the next command to type: run again what failed, see what is unknown, else review the snapshots."""
        failed = [t for t in self.tests if t["outcome"] == "failed"]
        waiting = [t for t in self.tests if t["outcome"] == "skipped"]
        if failed:
            return str(failed[0]["rerun"])
        if waiting:
            return f"{waiting[0]['rerun']} -rs"
        if self.state.drafter:
            target = self.state.config.getoption("target")
            words = [f"--drafter={self.state.drafter}", *([f"--target={target}"] if target else [])]
            return shlex.join(["draftproof", "check", *words, "--verbose"])
        if (self.state.config.rootpath / "snapshots").is_dir():
            return "pytest -m snapshot"
        return shlex.join(["draftproof", "check", self.tests[0]["pair"], "--verbose"])


# --- for the tests of engines -------------------------------------------------------------------------------------


@pytest.fixture
def draftproof_fixture(tmp_path: Path) -> Any:
    """Return a function that writes a tiny target and drafter, with what an engine must do with them."""

    def write(family: str = "known", dialect: str = "", break_every: int = 0, fault: str = "") -> Any:
        from draftproof.testing import known_answer  # noqa: PLC0415

        place = tmp_path / f"draftproof-{len(list(tmp_path.iterdir()))}"
        return known_answer.write(place, family, dialect, break_every, fault)

    return write


@pytest.fixture
def draftproof_truth() -> Any:
    """Return a function that runs the cases in a build of an engine: what ends in another way than is recorded."""

    def changed(python: str, engine: str, runner: str = "", only: str = "") -> Any:
        from draftproof.testing import truth  # noqa: PLC0415

        now = truth.run(python, engine, runner, only)
        before = truth.recorded(now)
        if before is None:
            pytest.fail(f"nothing is recorded of {now.name}", pytrace=False)
        return truth.changes(before, now)

    return changed
