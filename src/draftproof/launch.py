"""A launch line as it was typed: read as a shell and the engine would read it, and never run.

``parse`` takes the text apart: words, quotes and line ends as a shell has them, what stands before the command
(variables, ``env``, ``sudo``, ``docker run``), the command itself, and its flags by the table of the engine, as data.
What cannot be read is a finding with the character where it stops; nothing that is typed raises.

What comes out is what rules of an engine speak of: ``launch.<dest>`` with a typed value, ``launch.env.NAME``, and
``launch.refused``, what the engine's own reading of its flags will not take, and ``launch.odd``, keys that a table of
its may not have, ``launch.unfit``, what a flag or such a key may not hold, ``launch.misplaced``, what does not stand
where it must, ``launch.cut``, a key that nothing stands behind, ``launch.unread``, files that the line names for more
flags, ``launch.spoilt``, what is wrong with such a file, ``launch.pulled``, the keys of one that was read, and
``launch.ranges``, the columns of what is written in ranges, which are looked at later.
"""

from __future__ import annotations

import json
import math
import operator
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from draftproof.dims import Absent, Known, Seen, Unknown, value_of
from draftproof.findings import Finding, finding, nearest, visible
from draftproof.library import Library
from draftproof.profiles import Command, Flag, Launches

MAX_LINE = 100_000  # characters of a launch
MAX_NESTED = 4  # shells within shells


class Word(NamedTuple):
    """Hold a word of a line as the shell gives it to a program, and where each of its characters stands."""

    text: str
    at: tuple[int, ...]  # of each character, and of the end
    holes: tuple[str, ...] = ()  # what only a shell could fill in, as it is typed
    bare: bool = True  # no part of it is quoted


@dataclass(frozen=True)
class Launch:
    """Hold what a line says: which engine, with which flags, for which models, and what is wrong with it."""

    line: str
    engine: str = ""
    command: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # the arguments, as the program gets them
    env: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, Any] = field(default_factory=dict)  # dest -> value; env, and refused, besides
    target: str = ""
    drafter: str = ""
    image: str = ""  # that it runs in
    version: str = ""  # the tag of that, where it is an image of the engine
    target_revision: str = ""  # the commit, or the branch, that it pins
    drafter_revision: str = ""
    own: bool = False  # it names no drafter, and the engine looks for one in the target's own checkpoint
    findings: tuple[Finding, ...] = ()

    @property
    def spec(self) -> str:
        """Return the engine as --engine names it: by the tag of its image, where there is one."""
        return self.image if self.version else self.engine

    @property
    def quoted(self) -> str:
        """Return the line anew, quoted for a shell: read again it says the same."""
        return quote(self.env, (*self.command, *self.words))


def quote(env: Mapping[str, str], words: Sequence[str]) -> str:
    """Return variables and words as a line that a shell takes apart into them again."""
    return " ".join([*(f"{name}={_quoted(value)}" for name, value in env.items()), *map(_quoted, words)])


def _quoted(text: str) -> str:
    if not isinstance(text, _Hole):
        return shlex.quote(text)
    inner = re.sub(r"(\$\([^)]*\)|`[^`]*`|\$\{[^}]*\})|([\"\\])", lambda m: m[1] or f"\\{m[2]}", text)
    return '"' + inner + '"'


def flags_of(
    argv: Sequence[str], env: Mapping[str, str] | None = None, library: Library | None = None
) -> dict[str, Any]:
    """Return the flags of a launch that is already taken apart into words, as rules of its engine see them."""
    words = [Word(word, tuple(range(len(word) + 1)), (), False) for word in argv]
    made = _read(words, dict(env or {}), "", library or _shipped(), shlex.join(argv))
    return dict(made.flags) if made is not None else {"env": dict(env or {})}


def reads_own(engine: str, flags: Mapping[str, Any], library: Library) -> bool:
    """Tell whether an engine reads the target's own checkpoint for a drafter's, where these flags name none."""
    launches = library.get("launch", engine)[0]
    own = launches.own if launches is not None else None
    if launches is None or own is None or _first(flags, launches.drafter):
        return False
    return value_of(own, lambda name: _seen(flags, name)) is True


@cache
def _shipped() -> Library:
    return Library()


def words_of(launches: Launches, flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the words of the first command with these flags, by dest; read again they give the same flags."""
    command = launches.commands[0]
    words = [command.words[0].replace("*", ""), *command.words[1:]]
    for dest, value in sorted(flags.items(), key=lambda row: row[0] != command.positional):
        flag = launches.flag(dest)
        if dest == command.positional:
            words.append(str(value))
        elif flag.takes == "none":
            words += [(flag.names if value else flag.off)[0]] if value or flag.off else []
        elif isinstance(value, dict):
            words += [flag.names[0], json.dumps(value)]
        else:
            words += [flag.names[0], *map(str, value if isinstance(value, list) else [value])]
    return tuple(words)


def at_version(flags: Mapping[str, Any], engine: str, version: str, library: Library) -> Mapping[str, Any]:
    """Return flags as rules of one version see them: what the engine refuses is known of the version that was read."""
    launches, _ = library.get("launch", engine)
    if launches is None or launches.version == version:
        return flags
    why = Unknown(f"the flags of {launches.engine} were read at {launches.version} alone")
    return {**flags, **{key: why for key in ("refused", "odd", "unfit") if key in flags}}


def parse(line: str, library: Library) -> Launch:
    """Return what a line says; of several commands the first that launches an engine counts."""
    if len(line) > MAX_LINE:
        return Launch(line[:80], findings=(_stops("launch", "", 0, "a line", f"{len(line)} characters"),))
    try:
        commands = list(_commands(line, tuple(range(len(line) + 1)), {}))
    except _Unreadable as stop:
        return Launch(line, findings=(_stops("launch", line, stop.at, stop.expected, stop.seen),))
    for number, (words, env) in enumerate(commands):
        try:
            made = _read(words, env, line, library, line)
        except _Unreadable as stop:
            return Launch(line, findings=(_stops("launch", line, stop.at, stop.expected, stop.seen),))
        if made is not None:
            return replace(made, findings=(*made.findings, *_rest(commands[number + 1 :], line, library)))
    return Launch(line, findings=(_nothing(commands, library),))


def _rest(commands: Sequence[tuple[list[Word], dict[str, str]]], line: str, library: Library) -> Iterator[Finding]:
    """Say what stands behind the launch: flags that a lost line end cut off, and launches that are not looked at."""
    for n, (words, env) in enumerate(commands):
        if n == 0 and words and re.match(r"[-–—]\S", words[0].text):
            wanted = "a backslash at the end of the line before, and nothing behind it"
            seen = f"the command ends there; {visible(words[0].text)} is no part of it"
            yield _stops("launch", line, words[0].at[0], wanted, seen)
        elif _engine(words, dict(env), library) is not None:
            yield finding(
                "CLI662", "launch", expected="one launch", observed=f"another at {_place(line, words[0].at[0])}"
            )


def _nothing(commands: Sequence[tuple[list[Word], dict[str, str]]], library: Library) -> Finding:
    known = [" ".join(c.words) for _, launches in _all(library) for c in launches.commands]
    typed = [" ".join(w.text for w in words[:3]) for words, _ in commands if words]
    close = next(filter(None, (nearest(text[:100], known, 0.6) for text in typed)), "")
    close = close or next(filter(None, (nearest(" ".join(text.split()[:2])[:100], known, 0.6) for text in typed)), "")
    seen = "; ".join(visible(text, 60) for text in typed) or "nothing"
    return finding("CLI656", "launch", expected=f"one of: {', '.join(known)}", observed=seen + close)


def _place(line: str, at: int) -> str:
    """Return where a character stands: its number, and in a text of several lines the line."""
    row = line.count("\n", 0, at)
    return f"character {at + 1}" + (f" (line {row + 1})" if "\n" in line else "")


def _stops(subject: str, line: str, at: int, expected: str, seen: str) -> Finding:
    rest = line[at : at + 30]
    behind = f", before {visible(rest)!r}" if rest else ", at its end"
    return finding("CLI655", subject, expected=expected, observed=f"{seen}: it stops at {_place(line, at)}{behind}")


# --- the shell ----------------------------------------------------------------------------------------------------


class _Unreadable(Exception):
    """Say where a line stops, what was expected there and what was seen."""

    def __init__(self, at: int, expected: str, seen: str) -> None:
        super().__init__(expected)
        self.at, self.expected, self.seen = at, expected, seen


class _Hole(str):
    """Hold a text of which a shell fills in a part."""


_ASSIGN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=", re.ASCII)
_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})", re.ASCII)
_ENDS = ("\n", ";", "&&", "||", "|", "&")  # of a command


class _Shell:
    """Take a text apart into words and the marks between them."""

    def __init__(self, text: str, at: tuple[int, ...], known: Mapping[str, str]) -> None:
        self.text, self.at, self.known, self.n = text, at, known, 0
        self.start()

    def start(self) -> None:
        """Begin a word."""
        self.chars: list[str] = []
        self.where: list[int] = []
        self.holes: list[str] = []
        self.begun, self.bare = False, True

    def put(self, text: str, at: int) -> None:
        """Add characters to the word, that stand at one place."""
        self.chars += text
        self.where += [at] * len(text)
        self.begun = True

    def word(self) -> Word:
        """Return the word, and begin the next."""
        end = self.at[self.n]
        made = Word("".join(self.chars), (*self.where, end), tuple(self.holes), self.bare)
        self.start()
        return made

    def __iter__(self) -> Iterator[Word | str]:
        text = self.text
        while self.n < len(text):
            char = text[self.n]
            if char in " \t\r":
                if self.begun:
                    yield self.word()
                self.n += 1
            elif char == "#" and not self.begun:
                self.n = (text + "\n").index("\n", self.n)
            elif char in "\n;&|":
                if self.begun:
                    yield self.word()
                mark = text[self.n : self.n + 2] if text[self.n : self.n + 2] in _ENDS else char
                if text.startswith("&>", self.n):
                    self.redirect()
                    continue
                self.n += len(mark)
                yield mark
            elif char in "<>":
                if self.begun and not ("".join(self.chars).isdigit() and self.bare):
                    yield self.word()
                self.start()
                self.redirect()
            elif char in "()":
                raise _Unreadable(self.at[self.n], "a word", f"{char} outside quotes")
            else:
                self.part()
        if self.begun:
            yield self.word()

    def redirect(self) -> None:
        """Pass over where the output goes: the mark, and the word behind it."""
        found = re.compile(r"&?[<>]{1,3}[&|]?[ \t]*").match(self.text, self.n)
        begin = self.at[self.n]
        self.n = found.end() if found else self.n + 1
        while self.n < len(self.text) and self.text[self.n] not in " \t\r\n;&|<>()":
            self.part()
        if not self.begun:
            raise _Unreadable(begin, "a file behind it", "a redirection to nothing")
        self.start()

    def part(self) -> None:
        """Read one character of a word, or one quoted part."""
        text, char, place = self.text, self.text[self.n], self.at[self.n]
        if char == "\\":
            self.escape(place)
        elif char == "'":
            end = text.find("'", self.n + 1)
            if end < 0:
                raise _Unreadable(place, "a ' that closes the one that opens here", "an open quote")
            self.begun, self.bare = True, False
            for n in range(self.n + 1, end):
                self.put(text[n], self.at[n])
            self.n = end + 1
        elif char == '"':
            self.double(place)
        elif char in "$`":
            self.expand()
        else:
            self.put(char, place)
            self.n += 1

    def escape(self, place: int) -> None:
        """Read a backslash outside quotes: it joins lines, or keeps the next character as it is."""
        after = self.text[self.n + 1 : self.n + 3]
        if after[:1] == "\n" or after == "\r\n" or not after:
            self.n += 1 + (2 if after == "\r\n" else len(after[:1]))
        elif after[0] in " \t" and re.match(r"[ \t]+\r?(\n|\Z)", self.text[self.n + 1 :]):
            raise _Unreadable(
                place, "a backslash that is the last of its line", "blanks behind it, so that the line ends"
            )
        else:
            self.put(after[0], self.at[self.n + 1])
            self.bare, self.n = False, self.n + 2

    def double(self, place: int) -> None:
        """Read a part in double quotes."""
        self.begun, self.bare = True, False
        self.n += 1
        while self.n < len(self.text):
            char = self.text[self.n]
            if char == '"':
                self.n += 1
                return
            if char == "\\" and self.text[self.n + 1 : self.n + 2] in tuple('"\\$`\n'):
                if self.text[self.n + 1] != "\n":
                    self.put(self.text[self.n + 1], self.at[self.n + 1])
                self.n += 2
            elif char in "$`":
                self.expand()
            else:
                self.put(char, self.at[self.n])
                self.n += 1
        raise _Unreadable(place, 'a " that closes the one that opens here', "an open quote")

    def expand(self) -> None:
        """Read what a shell fills in: a variable that the text itself sets, or what is not known here."""
        place, found = self.at[self.n], _VARIABLE.match(self.text, self.n)
        if found:
            name = found[1] or found[2]
            value = self.known.get(name, found[0])
            self.holes += [] if name in self.known and not isinstance(value, _Hole) else [found[0]]
            self.put(value, place)
            self.begun = self.begun or not self.bare
            self.n = found.end()
            return
        closing = {"$(": ")", "${": "}"}.get(self.text[self.n : self.n + 2], "`" if self.text[self.n] == "`" else "")
        if not closing:
            special = re.match(r"\$[@*#?!$0-9-]", self.text[self.n : self.n + 2])
            self.holes += [special[0]] if special else []
            self.put(special[0] if special else "$", place)
            self.n += 2 if special else 1
            return
        end = self.text.find(closing, self.n + 2 if closing != "`" else self.n + 1)
        if end < 0:
            raise _Unreadable(
                place, f"a {closing} that closes {self.text[self.n : self.n + 2]}", "an open substitution"
            )
        self.holes.append(self.text[self.n : end + 1])
        self.put(self.text[self.n : end + 1], place)
        self.n = end + 1


def _commands(
    text: str, at: tuple[int, ...], known: dict[str, str], depth: int = 0
) -> Iterator[tuple[list[Word], dict[str, str]]]:
    """Yield each command of a text, with the variables that it is given; those set alone hold from there on."""
    shell = _Shell(text, at, known)
    exported: dict[str, str] = {}
    words: list[Word] = []
    for token in _until(shell):
        if isinstance(token, Word):
            words.append(token)
            continue
        if words and words[0].text in ("$", "%", ">") and len(words) > 1:  # the prompt, pasted with the line
            words = words[1:]
        env, rest = _assigned(words)
        if rest and rest[0].text == "export":
            more, _ = _assigned(rest[1:])
            known |= more
            exported |= more
        elif not rest:
            known |= env
        elif inner := _inner(rest):
            if depth < MAX_NESTED:
                for one, more in _commands(inner.text, inner.at, dict(known), depth + 1):
                    yield one, {**exported, **env, **more}
        else:
            yield rest, {**exported, **env}
        words = []


def _until(shell: _Shell) -> Iterator[Word | str]:
    yield from shell
    yield "\n"


def _assigned(words: Sequence[Word]) -> tuple[dict[str, str], list[Word]]:
    """Return the variables that are set at the front, and the words behind them."""
    env: dict[str, str] = {}
    for n, word in enumerate(words):
        found = _ASSIGN.match(word.text)
        if not found:
            return env, list(words[n:])
        env[found[1]] = (_Hole if word.holes else str)(word.text[found.end() :])
    return env, []


def _inner(words: Sequence[Word]) -> Word | None:
    """Return the text that a shell is given to run: bash -c TEXT."""
    if len(words) > 2 and _base(words[0].text) in ("bash", "sh", "zsh", "dash"):
        for n, word in enumerate(words[1:-1], 1):
            if re.fullmatch(r"-[a-z]*c", word.text):
                return words[n + 1]
    return None


# --- the command --------------------------------------------------------------------------------------------------


class _Front(NamedTuple):
    """Say of a program that runs another what stands between the two."""

    words: str = ""  # that follow its name
    valued: str = ""  # options whose value is a word of its own
    more: int = 0  # words before the command


_FRONTS: Mapping[str, _Front] = {
    "sudo": _Front(valued="-u -g -h -p -C -T -R -D --user --group"),
    "env": _Front(valued="-u --unset -C --chdir"),
    "nohup": _Front(),
    "exec": _Front(valued="-a"),
    "command": _Front(),
    "time": _Front(valued="-f -o"),
    "nice": _Front(valued="-n --adjustment"),
    "ionice": _Front(valued="-c -n"),
    "numactl": _Front(valued="-N -m -C -i -p"),
    "taskset": _Front(more=1),
    "chrt": _Front(more=1),
    "timeout": _Front(valued="-s -k --signal --kill-after", more=1),
    "stdbuf": _Front(valued="-i -o -e"),
    "setsid": _Front(),
    "unbuffer": _Front(),
    "uvx": _Front(valued="--from --with --python -p --index-url --extra-index-url --torch-backend"),
    "uv": _Front("run", "--with --python -p --extra --group --project --directory --env-file --index-url"),
    "poetry": _Front("run"),
    "pdm": _Front("run"),
    "pixi": _Front("run", "-e --environment"),
    "hatch": _Front("run"),
    "conda": _Front("run", "-n --name -p --prefix --cwd"),
    "mamba": _Front("run", "-n --name -p --prefix --cwd"),
    "micromamba": _Front("run", "-n --name -p --prefix --cwd"),
    "nsys": _Front("profile", "-o -t -w -s -y -d -x --output --trace"),
    "apptainer": _Front("exec", "-B --bind --env -H --home --pwd", more=1),
    "singularity": _Front("exec", "-B --bind --env -H --home --pwd", more=1),
    "srun": _Front(valued="-N -n -c -p -A -t -J -w -o -e -G"),
}
_CONTAINERS = ("docker", "podman", "nerdctl")
_ALONE = (  # options of theirs that take no value
    *("--rm", "--detach", "--interactive", "--tty", "--init", "--privileged", "--read-only", "--publish-all"),
    *("--no-healthcheck", "--oom-kill-disable", "--quiet", "--sig-proxy", "--replace", "--help"),
)


def _base(word: str) -> str:
    return word.replace("\\", "/").rpartition("/")[2].removesuffix(".exe")


def _all(library: Library, words: Sequence[Word] | None = None) -> list[tuple[str, Launches]]:
    """Return how each engine is launched, of those whose file holds; with words, of those that speak of one of them."""
    ids = list(library.files("launch"))
    if words is not None:
        ends = [text.partition("@")[0].split("/") for text in (w.text for w in words) if len(text) < 300]
        names = {"/".join(parts[n:]).partition(":")[0] for parts in ends for n in range(len(parts))}
        ids = library.mentioning("launch", [*names, *(_base(w.text) for w in words)])
    made = [(id, library.get("launch", id)[0]) for id in ids]
    return [(id, found) for id, found in made if found is not None]


class _Engine(NamedTuple):
    """Name the engine that a command launches, and how."""

    id: str
    launches: Launches
    command: Command
    words: list[Word]  # of the command itself
    args: list[Word]
    image: str = ""


def _engine(
    words: list[Word], env: dict[str, str], library: Library, image: str = "", depth: int = 0
) -> _Engine | None:
    """Return the engine that a command launches, past whatever runs it; variables on the way join env."""
    more, words = _assigned(words)
    env |= more
    if not words or depth > 16:
        return None
    for id, launches in _all(library, words):
        for command in launches.commands:
            if (count := _matched(command, words)) is not None:
                return _Engine(id, launches, command, words[:count], words[count:], image)
    name = _base(words[0].text)
    if name in _CONTAINERS:
        return _contained(words, env, library, depth)
    front = _FRONTS.get(name)
    if front is None or (front.words and (len(words) < 2 or words[1].text != front.words)):
        return None
    rest = words[2 if front.words else 1 :]
    valued = front.valued.split()
    while rest and rest[0].text.startswith("-"):
        rest = rest[2 if rest[0].text in valued else 1 :]
    more, rest = _assigned(rest)
    env |= more
    return _engine(rest[front.more :], env, library, image, depth + 1)


def _contained(words: list[Word], env: dict[str, str], library: Library, depth: int) -> _Engine | None:
    """Return the engine that an image runs: named behind it, or what the image is made to run."""
    if len(words) < 2 or words[1].text not in ("run", "exec", "create"):
        return None
    rest, entry = words[2:], ""
    while rest and rest[0].text.startswith("-"):
        name, equals, value = rest[0].text.partition("=")
        alone = name in _ALONE or re.fullmatch(r"-[itdPq]+", name)
        value = value if equals or alone or len(rest) < 2 else rest[1].text
        attached = re.fullmatch(r"-e(\w+)", name, re.ASCII)
        if attached:
            name, value, equals = "-e", f"{attached[1]}{equals}{value}" if equals else attached[1], "="
        if name in ("-e", "--env") and (found := _ASSIGN.match(value)):
            holes = rest[0].holes or (rest[1].holes if not equals and len(rest) > 1 else ())
            env[found[1]] = (_Hole if holes else str)(value[found.end() :])
        entry = value if name == "--entrypoint" else entry
        rest = rest[1 if equals or alone else 2 :]
    if not rest:
        return None
    image, inside = rest[0].text, rest[1:]
    if entry:
        inside = [Word(entry, (*rest[0].at[:1] * len(entry), rest[0].at[0])), *inside]
    if inner := _inner(inside):
        for one, more in _commands(inner.text, inner.at, {}, 1):
            if (made := _engine(one, env | more, library, image, depth + 1)) is not None:
                env |= more
                return made
        return None
    if (named := _engine(inside, env, library, image, depth + 1)) is not None:
        return named
    for id, launches in _all(library, rest[:1]):
        if _named(image, launches) and launches.entry:
            return _Engine(id, launches, launches.commands[0], rest[:0], inside, image)
    return None


def _matched(command: Command, words: Sequence[Word]) -> int | None:
    """Return how many words a command takes of a line, if the line begins with it."""
    if not fnmatchcase(_base(words[0].text), command.words[0]):
        return None
    n = 1
    for wanted in command.words[1:]:
        while wanted == "-m" and n < len(words) and words[n].text != "-m" and words[n].text.startswith("-"):
            n += 2 if words[n].text in ("-X", "-W") else 1  # options of the interpreter itself
        if n >= len(words) or words[n].text != wanted:
            return None
        n += 1
    return n


# --- flags --------------------------------------------------------------------------------------------------------


def _read(words: list[Word], env: dict[str, str], line: str, library: Library, whole: str) -> Launch | None:
    """Return what a command launches, or None where it launches nothing that is known."""
    made = _engine(words, env, library)
    if made is None:
        return None
    reader = _Reader(made, line)
    reader.all()
    for name, value in env.items():
        if (flag := made.launches.variables.get(name)) is not None:
            reader.variable(flag, name, value)
    flags: dict[str, Any] = {**reader.flags, "env": {name: _filled(value) for name, value in env.items()}}
    if reader.refused:
        flags["refused"] = "; ".join(reader.refused)
    if made.command is not made.launches.commands[0]:
        flags["program"] = " ".join(made.command.words)  # the first is what is meant without a word
    return Launch(
        whole,
        made.id,
        tuple(w.text for w in made.words) or made.command.words,
        tuple(_Hole(w.text) if w.holes else w.text for w in made.args),
        dict(env),
        flags,
        _first(flags, made.launches.target),
        _first(flags, made.launches.drafter),
        made.image,
        made.image.rpartition(":")[2] if _named(made.image, made.launches) and ":" in made.image else "",
        own=made.launches.own is not None and value_of(made.launches.own, lambda name: _seen(flags, name)) is True,
        findings=tuple(reader.found),
        target_revision=_first(flags, made.launches.target_revision),
        drafter_revision=_first(flags, made.launches.drafter_revision),
    )


def _named(image: str, launches: Launches) -> bool:
    """Tell whether an image is one of an engine's."""
    plain = image.partition("@")[0]
    plain = plain.rpartition(":")[0] if ":" in plain.rpartition("/")[2] else plain
    return any(f"/{plain}".endswith(f"/{one}") for one in launches.images)


def _filled(value: str) -> str | Unknown:
    """Return the value of a variable, or that it is not known, because a shell fills it in."""
    return Unknown(f"{visible(value, 80)} in the launch is not known here") if isinstance(value, _Hole) else value


def _first(flags: Mapping[str, Any], dests: Iterable[str]) -> str:
    """Return the text of the first of some flags that is given and known, or ""."""
    seen = (_at(flags, dest) for dest in dests)
    text = next((str(value) for value in seen if value is not None and not isinstance(value, Unknown)), "")
    return text.rpartition(":")[0] if re.fullmatch(rf"{_REPO.pattern}:[\w.-]+", text) else text  # which quantisation


def _seen(flags: Mapping[str, Any], name: str) -> Seen:
    """Return what expressions see of a flag."""
    value = _at(flags, name.removeprefix("launch."))
    return value if isinstance(value, Unknown) else Absent(name) if value is None else Known(value, name)


def _at(flags: Mapping[str, Any], dest: str) -> Any:
    """Return the value of a flag, or of a key of one that holds a table; None where it is not given."""
    value: Any = flags
    for part in dest.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


class _Bad(Exception):
    """Say that a text is no value of a flag: what was expected, and where in the text."""

    def __init__(self, expected: str, at: int = 0, code: str = "CLI658") -> None:
        super().__init__(expected)
        self.expected, self.at, self.code = expected, at, code


class _Reader:
    """Read the arguments of a command as its engine does; what it would not take is noted, and reading goes on."""

    def __init__(self, made: _Engine, line: str) -> None:
        self.made, self.launches, self.line = made, made.launches, line
        self.flags: dict[str, Any] = {}
        self.tables: dict[str, tuple[Flag, str, dict[str, Any]]] = {}  # those given key by key, by name as it is typed
        self.given: dict[str, tuple[str, Any]] = {}
        self.found: list[Finding] = []
        self.refused: list[str] = []
        self.placed: set[str] = set()  # flags that a word without a name went to

    def all(self) -> None:
        """Read every word."""
        words = self.pulled(list(self.made.args))
        positional, over = self.made.command.positional, False
        self.lead(words)
        if self.made.command.once and any(self.names(word, positional) for word in words):
            self.placed.add(positional)
        n = 0
        while n < len(words):
            word = words[n]
            n += 1
            if word.text == "--" and not over:
                over = True
            elif over or not self.is_flag(word):
                if positional and positional not in self.placed and (n == 1 or not self.made.command.front):
                    self.placed.add(positional)
                    self.take(self.launches.flag(positional), positional, [word])
                else:
                    self.unknown(word)
            else:
                n = self.flag(word, words, n)
        for flag, name, table in self.tables.values():
            self.put(flag, name, table)

    def pulled(self, words: list[Word]) -> list[Word]:
        """Return the words with those of the file that a flag names, if it is YAML on this machine, in front of all."""
        at = [
            n
            for n, word in enumerate(words)
            if any(word.text in self.launches.flag(d).names for d in self.launches.unread)
        ]
        if not self.launches.unread_whole or not at or at[0] + 1 >= len(words):
            return words
        name = words[at[0] + 1]
        table, fault = (None, "twice") if len(at) > 1 else _yaml(name.text) if not name.holes else (None, "")
        self.flags |= {"spoilt": fault} if fault else {}
        if table is None:
            return words
        self.flags["pulled"] = [key.replace("-", "_") for key in table]
        told: list[str] = []
        for key, value in table.items():
            flag = f"--{key}"
            if value is True:
                told.append(flag)
            elif value is False:
                told += [off] if len(self.launches.find(off := f"--no-{key}", exact=True)) == 1 else []
            elif isinstance(value, list):
                told += [flag, *map(str, value)] if value else []
            else:
                told += [flag, json.dumps(value) if isinstance(value, dict) else str(value)]
        made = [Word(text, (name.at[0],) * (len(text) + 1), (), False) for text in told]
        rest = words[: at[0]] + words[at[0] + 2 :]
        first = 1 if self.made.command.positional and words and at[0] > 0 and not self.is_flag(words[0]) else 0
        return rest[:first] + made + rest[first:]

    def names(self, word: Word, dest: str) -> bool:
        """Tell whether a word is the name of a flag, in full."""
        return self.launches.spelt(word.text.partition("=")[0]) in self.launches.flag(dest).names

    def lead(self, words: Sequence[Word]) -> None:
        """Note a flag beside which the word without a name must come first, where it does not."""
        command = self.made.command
        if not command.leads or not words or not words[0].text.startswith("-"):
            return
        if any(self.names(word, dest) for word in words for dest in (command.positional, *self.launches.unread)):
            return
        for word in words:
            if any(self.names(word, dest) for dest in command.leads):
                self.flags["misplaced"] = f"with {visible(word.text, 80)} the {command.positional} must come first"
                self.say("CLI658", word.text, f"the {command.positional} as the first word", visible(words[0].text, 80))

    def is_flag(self, word: Word) -> bool:
        """Tell whether a word is a flag: it begins with a dash, and is no number, unless a flag looks so."""
        number = r"-\d+" if self.launches.dotted else r"-\d+|-\d*\.\d+"  # what has a dot is a key there
        return len(word.text) > 1 and word.text[0] == "-" and not re.fullmatch(number, word.text)

    def flag(self, word: Word, words: Sequence[Word], n: int) -> int:
        """Read one flag with its values; returns the index of the word behind them."""
        name, equals, _ = word.text.partition("=") if self.launches.equals else (word.text, "", "")
        key = ""
        if self.launches.dotted and "." in name:
            name, _, key = name.partition(".")
        found = self.launches.find(name)
        attached = None
        if len(found) != 1 and not key and self.launches.equals and re.fullmatch(r"-[A-Za-z].+", word.text):  # -O3
            one = self.launches.find(word.text[:2], exact=True)
            if one and one[0].takes != "none":
                found, attached = one, 2
        if len(found) != 1:
            if key and not equals and n >= len(words):  # it is taken for a key of a table, whatever its name
                self.flags["cut"] = visible(word.text, 80)
            self.unknown(word, [flag.names[0] for flag in found])
            after = words[n] if n < len(words) else None
            return n + (not equals and after is not None and not self.is_flag(after) and self.plain(found))
        flag = found[0]
        shown = name if attached is None else word.text[:2]
        apart = words[n].text if n < len(words) else ""
        if flag.apart and not equals and attached is None and not name.startswith("--") and apart not in flag.apart:
            self.unknown(word)
            return n
        if flag.dest in self.launches.unread and self.launches.unread_whole and word.text not in flag.names:
            self.say("CLI662", shown, f"{flag.names[0]} FILE, as two words", f"{visible(word.text, 80)} is never read")
            return n if equals else n + 1
        if equals or attached:
            cut = attached or len(word.text) - len(word.text.partition("=")[2])
            value = Word(word.text[cut:], word.at[cut:], word.holes, word.bare)
            if flag.gone:
                self.gone(word, flag, [value])
            elif key:
                self.keyed(flag, shown, key, value)
            elif flag.takes == "none":
                self.bad(shown, value, _Bad("no value behind it"))
            else:
                self.take(flag, shown, [value])
            return n
        if key:
            if n >= len(words):
                self.flags["cut"] = visible(word.text, 80)
                self.bad(f"{shown}.{key}", word, _Bad("a value behind it", len(word.text)))
                return n
            self.keyed(flag, shown, key, words[n])
            return n + 1
        least, most = flag.counts
        last = n
        while last < len(words) and last - n < most and words[last].text != "--" and not self.is_flag(words[last]):
            last += 1
        if last - n < least and not self.launches.equals and last < len(words):
            last = n + least if n + least <= len(words) else last  # it takes whatever stands there
        if flag.gone:
            self.gone(word, flag, words[n:last])
            return last
        if last - n < least:
            if flag.dest in self.launches.unread:
                self.flags["unread"] = [*self.flags.get("unread", ()), ""]
            wanted = "a value" if least == 1 else f"{least} values"
            self.bad(shown, word, _Bad(f"{wanted} behind it", len(word.text)))
            return last
        if most == 0:
            self.put(flag, shown, flag.off_value if self.launches.is_off(flag, name) else flag.value)
        else:
            self.take(flag, shown, list(words[n:last]))
        return last

    def variable(self, flag: Flag, name: str, value: str) -> None:
        """Read a variable that sets a flag where it is not given; what it may not hold is refused all the same."""
        word = Word(value, (0,) * (len(value) + 1))
        if flag.gone:
            self.say("CLI657", name, expected=flag.gone, observed=f"{name}={visible(value, 80)}, which was removed")
            self.refused.append(f"removed: {name}")
        elif isinstance(value, _Hole):
            self.flags.setdefault(flag.dest, _filled(value))
        elif flag.takes == "none":
            off = name != flag.env or value in self.launches.falsy
            if off or value in self.launches.truthy:
                if flag.dest not in self.given and (flag.off or not off):
                    self.flags[flag.dest] = flag.off_value if off else flag.value
            elif flag.off:
                self.bad(name, word, _Bad(f"one of {', '.join((*self.launches.truthy, *self.launches.falsy))}"))
        elif flag.dest in self.given:
            try:
                typed(flag, value)
            except _Bad as bad:
                self.bad(name, word, bad)
                return
            if flag.joins:
                self.flags[flag.dest] = _joined(value, self.flags[flag.dest], flag.joins)
        else:
            self.take(flag, name, [word])

    def gone(self, word: Word, flag: Flag, values: Sequence[Word]) -> None:
        """Note a flag that the engine had once, and what it would have held: it may name the drafter."""
        if values:
            self.flags[flag.dest] = _value_or_hole(values[0], values[0].text)
        where = f" at {_place(self.line, word.at[0])}" if self.line else ""
        self.say(
            "CLI657", word.text, expected=flag.gone, observed=f"{visible(word.text, 80)}{where}, which was removed"
        )
        self.refused.append(f"removed: {visible(word.text, 80)}")

    def plain(self, found: Sequence[Flag]) -> bool:
        """Tell whether the word behind a flag that is not known is its value, rather than the model."""
        positional = self.made.command.positional
        return bool(found) or not positional or positional in self.placed or self.made.command.front

    def take(self, flag: Flag, name: str, words: Sequence[Word]) -> None:
        """Type the values of a flag and keep them."""
        values = []
        for word in words:
            if word.holes:
                self.holes(name, word)
                values.append(Unknown(f"{', '.join(word.holes)} in the launch is not known here"))
                continue
            try:
                values.append(typed(flag, word.text))
            except _Bad as bad:
                self.bad(name, word, bad)
                return
        many = flag.takes in ("some", "any") or flag.takes.isdigit()
        self.put(flag, name, values if many else values[0] if values else flag.value)

    def keyed(self, flag: Flag, name: str, key: str, word: Word) -> None:
        """Take one key of a table that is given key by key: --flag.key value, --flag.list+ value."""
        path = key.removesuffix("+").split(".")
        value: Any = _value_or_hole(word, None)
        if word.holes:
            self.holes(f"{name}.{key}", word)
        elif key.endswith("+"):
            value = word.text.split(",")
        else:
            value = _loose(word.text)
        table = self.tables.setdefault(self.launches.spelt(name), (flag, name, {}))[2]
        for part in path[:-1]:
            if not isinstance(table.get(part), dict):
                table[part] = {}
            table = table[part]
        old = table.get(path[-1])
        if isinstance(old, list) and isinstance(value, list):
            value = old + value
        elif old is not None and old != value:
            self.twice(f"{name}.{key}", old, value)
        table[path[-1]] = value

    def put(self, flag: Flag, name: str, value: Any) -> None:
        """Keep the value of a flag; one that is given twice with different values is named."""
        if flag.dashes and isinstance(value, dict):
            value = {key.replace("-", "_"): one for key, one in value.items()}
        for key in value if flag.keys and isinstance(value, dict) else ():
            if key not in flag.keys:
                self.odd(flag, f"{name}.{key}", key)
        if flag.kinds and isinstance(value, dict):
            value = {key: self.fitted(flag, name, key, one) for key, one in value.items()}
        value = self.fitted(flag, name, "", value)
        if flag.dest in self.launches.unread:
            self.say(
                "CLI662",
                name,
                expected="all flags in the line",
                observed=f"flags may stand in {visible(value, 80)}, which is not read",
            )
            self.flags["unread"] = [*self.flags.get("unread", ()), str(value)]
        if flag.many:
            held = self.flags.get(flag.dest)
            self.flags[flag.dest] = [
                *(held if isinstance(held, list) else []),
                *(value if isinstance(value, list) else [value]),
            ]
            return
        if flag.type == "pairs" and flag.dest in self.given:
            value = _merged(self.given[flag.dest][1], value)
        elif flag.joins and flag.dest in self.given:
            value = _joined(self.given[flag.dest][1], value, flag.joins)
        elif flag.dest in self.given and self.given[flag.dest][1] != value:
            self.twice(name, self.given[flag.dest][1], value)
        self.given[flag.dest] = (name, value)
        self.flags[flag.dest] = value
        if type(value) is not bool and value in flag.unset:
            del self.flags[flag.dest]

    def fitted(self, flag: Flag, name: str, key: str, value: Any) -> Any:
        """Return what a flag, or a key of its table, holds; what it may not hold is noted, and stays."""
        if not (said := flag.kinds.get(key, "") if key else flag.held) or isinstance(value, Unknown):
            return value
        kind, *limits = said.split()
        if value is None and kind.endswith("?"):
            return value
        kind = kind.removesuffix("?")
        try:
            if kind in _WORDS:
                if not _one_of(kind, value, limits):
                    raise ValueError(said)
            else:
                value = lax(kind, value)
                if not all(_LIMITS[limit.rstrip(_DIGITS)](value, float(limit.lstrip("<>="))) for limit in limits):
                    raise ValueError(said)
        except (ValueError, OverflowError):
            wanted = f"one of {', '.join(limits)}" if kind in _WORDS else " ".join([_KINDS[kind], *limits])
            self.say("CLI658", f"{name}.{key}" if key else name, wanted, visible(value, 80))
            if flag.type == "units":  # its table is typed when flags are read
                self.refused.append(f"argument {visible(name, 80)}")
                return value
            shown = f"{key or name} must be {wanted}, not {visible(json.dumps(value), 60)}"
            self.flags["unfit"] = f"{self.flags['unfit']}; {shown}" if "unfit" in self.flags else shown
            return value
        if kind == "ranges":
            self.flags.setdefault("ranges", {})[key] = columns(value)
        return value

    def odd(self, flag: Flag, name: str, key: str) -> None:
        """Note a key that a table may not have; one that is read as it is typed is refused at once."""
        seen = visible(key, 80) + nearest(key[:100], flag.keys)
        self.say("CLI657", name, f"one of {', '.join(flag.keys)}", seen)
        if flag.type == "units":
            self.refused.append(f"argument {visible(name, 80)}")
        else:
            self.flags["odd"] = f"{self.flags['odd']}, {visible(key, 80)}" if "odd" in self.flags else visible(key, 80)

    def say(self, code: str, name: str, expected: str, observed: str, note: str = "") -> None:
        """Add a finding about a flag."""
        self.found.append(
            finding(code, f"launch: {visible(name, 80)}", expected=expected, observed=observed, note=note)
        )

    def twice(self, name: str, old: Any, new: Any) -> None:
        """Say that a flag is given twice."""
        self.say(
            "CLI660",
            name,
            expected="one value",
            observed=f"{visible(old, 60)}, then {visible(new, 60)}: the last counts",
        )

    def holes(self, name: str, word: Word) -> None:
        """Say that a value is not known, because a shell would fill it in."""
        if word.holes:
            self.say(
                "CLI662",
                name,
                expected="the value itself",
                observed=f"{visible(', '.join(word.holes))} at {_place(self.line, word.at[0])}",
            )

    def unknown(self, word: Word, several: Sequence[str] = ()) -> None:
        """Note a word that the engine does not know; a variable may hold any flag, and is not known here."""
        if word.holes and word.text.startswith(word.holes[0]):
            self.holes(word.text, word)
            return
        name = re.sub(r"^[–—]+", "--", word.text).partition("=")[0]
        close = f" (may be {', '.join(several[:6])})" if several else self.launches.close(name)
        where = f" at {_place(self.line, word.at[0])}" if self.line else ""
        what = "a flag that begins so" if several else f"a flag of {self.launches.engine} {self.launches.version}"
        self.say("CLI657", word.text, expected=what, observed=f"{visible(word.text, 80)}{where}{close}")
        self.refused.append(f"unrecognized arguments: {visible(word.text, 80)}")

    def bad(self, name: str, word: Word, why: _Bad) -> None:
        """Note a value that the engine does not take."""
        at = word.at[min(why.at, len(word.at) - 1)] if word.at else 0
        where = f" at {_place(self.line, at)}" if self.line else f" at its character {why.at + 1}"
        note = ""
        if (
            why.code == "CLI659"
            and word.text[:1] == "{"
            and self.line[word.at[0] :][:1] == "{"
            and (word.at[0] == 0 or self.line[word.at[0] - 1] not in "\"'")
        ):
            note = "outside quotes a shell takes the \" away: write it in single quotes, '{…}'"
        elif re.search("[“”‘’„]", word.text):
            note = "it holds typographic quotes: write plain ones"
        self.say(why.code, name, expected=why.expected, observed=f"{visible(word.text, 80)!r}{where}", note=note)
        self.refused.append(f"argument {visible(name)}: {visible(word.text, 80)}")


def _joined(first: Any, then: Any, alone: str) -> Any:
    """Return two lists of words as one; a list that has the word that counts alone adds nothing."""
    if not isinstance(first, str) or not isinstance(then, str):
        return then if isinstance(then, Unknown) else first
    return ",".join(one for one in (first, then) if alone not in one.split(",")) or alone


def _value_or_hole(word: Word, value: Any) -> Any:
    return Unknown(f"{', '.join(word.holes)} in the launch is not known here") if word.holes else value


def typed(flag: Flag, text: str) -> Any:
    """Return a value as a flag types it; raises _Bad for a text that the engine does not take."""
    word = text.strip().lower() if flag.type == "size" else text
    if word in flag.words:
        return flag.words[word]
    if flag.null and text in ("", "None"):
        return None
    value: Any = text
    try:
        match flag.type:
            case "int":
                value = int(text)
            case "float":
                value = float(text)
            case "stoi":  # as C++ reads it: what stands behind the number does not count
                value = _stoi(text, 32)
            case "stoul":
                value = _stoi(text, 65)
            case "stof":
                value = _stof(text)
            case "size":
                value = _size(text)
            case "json":
                value = json.loads(text)
            case "units":  # JSON whose numbers may have a unit
                value = json.loads(_UNIT.sub(lambda m: m[1] or str(_size(m[2])), text))
                if not isinstance(value, dict):
                    raise _Bad("a JSON object")
            case "loose" if re.fullmatch(r"\s*\{.*\}\s*", text, re.DOTALL):  # a JSON object, or any text
                value = json.loads(text)
            case "words":  # of the choices, with commas between them
                odd = [word for word in text.split(",") if word not in flag.choices]
                if odd:
                    close = _close(odd[0], flag.choices)
                    raise _Bad(f"some of {', '.join(map(str, flag.choices))}{close}", text.find(odd[0]))
                return text
            case "falling":  # numbers with commas between them; as text where one is above the one before it, or none
                values = [_stod(part.strip()) for part in text.split(",")]
                fine = all(map(math.isfinite, values)) and values == sorted(values, reverse=True)
                return values if fine else text
            case "pairs":
                value = _paired(text)
    except json.JSONDecodeError as error:
        raise _Bad(f"JSON: {error.msg}", error.pos, "CLI659") from None
    except (ValueError, OverflowError, RecursionError):
        words = f" or {', '.join(flag.words)}" if flag.words else ""
        raise _Bad(f"{_TYPES.get(flag.type, flag.type)}{words}") from None
    if flag.form and not re.fullmatch(flag.form, text, re.ASCII | re.DOTALL):
        raise _Bad(flag.says)
    if type(value) in (int, float) and value in flag.never:
        raise _Bad(f"a number other than {value:g}")
    if flag.choices and value not in flag.choices and str(value) not in map(str, flag.choices):
        close = _close(text, flag.choices)
        raise _Bad(f"one of {', '.join(map(str, flag.choices))}{close}")
    if type(value) in (int, float) and not (flag.low is None or value >= flag.low):
        raise _Bad(f"a number of at least {flag.low}")
    if type(value) in (int, float) and not (flag.high is None or value <= flag.high):
        raise _Bad(f"a number of at most {flag.high}")
    return value


def _one_of(kind: str, value: Any, words: Sequence[str]) -> bool:
    """Tell whether a value is one of some words: as it is written, or in any case; a level may be its number."""
    if kind == "level" and isinstance(value, (int, float)):
        return value in range(len(words))
    return isinstance(value, str) and _WORDS[kind](value) in words


def _close(word: str, choices: Sequence[Any]) -> str:
    """Return " (did you mean X?)" for the choice of which a word is the first or the last part, or the nearest."""
    names = list(map(str, choices))
    part = next((name for name in names if name.startswith(f"{word}-") or name.endswith(f"-{word}")), "")
    return f" (did you mean {part!r}?)" if part and word else nearest(word[:100], names, 0.6)


def lax(kind: str, value: Any) -> Any:
    """Return a value as pydantic types it where it is not strict: digits are a number; raises ValueError."""
    match kind:
        case "int" if isinstance(value, str):
            return int(re.sub(r"\.0*$", "", value.strip()))
        case "int" if isinstance(value, (int, float)) and value == int(value):
            return int(value)
        case "float" if isinstance(value, (int, float, str)):
            return float(value)
        case "bool" if isinstance(value, str) and value.lower() in _TRUTHS:
            return _TRUTHS[value.lower()]
        case "bool" if isinstance(value, (int, float)) and value in (0, 1):
            return bool(value)
        case "text" if isinstance(value, str):
            return value
        case "table" if isinstance(value, dict):
            return value
        case "floats" if isinstance(value, list):
            return [lax("float", one) for one in value]
        case "ints" if isinstance(value, list):
            return [lax("int", one) for one in value]
        case "texts" if isinstance(value, list):
            return [lax("text", one) for one in value]
        case "list" if isinstance(value, list):
            return value
        case "ranges" if isinstance(value, list) and all(isinstance(row, list) and len(row) == 3 for row in value):
            return [[lax("int", one) for one in row] for row in value]
    raise ValueError(f"{kind}: {value!r}")


def columns(rows: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return rows of [first, last, value], sorted, as columns; and what is wrong with the ranges, if something is."""
    rows = sorted(rows, key=lambda row: row[0])
    firsts, lasts, values = ([row[n] for row in rows] for n in range(3))
    faults = {
        "a range begins or ends below 1": min([*firsts, *lasts], default=1) < 1,
        "a range begins behind its end": any(first > last for first, last, _ in rows),
        "a value is negative": min(values, default=0) < 0,
        "ranges overlap": any(first <= last for first, last in zip(firsts[1:], lasts, strict=False)),
        "the first range does not begin at 1": bool(rows) and firsts[0] != 1,
    }
    wrong = next((what for what, is_so in faults.items() if is_so), None)
    return {"firsts": firsts, "lasts": lasts, "values": values, **({"fault": wrong} if wrong else {})}


_TRUTHS = dict.fromkeys(("1", "on", "t", "true", "y", "yes"), True) | dict.fromkeys(
    ("0", "off", "f", "false", "n", "no"), False
)
_WORDS: dict[str, Callable[[str], str]] = {  # kinds that are one of some words -> how what is written is read
    "word": str,
    "name": str.lower,
    "level": str.lower,
    "spelling": lambda text: text.lower().replace("-", "_"),
}
_LIMITS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_DIGITS = "-.0123456789"
_KINDS = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "text": "a text",
    "table": "a JSON object",
    "floats": "a list of numbers",
    "ints": "a list of integers",
    "texts": "a list of texts",
    "list": "a list",
    "ranges": "a list of [first, last, value], all integers",
}
_TYPES = {
    "int": "an integer",
    "float": "a number",
    "stoi": "an integer",
    "stoul": "an integer",
    "stof": "a number",
    "falling": "numbers with commas between them",
    "size": "an integer, such as 4096, 4k or 4K",
    "json": "JSON",
    "units": "JSON",
}
_UNIT = re.compile(r'("(?:[^"\\]|\\.)*")|\b(\d+(?:\.\d+)?[kKmMgGtT])\b', re.ASCII)
_UNITS = {unit: (1000 if unit.islower() else 1024) ** (n // 2 + 1) for n, unit in enumerate("kKmMgGtT")}


_STOI = re.compile(r"\s*[+-]?\d+", re.ASCII)
_STOF = re.compile(
    r"\s*([+-]?)(0x(?:[\da-f]+\.?[\da-f]*|\.[\da-f]+)(?:p[+-]?\d+)?|inf|nan|(?:\d+\.?\d*|\.\d+)"
    r"(?:e[+-]?\d+)?)",
    re.ASCII | re.I,
)


_PAIR = re.compile(r"([^=]*)=(?:(int|float|str):(.*)|bool:(true|false))", re.ASCII | re.DOTALL)
_LEADING = {
    "int": re.compile(r"\s*[+-]?\d+", re.ASCII),
    "float": re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.I),
}


def _paired(text: str) -> dict[str, Any]:
    """Return KEY=TYPE:VALUE, with commas between them, as tables in each other, by the dots of the keys."""
    whole: dict[str, Any] = {}
    for key, kind, said, truth in filter(None, (m and m.groups() for m in map(_PAIR.fullmatch, text.split(",")))):
        *above, last = key.split(".")
        table = whole
        for name in above:
            held = table.get(name)
            table[name] = table = held if isinstance(held, dict) else {}
        if kind in _LEADING:  # as C reads it: a text with no number in front is 0
            number = _LEADING[kind].match(said)
            table[last] = (int if kind == "int" else float)(number[0] if number else 0)
        else:
            table[last] = said if kind else truth == "true"
    return whole


def _merged(first: Any, then: Any) -> Any:
    """Return two tables as one; what the second says counts."""
    if not isinstance(first, dict) or not isinstance(then, dict):
        return then
    return first | {key: _merged(first.get(key), value) for key, value in then.items()}


def _stoi(text: str, bits: int) -> int:
    """Return the number that a text begins with, where so many bits hold it; raises ValueError, OverflowError."""
    value = int((_STOI.match(text) or [""])[0])
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise OverflowError
    return value


def _stof(text: str) -> float | None:
    """Return the number that a text begins with, where 32 bits hold it; raises ValueError, OverflowError.

    What is beyond all numbers of a config stands as one that is, and what is no number is none.
    """
    found = _STOF.match(text)
    if found is None:
        raise ValueError
    sign, number = -1 if found[1] == "-" else 1, found[2]
    value = float.fromhex(number) if number[:2] in ("0x", "0X") else float(number)
    if not (value == 0 or 2.0**-126 <= value < 2.0**128) and math.isfinite(value):
        raise OverflowError
    if math.isinf(value) and number[:1] in "0123456789.":
        raise OverflowError
    return None if math.isnan(value) else sign * min(value, 2.0**62)


def _stod(text: str) -> float:
    """Return the number that the whole of a text is; raises ValueError."""
    found = _STOF.fullmatch(text)
    if found is None:
        raise ValueError
    return (-1 if found[1] == "-" else 1) * (float.fromhex(found[2]) if "x" in found[2].lower() else float(found[2]))


def _size(text: str) -> int:
    """Return an integer that may be written with a unit: 1k is 1000, 1K is 1024; raises ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT])", text.strip(), re.ASCII)
    if not found:
        return int(text)
    many = int(_UNITS[found[2]])
    return int(float(found[1]) * many) if found[2].islower() else int(found[1]) * many


def _yaml(name: str) -> tuple[dict[str, Any] | None, str]:
    """Return what a YAML file of this machine holds, or none, and what is wrong with it where that can be told."""
    import yaml  # type: ignore[import-untyped]  # noqa: PLC0415 (only few launches name one)

    path = Path(name)
    if path.suffix.lower() not in (".yaml", ".yml"):
        return None, "suffix"
    try:
        if not path.is_file() or path.stat().st_size > MAX_LINE:
            return None, ""
        held = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(held, dict):
            return ({}, "empty") if held is None else (None, "no table")
        return {str(key): json.loads(json.dumps(value)) for key, value in held.items()}, ""
    except yaml.YAMLError as error:
        return None, type(error).__name__
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None, ""


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _loose(text: str) -> Any:
    """Return a value of a table that is given key by key: JSON, else a number with a unit, else the text."""
    value = _json(text)
    if value is text or isinstance(value, str):
        try:
            return _size(text) if value is text else value
        except (ValueError, OverflowError):
            return text
    return value


# --- contradictions with what else is asked -----------------------------------------------------------------------


def contradictions(made: Launch, engines: Iterable[str] = (), **sides: tuple[str, Iterable[str]]) -> Iterator[Finding]:
    """Say where a line and a question speak of different things.

    engines are the ids that are asked about, all of them for none; a side, drafter or target, is the model that is
    asked about with the other names that it goes by.
    """
    asked = list(engines)
    if asked and made.engine not in asked:
        yield finding("CLI661", "launch: engine", expected=f"a launch of {' or '.join(asked)}", observed=made.engine)
    for role, (model, names) in sides.items():
        typed = getattr(made, role)
        if role == "target" and not made.drafter and typed and same(typed, sides.get("drafter", ("", ()))[0]):
            continue  # the drafter alone: whether it brings its target is for the engine's rules
        if model and typed and _differ(model, typed, names):
            yield finding("CLI661", f"launch: {role}", expected=visible(model), observed=visible(typed))


def same(one: str, other: str) -> bool:
    """Tell whether two names are of the same model, as far as they say: a commit beside one is passed over."""
    one, other = (text.partition("@")[0].rstrip("/") for text in (one, other))
    paths = one.startswith((".", "/", "~")) or other.startswith((".", "/", "~"))
    return bool(one) and (one == other or (paths and bool(other) and _path(one) == _path(other)))


def _path(name: str) -> str:
    return os.path.abspath(os.path.expanduser(name))


def carried(flags: Mapping[str, Any], engine: str, names: Iterable[str], library: Library) -> str:
    """Return the model that flags serve where it goes by one of these names, a drafter's, and none drafts for it."""
    launches = library.get("launch", engine)[0]
    if launches is None or _first(flags, launches.drafter):
        return ""
    typed = _first(flags, launches.target)
    return typed if any(same(typed, name) for name in names) else ""


_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def _differ(asked: str, typed: str, names: Iterable[str]) -> bool:
    """Tell whether two models differ; a path and a name may be the same, on the machine that the line is for."""
    asked, typed = (text.partition("@")[0].rstrip("/") for text in (asked, typed))
    if _REPO.fullmatch(asked) and _REPO.fullmatch(typed):
        return typed.lower() not in {asked.lower(), *(name.lower() for name in names)}
    if asked.startswith((".", "/")) and typed.startswith((".", "/")):
        return os.path.abspath(asked) != os.path.abspath(typed)
    return False
