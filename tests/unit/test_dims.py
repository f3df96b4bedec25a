"""The expression language: what it reads, what it prints, what it computes, and what it does with what is unknown."""

from __future__ import annotations

import ast
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from draftproof.dims import (
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_VALUE,
    Absent,
    Bindings,
    Dim,
    Expr,
    ExprError,
    Known,
    Seen,
    Unknown,
    evaluate,
    parse,
    read_source,
    substituted,
)

NAMES = ("a", "b.c", "target.hidden", "n_1")
KINDS = {"+": "number", "-": "number", "*": "number", "//": "number"}


def looks(values: Mapping[str, Any]) -> Any:
    """Return a lookup: a value is known, None is unknown, what is not there is absent."""

    def lookup(name: str) -> Seen:
        if name not in values:
            return Absent("config.json")
        return Unknown(f"{name} was not published") if values[name] is None else Known(values[name], f"config: {name}")

    return lookup


def value(text: str, elements: list[Any] | None = None, **values: Any) -> Any:
    return evaluate(parse(text), looks({k.replace("__", "."): v for k, v in values.items()}), elements)


def outcome(text: str, known: Mapping[str, Any]) -> Any:
    """Return the value, or in words why there is none."""
    try:
        return evaluate(parse(text), looks(known))
    except ExprError as error:
        return str(error)


def test_two_threads_build_no_trees_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    within, most, parsed = threading.Semaphore(1), set[bool](), ast.parse

    def watched(*args: Any, **given: Any) -> Any:
        alone = within.acquire(blocking=False)
        most.add(alone)
        time.sleep(0.001)  # the other threads go on
        if alone:
            within.release()
        return parsed(*args, **given)

    monkeypatch.setattr(ast, "parse", watched)
    asked: list[Callable[[str], Any]] = [
        lambda text: evaluate(Expr(text), looks({"a": 2})),
        lambda text: Expr(text).names,
        lambda text: Expr(text).tree,
        lambda text: parse(f"a *  {text}"),
    ]
    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(ask, f"a + {n}") for n in range(8) for ask in asked]
        assert [one.result() for one in made[::4]] == list(range(2, 10))
    assert most == {True}


# --- the grammar --------------------------------------------------------------------------------------------------

ATOMS = st.integers(0, 10**6).map(str) | st.sampled_from(NAMES)
NUMBERS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(sorted(KINDS)), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})"),
        st.tuples(inner, st.sampled_from(sorted(KINDS)), inner).map(lambda t: f"{t[0]} {t[1]} {t[2]}"),
        inner.map(lambda e: f"-({e})"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
    ),
    max_leaves=8,
)
COMPARED = st.tuples(NUMBERS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), NUMBERS).map(" ".join)
TRUTHS = st.recursive(
    COMPARED | st.sampled_from(["true", "false"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(" ".join),
        inner.map(lambda e: f"not ({e})"),
    ),
    max_leaves=5,
)
EXPRESSIONS = NUMBERS | TRUTHS


@given(EXPRESSIONS)
def test_printing_then_parsing_is_the_identity(text: str) -> None:
    assume(len(text) <= MAX_LENGTH)
    one = parse(text)
    assume(len(str(one)) <= MAX_LENGTH)
    again = parse(str(one))
    assert str(again) == str(one)
    assert again == one
    assert again.names == one.names
    assert ast.dump(again.tree) == ast.dump(one.tree)


@given(EXPRESSIONS, st.lists(st.integers(-50, 5000), min_size=4, max_size=4))
def test_value_is_what_python_computes(text: str, numbers: list[int]) -> None:
    assume(len(text) <= MAX_LENGTH)
    known = dict(zip(NAMES, numbers, strict=True))
    flat = {name.replace(".", "_"): number for name, number in known.items()} | {"true": True, "false": False}
    plain = text
    for name in NAMES:
        plain = plain.replace(name, name.replace(".", "_"))
    try:
        wanted = eval(plain, {"__builtins__": {"min": min, "max": max}}, flat)
    except ZeroDivisionError:
        with pytest.raises(ExprError, match="divides by zero"):
            evaluate(parse(text), looks(known))
        return
    got = outcome(text, known)
    if isinstance(got, str):
        assert "64 bits" in got
        return
    assert got == wanted
    assert type(got) is type(wanted)


@given(EXPRESSIONS, st.lists(st.none() | st.integers(-9, 9), min_size=4, max_size=4), st.data())
def test_what_was_decided_stays_decided_once_the_rest_is_known(text: str, numbers: list[int | None], data: Any) -> None:
    assume(len(text) <= MAX_LENGTH)
    partly = dict(zip(NAMES, numbers, strict=True))
    wholly = {k: data.draw(st.integers(-9, 9)) if v is None else v for k, v in partly.items()}
    try:
        before, after = evaluate(parse(text), looks(partly)), evaluate(parse(text), looks(wholly))
    except ExprError:
        return
    assert isinstance(before, Unknown) or before == after


@given(EXPRESSIONS)
def test_value_without_anything_known_is_unknown_or_needs_no_name(text: str) -> None:
    assume(len(text) <= MAX_LENGTH)
    one = parse(text)
    try:
        result = evaluate(one, looks(dict.fromkeys(NAMES)))
    except ExprError:
        return
    if one.names and " or " not in one.text and " and " not in one.text and "not " not in one.text:
        parts = [n for n in ast.walk(one.tree) if isinstance(n, ast.Compare) and len(n.ops) > 1]
        assert parts or isinstance(result, Unknown)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    assert outcome(text, {}) != ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("1 +", "column"),
        ("a b", "column"),
        ("a ** 2", "'a ** 2' is not allowed"),
        ("a / 2", "'a / 2' is not allowed"),
        ("a % 2", "'%' is not part of the language, at column 3"),
        ("a if b else c", "not allowed"),
        ("lambda: 1", "':' is not part"),
        ("[1]", "'[' is not part"),
        ("a[0]", "'[' is not part"),
        ("a.b()", "not allowed"),
        ("print(a)", "not allowed"),
        ("open(a)", "not allowed"),
        ("__import__('os')", "is not part"),
        ("len()", "len takes one value"),
        ("len(a, b)", "len takes one value"),
        ("min()", "min takes one value or more"),
        ("min(*a)", "* is not allowed"),
        ("max(a, key=b)", "not allowed"),
        ("(a + b).c", "is not a dotted name"),
        ("1.5", "'1.5' is not allowed"),
        ("1e9", "is not part"),
        ("0x10", "is not part"),
        ("1_000", "is not part"),
        ("'a'", "is not part"),
        ("True and a", "True"),
        ("None", "None"),
        ("a is b", "not allowed"),
        ("a in b", "not allowed"),
        ("a := 1", "':' is not part"),
        ("+a", "not allowed"),
        ("~a", "is not part"),
        (str(MAX_VALUE + 1), "beyond 64 bits"),
        ("a\u2028", "is not part"),
        ("ａ", "is not part"),
        ("a" * (MAX_LENGTH + 1), f"{MAX_LENGTH + 1} characters; at most {MAX_LENGTH}"),
        ("-" * MAX_DEPTH + "1", f"more than {MAX_DEPTH} deep"),
        ("(" * 240 + "1" + ")" * 240, "nested"),
        ("not " * 100 + "a", f"more than {MAX_DEPTH} deep"),
    ],
)
def test_text_outside_the_language_says_why(text: str, why: str) -> None:
    with pytest.raises(ExprError) as caught:
        parse(text)
    assert why in str(caught.value)


def test_bounds_are_the_last_that_is_read() -> None:
    assert parse(str(MAX_VALUE)).text == str(MAX_VALUE)
    assert parse("a" * MAX_LENGTH).name == "a" * MAX_LENGTH
    assert parse("-" * (MAX_DEPTH - 1) + "1")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a // 0", "divides by zero"),
        ("a * a * a", "beyond 64 bits"),
        ("a * a * 0", "beyond 64 bits"),
        ("not a", "is not true or false"),
        ("a and true", "is not true or false"),
        ("len(a)", "is not a list"),
        ("s + 1", "'x' is not a number"),
        ("s < 1", "'x' is not a number"),
        ("row + 1", "is not a number"),
        ("min(none)", "empty list"),
        ("it > 1", "'it' has no meaning here"),
        ("increasing(a)", "has no meaning here"),
        ("true_at(a)", "has no meaning here"),
    ],
)
def test_expression_without_a_value_says_why(text: str, why: str) -> None:
    with pytest.raises(ExprError, match=why):
        value(text, a=2**40, s="x", row=[1, 2], none=[])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("7168 // 64", 112),
        ("-7 // 2", -4),
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("len(ids)", 3),
        ("max(ids)", 58),
        ("min(ids, 1)", None),
        ("min(4, 2, 3)", 2),
        ("0 <= 1 and 1 < 2", True),
        ("0 <= 1 < 1", False),
        ("not 1 < 2 or true", True),
    ],
)
def test_value(text: str, wanted: Any) -> None:
    if wanted is None:
        with pytest.raises(ExprError, match="is not a number"):
            value(text, ids=[2, 30, 58])
    else:
        assert value(text, ids=[2, 30, 58]) == wanted


# --- three values -------------------------------------------------------------------------------------------------

T, F, U = "true", "false", "u"
TABLE = [
    (f"{x} {word} {y}", wanted)
    for word, rows in {
        "and": {(T, T): True, (T, F): False, (F, T): False, (F, F): False, (T, U): None, (U, T): None,
                (F, U): False, (U, F): False, (U, U): None},
        "or": {(T, T): True, (T, F): True, (F, T): True, (F, F): False, (T, U): True, (U, T): True,
               (F, U): None, (U, F): None, (U, U): None},
    }.items()
    for (x, y), wanted in rows.items()
]  # fmt: skip
MORE = [
    ("not u", None), ("not true", False), ("u == u", None), ("u + 1", None), ("0 * u", None), ("min(u, 1)", None),
    ("1 < u", None), ("2 < 1 < u", False), ("1 < 2 < u", None), ("u < 2 < 1", False), ("len(u)", None),
    ("absent == 1", None), ("absent == 1 or true", True),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), TABLE + MORE)
def test_three_valued_logic(text: str, wanted: bool | None) -> None:
    got = value(text, u=None)
    assert got is wanted if wanted is not None else isinstance(got, Unknown)


@pytest.mark.parametrize("text", ["some(texts, n)", "outside(texts, n)", "some(texts, nothing)"])
def test_what_is_asked_of_texts_is_a_text(text: str) -> None:
    look = looks({"texts": ["a"], "n": 0, "nothing": {}})
    with pytest.raises(ExprError, match="is not a text"):
        evaluate(parse(text, True), look)


def test_true_at_of_rows_that_differ_or_are_not_there_says_so() -> None:
    with pytest.raises(ExprError, match="differ in length"):
        value("true_at(min(a, c))", [True, True], a=[0, 1], c=[0])
    assert isinstance(evaluate(parse("true_at(lower(z))", True), looks({}), [True]), Unknown)


def test_unknown_says_what_is_not_known() -> None:
    assert value("1 + hidden", hidden=None) == Unknown("hidden was not published")
    assert value("1 + hidden") == Unknown("hidden is not stated (config.json)")


@pytest.mark.parametrize(
    ("text", "elements", "wanted"),
    [
        ("it >= 0", [0, 1, 2], True),
        ("it >= 0", [0, -1, 2], False),
        ("it >= 0", [], True),
        ("i + it < n", [3, 6, 9], True),
        ("i + it < n", [3, 6, 10], False),
        ("increasing(it)", [1, 2, 2], False),
        ("increasing(i + it)", [1, 2, 2], True),
        ("count_true == 2", [True, False, True], True),
        ("count_true == 2", [True, 1, False], False),
        ("it < u", [1], None),
        ("it < u and it < 0", [1], False),
        ("1 < 2", [9], True),
    ],
)
def test_expression_over_elements(text: str, elements: list[Any], wanted: bool | None) -> None:
    got = value(text, elements, n=12, u=None)
    assert got is wanted if wanted is not None else isinstance(got, Unknown)


@pytest.mark.parametrize(
    ("d2t", "wanted"),
    [([0, 1, 1], True), ([0, 1, 2], False), ([0, 0, 0], False), ([0, 1, 99], False), ([-1, 1, 1], False)],
)
def test_true_at_points_through_another_tensor(d2t: list[int], wanted: bool) -> None:
    t2d = [True, False, True, True, False]
    assert value("true_at(i + d2t)", t2d, d2t=d2t) is wanted
    assert isinstance(value("true_at(i + d2t)", t2d), Unknown)


def test_substituted_shows_the_values() -> None:
    assert substituted(parse("aux * target.hidden"), looks({"aux": 3, "target.hidden": 7168})) == "3 * 7168"
    assert substituted(parse("aux * target.hidden"), looks({"aux": 3})) == "3 * target.hidden"
    assert substituted(parse("a - (b - c)"), looks({"a": 1, "b": -2, "c": 3})) == "1 - (-2 - 3)"


# --- binding ------------------------------------------------------------------------------------------------------


def dim(name: str, drafter: str = "", target: str = "", **more: Any) -> Dim:
    sides = {"drafter": drafter, "target": target}
    sources = {side: tuple(parse(s) for s in text.split(", ")) for side, text in sides.items() if text}
    default = more.pop("default", None)
    return Dim(name, sources, default=parse(default) if default else None, **more)


def bind(dims: list[Dim], drafter: Mapping[str, Any], target: Mapping[str, Any] | None = None) -> Bindings:
    sides = {"drafter": looks(drafter)} | ({} if target is None else {"target": looks(target)})
    return Bindings({d.name: d for d in dims}, sides)


def test_witness_names_file_and_key() -> None:
    made = bind([dim("hidden", "hidden_size")], {"hidden_size": 64})
    assert made("hidden") == Known(64, "config: hidden_size", "hidden_size")
    assert made.table(["hidden", "hidden"]) == ("hidden=64 (config: hidden_size)",)


def test_default_is_computed_on_demand_in_any_order() -> None:
    rows = [dim("head_dim", "head_dim", default="hidden // heads"), dim("hidden", "h"), dim("heads", "n")]
    for order in (rows, rows[::-1]):
        made = bind(order, {"h": 7168, "n": 64})
        assert made("head_dim") == Known(112, "default: hidden // heads, without drafter: head_dim")
        assert made.needed([parse("head_dim")]) == ["head_dim", "heads", "hidden"]
    assert bind(rows, {"h": 7168, "n": 64, "head_dim": 128})("head_dim").value == 128


def test_default_never_stands_for_what_is_unknown() -> None:
    rows = [dim("aux", "num, len(ids)", default="3")]
    assert bind(rows, {})("aux").value == 3
    assert isinstance(bind(rows, {"num": None})("aux"), Unknown)
    assert isinstance(bind(rows, {"ids": None})("aux"), Unknown)
    assert bind(rows, {"ids": [1, 2]})("aux") == Known(2, "config: len(ids)")


def test_first_counts_and_all_must_agree() -> None:
    one, all_ = dim("vocab", "draft, full", first=True), dim("vocab", "draft, full")
    assert bind([one], {"draft": 5, "full": 9})("vocab").value == 5
    assert bind([one], {"full": 9})("vocab").value == 9
    assert isinstance(bind([one], {"draft": None, "full": 9})("vocab"), Unknown)
    made = bind([all_], {"draft": 5, "full": 9})
    assert isinstance(made("vocab"), Unknown)
    assert [(c.first.value, c.second.value) for c in made.disagreements] == [(5, 9)]
    assert bind([all_], {"draft": 5, "full": 5})("vocab").value == 5


def test_target_is_believed_about_itself() -> None:
    made = bind([dim("t", "target_hidden", "hidden")], {"target_hidden": 4}, {"hidden": 8})
    assert made("t").value == 8
    assert [(c.first.value, c.second.value) for c in made.disagreements] == [(4, 8)]
    assert bind([dim("t", "target_hidden", "hidden")], {"target_hidden": 4})("t").value == 4


def test_default_that_fails_says_why() -> None:
    made = bind([dim("d", default="1 // z"), dim("z", "z")], {"z": 0})
    assert made("d") == Unknown("default of d: 1 // z divides by zero")


def test_circle_of_defaults_ends() -> None:
    assert isinstance(bind([dim("a", default="b + 1"), dim("b", default="a + 1")], {})("a"), Unknown)


def test_source_that_is_no_list_is_unknown_not_absent() -> None:
    assert isinstance(read_source(parse("len(ids)"), looks({"ids": 3})), Unknown)
    assert isinstance(read_source(parse("len(ids)"), looks({})), Absent)


def test_texts_say_yes_or_no() -> None:
    row = Dim("qk", {}, texts={"architectures": ("Qwen",)}, bool_=True)
    assert bind([row], {"architectures": ["Llama", "Qwen"]})("qk").value is True
    assert bind([row], {"architectures": ["Llama"]})("qk").value is False
    assert bind([row], {})("qk").value is False
    assert isinstance(bind([row], {"architectures": None})("qk"), Unknown)


def test_name_that_begins_as_a_predicate_does_is_a_name() -> None:
    look = lambda name: Known(3, name)  # noqa: E731
    assert not parse("increasing_n == 3").over_elements
    assert evaluate(parse("increasing_n == 2"), look, []) is False
    assert parse("increasing(x)").over_elements
