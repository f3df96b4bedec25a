"""Every value of a TOML text has the line where it starts, in whatever layout it is written."""

from __future__ import annotations

import json
import random
import tomllib
from typing import Any

import pytest

from draftproof.language import MAX_NESTING, MAX_PARTS, MAX_VALUES, Where, scan

KEYS = ("a", "b-c", "d.e", 'q"u', "sp ace", "#", "[x]", "ü", "", "b\\n")
TEXTS = ("x", "y = 1", "[t]", "# no", 'q"', "it's", "a,b", "{", "}]", "é", "two\nlines = 1\n[z]\n", "'''", '"""', "\\")


class Writer:
    """Write a document as TOML in random layouts, and note the line of every path."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.out: list[str] = []
        self.lines: dict[Where, int] = {(): 1}

    @property
    def line(self) -> int:
        return 1 + sum(part.count("\n") for part in self.out)

    def document(self) -> dict[str, Any]:
        data = {key: self.value(3) for key in self.random.sample(KEYS, self.random.randint(1, 5))}
        self.table(data, (), ())
        return data

    def value(self, depth: int) -> Any:
        pick = self.random.randint(0, 6 if depth else 3)
        if pick <= 2:
            return self.random.choice(TEXTS)
        if pick == 3:
            return self.random.choice((7, -1, 2.5, True, 1e6))
        if pick == 4:
            return {key: self.value(depth - 1) for key in self.random.sample(KEYS, self.random.randint(0, 3))}
        if pick == 5:
            return [{key: self.value(depth - 1) for key in KEYS[:2]} for _ in range(self.random.randint(1, 3))]
        return [self.value(depth - 1) for _ in range(self.random.randint(0, 4))]

    def noise(self) -> None:
        self.out.append(self.random.choice(("", "", "\n", "# [a] = { 'x\n", "\t \n")))

    def key(self, key: str) -> str:
        plain = key.isascii() and key.replace("-", "").isalnum()
        shapes = [json.dumps(key), json.dumps(key, ensure_ascii=False)]
        shapes += [key] * 3 if plain else []
        shapes += [f"'{key}'"] if "'" not in key and "\n" not in key else []
        return self.random.choice(shapes)

    def dotted(self, keys: Where) -> str:
        return self.random.choice((".", " . ")).join(self.key(str(key)) for key in keys)

    def text(self, text: str) -> str:
        shapes = [json.dumps(text), '"""' + json.dumps(text)[1:-1].replace("\\n", "\n") + '"""']
        shapes.append('"""\\\n   ' + json.dumps(text)[1:-1].replace("\\n", "\\n") + '"""')
        if "'" not in text:
            shapes.append("'''" + text + "'''")
            shapes += [f"'{text}'"] if "\n" not in text else []
        return self.random.choice([s for s in shapes if tomllib.loads(f"k = {s}")["k"] == text])

    def inline(self, value: Any, path: Where) -> None:
        self.lines[path] = self.line
        if isinstance(value, dict):
            self.out.append("{ ")
            for n, (key, inner) in enumerate(value.items()):
                self.out.append(", " if n else "")
                self.out.append(f"{self.key(key)} = ")
                self.inline(inner, (*path, key))
            self.out.append(" }")
        elif isinstance(value, list):
            self.out.append("[")
            for n, inner in enumerate(value):
                self.noise()
                self.inline(inner, (*path, n))
                self.noise()
                self.out.append("," if n < len(value) - 1 or self.random.random() < 0.5 else "")
            self.noise()
            self.out.append("]")
        elif isinstance(value, str):
            self.out.append(self.text(value))
        else:
            self.out.append(json.dumps(value))

    def table(self, data: dict[str, Any], path: Where, header: Where) -> None:
        tables = {}
        for key, value in data.items():
            rows = isinstance(value, list) and value and all(isinstance(v, dict) for v in value)
            if (isinstance(value, dict) or rows) and self.random.random() < 0.6:
                tables[key] = value
                continue
            self.noise()
            if isinstance(value, dict) and value and self.random.random() < 0.5:  # a.b = 1
                self.lines[(*path, key)] = self.line
                for inner, sub in value.items():
                    self.out.append(f"{self.dotted((key, inner))} = ")
                    self.inline(sub, (*path, key, inner))
                    self.out.append(self.random.choice(("\n", " # it's {\n")))
                continue
            self.out.append(f"{self.key(key)}{self.random.choice(('=', ' = '))}")
            self.inline(value, (*path, key))
            self.out.append("\n")
        for key, value in tables.items():
            self.noise()
            for n, row in enumerate(value if isinstance(value, list) else [value]):
                self.lines.setdefault((*path, key), self.line)
                where = (*path, key)
                if isinstance(value, list):
                    where = (*where, n)
                    self.lines[where] = self.line
                name = self.dotted((*header, key))
                self.out.append(f"[[ {name} ]]\n" if isinstance(value, list) else f"[{name}] # ]\n")
                self.table(row, where, (*header, key))


@pytest.mark.parametrize("seed", range(150))
def test_every_path_has_the_line_where_its_value_starts(seed: int) -> None:
    writer = Writer(seed)
    data = writer.document()
    text = "".join(writer.out)
    assert tomllib.loads(text) == data, text
    assert scan(text) == (writer.lines, ""), text


def test_lines_of_headers_rows_and_strings_of_four_kinds() -> None:
    text = (
        'a = "x # y"  # b = 1\n'
        "b = '''one\n"
        "c = 2\n"
        "'''\n"
        'd = """\n'
        "[no]\n"
        '"""\n'
        "e = [1, 2,\n"
        "  3, [ 4,\n"
        "  5] ]\n"
        "[[f]]\n"
        "g.h = { i = 1, j = [\n"
        "1] }\n"
        "[f.k]\n"
        "l = 1\n"
        "[[f]]\n"
        '"g.h" = 1979-05-27 07:32:00\n'
        "m = 1.5\n"
    )
    expected: dict[Where, int] = {
        (): 1, ("a",): 1, ("b",): 2, ("d",): 5, ("e",): 8, ("e", 0): 8, ("e", 1): 8, ("e", 2): 9, ("e", 3): 9,
        ("e", 3, 0): 9, ("e", 3, 1): 10, ("f",): 11, ("f", 0): 11, ("f", 0, "g"): 12, ("f", 0, "g", "h"): 12,
        ("f", 0, "g", "h", "i"): 12, ("f", 0, "g", "h", "j"): 12, ("f", 0, "g", "h", "j", 0): 13, ("f", 0, "k"): 14,
        ("f", 0, "k", "l"): 15, ("f", 1): 16, ("f", 1, "g.h"): 17, ("f", 1, "m"): 18,
    }  # fmt: skip
    assert scan(text) == (expected, "")


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("\na = " + "[" * (MAX_NESTING + 1), f"at most {MAX_NESTING} nested brackets"),
        ("\na = " + "{a=" * 100_000, f"at most {MAX_NESTING} nested brackets"),
        ("\n" + "a." * 100_000 + "b = 1", f"at most {MAX_PARTS} parts in a key"),
        ("\n[" + "a." * 100_000 + "b]", f"at most {MAX_PARTS} parts in a key"),
        ("\na = [" + "1," * (MAX_VALUES + 9) + "]", f"at most {MAX_VALUES} values"),
        ("\na = " + "9" * 9000, "at most 1000 characters without quotes"),
    ],
    ids=["lists", "tables", "key", "header", "values", "digits"],
)
def test_bound_is_told_with_its_line(text: str, bound: str) -> None:
    lines, told = scan(text)
    assert (told, lines[()]) == (bound, 2)


def test_as_much_as_the_bounds_allow_passes() -> None:
    nested = "[" * MAX_NESTING + "]" * MAX_NESTING
    key = ".".join(["a"] * MAX_PARTS)
    assert scan(f"a = {nested}")[1] == ""
    assert scan(f"{key} = 1\n[b.{key[2:]}]")[1] == ""


@pytest.mark.parametrize(
    "text", ['"""' * 99_999, '"""\\"' * 99_999, "'" * 99_999, "[]" * 99_999, "}]=,." * 9_999, "\\"]
)
def test_text_that_is_not_toml_ends_the_scan(text: str) -> None:
    assert scan(f"a = {text}")[0][("a",)] == 1
