"""Which engine at which version is meant: NAME, NAME@VERSION, NAME@RANGE, NAME@installed, all, or the tag of an image.

A version that was read is exact. Any other stands beside the nearest that was read, and says so; one that lies outside
what was read, further than the next release under development, is not known at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from draftproof.findings import Finding, finding, nearest, visible
from draftproof.library import Library

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

ALL = "all"
INSTALLED = "installed"
_MOVING = {"nightly", "main", "master", "dev", "head", "latest", "stable"}  # words that name another version every day
_BUILD = r"(cu|cuda|rocm|gfx|sm)[\d.]*|cpu|gpu|xpu|npu|tpu|musa|x86_64|amd64|arm64|aarch64|runtime|server|full|light"
_COMMIT = r"g[0-9a-f]{6,}|d\d{8}|dirty"  # what a local label holds where the build is not the release
_EXAMPLES = "0.33, v0.33.0, >=0.30,<0.34, 0.34.0rc1, 0.33.1.dev12+gabc1234, nightly, installed, or the tag of an image"


class Asked(NamedTuple):
    """Name an engine and the version that was read which answers for it."""

    engine: str
    version: str
    asked: str = ""  # the version that was asked for, where it was not read
    near: bool = True  # the one that was read is near enough to stand in for it


def resolve(specs: Sequence[str], library: Library) -> tuple[list[Asked], list[Finding]]:
    """Return the engines at the versions that specs name, each once, and what is wrong with specs, or not exact."""
    key = ("resolve", *specs)
    asked, found = library.kept.get(key) or _resolved(specs, library)
    if not any(INSTALLED in spec.lower() for spec in specs):  # which may be another later
        library.kept[key] = asked, found
    return list(asked), list(found)


def _resolved(specs: Sequence[str], library: Library) -> tuple[list[Asked], list[Finding]]:
    asked: dict[Asked, None] = {}
    found: list[Finding] = []
    for spec in specs:
        for name, version in _named(spec, library, found):
            profile, wrong = library.get("profile", name)
            found += wrong
            if profile is not None:
                made = _versions(name, version, profile.versions, spec, library, found)
                asked |= dict.fromkeys(_whole(one, profile.versions) for one in made)
    return list(asked), list(dict.fromkeys(found))


def _whole(one: Asked, read: Sequence[Any]) -> Asked:
    """Return what answers for a version; for one that was read in part the nearest whole one, beside its name."""
    part = {v.is_ for v in read if v.basis == "part"}
    if one.version not in part:
        return one
    whole = [(parsed, v) for v in read if v.is_ not in part and (parsed := _parsed(v.is_)) is not None]
    at = _parsed(one.version)
    near = _beside(whole, at.version)[1].is_ if whole and at is not None else read[0].is_
    return one._replace(version=near, asked=one.asked or one.version)


def _named(spec: str, library: Library, found: list[Finding]) -> Iterator[tuple[str, str]]:
    """Yield the profiles that a spec names, each with the version as it is written there."""
    known = list(library.files("profile"))
    name, at, version = spec.strip().partition("@")
    if "/" in name or (":" in name and not at):  # an image; a digest behind its tag is no version
        image, _, tag = name.rpartition(":") if ":" in name.rpartition("/")[2] else (name, "", "")
        name, version, at = _of_image(image, library), tag or "latest", "@"
    engine = {one.lower(): one for one in (*known, ALL)}.get(name.strip().lower())
    if engine is None or (engine == ALL and at):
        seen = (visible(spec) or "nothing") + ("" if engine else nearest(name.lower(), (*known, ALL)))
        expected = f"{', '.join(known)} or {ALL}; behind a name, @ and a version: {_EXAMPLES}"
        found.append(finding("CLI651", "engine", expected=expected, observed=seen))
    elif at and not version.strip():
        found.append(_unread(spec, engine, library))
    else:
        yield from ((one, version.strip()) for one in (known if engine == ALL else (engine,)))


def _of_image(image: str, library: Library) -> str:
    """Return the engine that an image holds, by the names that its launches are known by, or the image itself."""
    for name in library.files("launch"):
        launches, _ = library.get("launch", name)
        if launches is not None and any(f"/{image}".endswith(f"/{one}") for one in launches.images):
            return name
    return image


def _unread(spec: str, engine: str, library: Library, read: Iterable[str] = ()) -> Finding:
    profile, _ = library.get("profile", engine)
    words = list(read) or [v.is_ for v in profile.versions] if profile else []
    near = nearest(spec.partition("@")[2].strip().lower(), (*words, *_MOVING, INSTALLED), 0.6)
    expected = f"{engine}@ and {_EXAMPLES}; read were {', '.join(words)}"
    return finding("CLI652", f"engine {engine}", expected=expected, observed=visible(spec) + near)


def _versions(
    name: str, text: str, read: Sequence[Any], spec: str, library: Library, found: list[Finding]
) -> Iterator[Asked]:
    """Yield what answers for a version as it is written; read are the versions of the profile, the default first."""
    if not text or text == read[0].is_:
        yield Asked(name, read[0].is_)
        return
    if text.lower() == INSTALLED:
        here = _installed(name, library)
        if not here:
            packages = ", ".join(_packages(name, library)) or name
            found.append(finding("CLI653", f"engine {name}", expected=f"one of the packages {packages}",
                                 observed="none of them is installed beside this interpreter"))  # fmt: skip
            return
        text = here
    known = [(one, v) for v in read for word in (v.is_, *v.also) if (one := _parsed(word)) is not None]
    if re.match(r"\s*[<>=!~]", text):
        wanted = _range(text)
        if wanted is None or _empty(wanted):
            found.append(_unread(spec, name, library))
            return
        yield from _within(name, text, wanted, known, found)
        return
    if set(re.split(r"[-_]", text.lower())) & _MOVING and not re.search(r"\d\.\d", text):
        yield Asked(name, max(known, key=lambda row: row[0].version)[1].is_, text)
        return
    one = _parsed(text)
    if one is None or text.startswith(("-", "_")):
        found.append(_unread(spec, name, library))
        return
    yield _nearest(name, text, one, known)


class _Parsed(NamedTuple):
    """Hold a version in its scheme: b for builds that are counted, nothing for releases."""

    scheme: str
    version: Version
    release: tuple[int, ...]
    whole: bool  # nothing that may change what it does stands behind the release


def _parsed(text: str) -> _Parsed | None:
    """Return a version, or that of the tag of an image, or None."""
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 (only where a version is asked for)

    parts = re.split(r"[-_]", text.strip().lower()) if len(text) < 200 else []
    for length in range(len(parts), 0, -1):
        for start in range(len(parts) - length + 1):
            word = "-".join(parts[start : start + length])
            scheme = "b" if re.fullmatch(r"b\d+", word) else ""
            try:
                version = Version(re.sub(r"^[bv](?=\d)", "", word))
            except InvalidVersion:
                continue
            rest = (*parts[:start], *parts[start + length :])
            local = re.split(r"[.]", version.local or "")
            whole = all(re.fullmatch(_BUILD, part) for part in rest) and not any(
                re.fullmatch(_COMMIT, p) for p in local
            )
            return _Parsed(scheme, version, version.release, whole)
    return None


def _nearest(name: str, text: str, one: _Parsed, known: Sequence[tuple[_Parsed, Any]]) -> Asked:
    """Return the version that was read which is the same, or else the nearest of the same scheme."""
    plain = one.whole and not (one.version.is_prerelease or one.version.is_postrelease)
    same = [row for row in known if plain and row[0].scheme == one.scheme and _starts(row[0].release, one.release)]
    if same:
        return Asked(name, max(same, key=lambda row: row[0].version)[1].is_)
    exact = [row for row in known if one.whole and row[0].scheme == one.scheme and row[0].version == one.version]
    if exact:
        return Asked(name, exact[0][1].is_)
    alike = [row for row in known if row[0].scheme == one.scheme]
    if not alike:
        return Asked(name, known[0][1].is_, text, False)
    near = _beside(alike, one.version)
    oldest, newest = (f(row[0].version for row in alike) for f in (min, max))
    inside = oldest.release <= one.version.release and (
        one.version <= newest or one.version.base_version in _next(newest)
    )
    inside |= any(one.version.base_version == row[0].version.base_version for row in alike)
    inside &= one.version <= newest or one.version.is_prerelease or one.release == newest.release
    return Asked(name, near[1].is_, text, inside)


def _beside(rows: Sequence[tuple[_Parsed, Any]], version: Version) -> tuple[_Parsed, Any]:
    """Return the nearest of the last version before and the first after one."""
    before = [row for row in rows if row[0].version <= version]
    after = [row for row in rows if row[0].version > version]
    both = [*([max(before, key=lambda row: row[0].version)] if before else []),
            *([min(after, key=lambda row: row[0].version)] if after else [])]  # fmt: skip
    return min(both, key=lambda row: _distance(row[0].release, version.release))


def _starts(release: tuple[int, ...], start: tuple[int, ...]) -> bool:
    """Tell whether a release is one that a shorter number means: 0.33 is any of 0.33.x, 0.33.0.0 is 0.33.0."""
    padded = (*release, *(0,) * len(start))[: len(start)]
    return padded == start


def _distance(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(abs(a - b) for a, b in zip_longest(one, other, fillvalue=0))


def _next(version: Version) -> set[str]:
    """Return the releases that can follow: 0.33.1, 0.34.0 and 1.0.0 follow 0.33.0."""
    release = version.release
    after = [(*release[:n], release[n] + 1, *(0,) * (len(release) - n - 1)) for n in range(len(release))]
    return {".".join(map(str, one)) for one in after} | {".".join(map(str, one)).removesuffix(".0") for one in after}


def _range(text: str) -> SpecifierSet | None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # noqa: PLC0415

    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return None


def _empty(wanted: SpecifierSet) -> bool:
    """Tell whether no version lies in a range; if one does, one of its ends does, or what is just beside an end."""
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415

    beside = ["0", "99999"]
    for one in wanted:
        try:
            end = Version(one.version.removesuffix(".*")).base_version
        except InvalidVersion:
            return False  # an arbitrary equality
        *first, last = end.split(".")
        beside += [end, f"{end}.1", ".".join([*first, str(max(int(last) - 1, 0)), "99999"])]
    return not any(wanted.contains(one, prereleases=True) for one in beside) and len(wanted) > 1


def _within(
    name: str, text: str, wanted: SpecifierSet, known: Sequence[tuple[_Parsed, Any]], found: list[Finding]
) -> Iterator[Asked]:
    """Yield the versions of a range that were read, or the nearest to it; say how far the range goes beyond them."""
    plain = sorted((row for row in known if not row[0].scheme), key=lambda row: row[0].version, reverse=True)
    inside = [v.is_ for one, v in plain if wanted.contains(one.version, prereleases=True)]
    low, high = _ends(wanted)
    if not inside:
        near = _beside(plain, high or low or plain[0][0].version)
        yield Asked(name, near[1].is_, text, False)
        return
    yield from (Asked(name, version) for version in dict.fromkeys(inside))
    oldest, newest = plain[-1][0].version, plain[0][0].version
    beyond = low is None or low < oldest or high is None or (high > newest and high.base_version not in _next(newest))
    found.append(
        finding("CLI654", f"engine {name}", level="unknown" if beyond else "info", expected=f"every version of {text}",
                observed=f"of it {', '.join(inside)} {'were' if len(inside) > 1 else 'was'} read"
                + (", and it goes beyond what was read" if beyond else ""))
    )  # fmt: skip


def _ends(wanted: SpecifierSet) -> tuple[Version | None, Version | None]:
    """Return the lowest and the highest version that a range can hold, None where it is open."""
    from packaging.version import Version  # noqa: PLC0415

    low: list[Version] = []
    high: list[Version] = []
    for one in wanted:
        number = Version(one.version.removesuffix(".*")) if one.operator != "===" else None
        if number is None or one.operator == "!=":
            continue
        after = (*number.release[:-1], number.release[-1] + 1)
        if one.operator == "~=":
            after = (*number.release[:-2], number.release[-2] + 1)
        above = Version(".".join(map(str, after)))
        if one.operator in (">=", ">", "~=", "=="):
            low.append(number)
        if one.operator in ("<", "<="):
            high.append(number)
        elif one.operator in ("~=", "=="):
            high.append(above if one.operator == "~=" or one.version.endswith(".*") else number)
    return max(low, default=None), min(high, default=None)


def _packages(name: str, library: Library) -> Sequence[str]:
    launches, _ = library.get("launch", name) if name in library.files("launch") else (None, ())
    return launches.packages if launches is not None else (name,)


def _installed(name: str, library: Library) -> str:
    """Return the version of the engine's package beside this interpreter, or ""."""
    from importlib import metadata  # noqa: PLC0415 (slow, and few ask for it)

    for package in _packages(name, library):
        try:
            return metadata.version(package)
        except (metadata.PackageNotFoundError, ValueError, TypeError, KeyError):
            continue
    return ""
