"""Tokenizer files as tokenizers and transformers read them: what each refused was found by giving it to them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from draftproof.wordfiles import apart, beside, refused

TOKEN = {"id": 3, "content": "<x>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}  # fmt: skip
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
GOOD = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [TOKEN], "normalizer": None,
    "pre_tokenizer": LEVEL, "post_processor": None, "decoder": LEVEL,
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
              "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
              "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
}  # fmt: skip


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return a good tokenizer in which one value is another, or is not there: ..."""
    data = copy.deepcopy(GOOD)
    *parts, last = path.split(".")
    place: Any = data
    for part in parts:
        place = place[int(part)] if part.isdigit() else place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", ...), ("truncation", ...), ("padding", ...), ("added_tokens", ...), ("added_tokens", []),
        ("normalizer", ...), ("normalizer", {"type": "NFC"}), ("pre_tokenizer", None), ("decoder", {"type": "Fuse"}),
        ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [LEVEL, {"type": "Whitespace"}]}),
        ("truncation", {"max_length": 8, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}),
        ("added_tokens.0.extra", 1), ("model.type", ...), ("model.dropout", ...), ("model.dropout", 0.5),
        ("model.unk_token", "x"), ("model.fuse_unk", None), ("model.merges", []), ("model.merges", [["a", "b"]]),
        ("model.merges", ["#version: 0.2", "a b"]), ("model.vocab.b", 9999), ("model.vocab.b", 0),
        ("model", {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0]]}),
        ("model", {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}),
    ],
)  # fmt: skip
def test_what_the_library_reads_is_not_refused(path: str, value: Any) -> None:
    assert refused(changed(path, value)) == ""


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", None), ("version", "2.0"), ("version", 7), ("truncation", 7), ("truncation", {}),
        ("truncation", {"max_length": "x"}), ("padding", []), ("padding", {}), ("added_tokens", None),
        ("added_tokens", "x"), ("added_tokens", {}), ("added_tokens.0.id", ...), ("added_tokens.0.id", "5"),
        ("added_tokens.0.id", -1), ("added_tokens.0.id", 1.5), ("added_tokens.0.content", ...),
        ("added_tokens.0.content", 5), ("added_tokens.0.special", 1), ("added_tokens.0.lstrip", None),
        ("normalizer", 7), ("normalizer", []), ("normalizer", {}), ("normalizer", {"type": "Odd"}),
        ("normalizer", {"type": "Sequence"}), ("normalizer", {"type": "Sequence", "normalizers": [None]}),
        ("normalizer", {"type": "Replace"}), ("pre_tokenizer", {"type": "ByteLevel"}), ("decoder", "x"),
        ("decoder", {"type": "WordPiece"}), ("post_processor", {"type": "TemplateProcessing"}), ("model", ...),
        ("model", None), ("model", []), ("model", {}), ("model.type", None), ("model.type", "Odd"), ("model.type", 7),
        ("model.type", "WordPiece"), ("model.type", "Unigram"), ("model.dropout", 7), ("model.dropout", True),
        ("model.unk_token", 7), ("model.end_of_word_suffix", []), ("model.fuse_unk", 7), ("model.byte_fallback", "x"),
        ("model.vocab", ...), ("model.vocab", []), ("model.vocab", {}), ("model.vocab.a", "0"), ("model.vocab.a", -1),
        ("model.vocab.a", 1.5), ("model.vocab.a", True), ("model.vocab.a", 1 << 32), ("model.merges", ...),
        ("model.merges", None), ("model.merges", "a b"), ("model.merges", {}), ("model.merges", ["a"]),
        ("model.merges", ["a b ab"]), ("model.merges", ["b a"]), ("model.merges", ["zz qq"]),
        ("model.merges", ["a b", ["a", "b"]]), ("model.merges", [["a"]]),
    ],
)  # fmt: skip
def test_what_the_library_refuses_is_refused(path: str, value: Any) -> None:
    assert refused(changed(path, value))


def test_what_is_nested_without_end_ends() -> None:
    part: Any = LEVEL
    for _ in range(60):
        part = {"type": "Sequence", "pretokenizers": [part]}
    assert refused(changed("pre_tokenizer", part)) == ""
    assert refused([])
    assert refused(None)


@pytest.mark.parametrize(
    ("config", "listed", "added", "error"),
    [
        ({}, {}, {}, ""), (None, [], 7, ""), ({"bos_token": "<s>", "eos_token": None}, {}, {"<y>": 5}, ""),
        ({"bos_token": {"__type": "AddedToken", "content": "<s>"}}, {"eos_token": {"content": "</s>"}}, {}, ""),
        ({"bos_token": {"content": "<s>"}}, {}, {}, "TypeError"), ({"pad_token": 3}, {}, {}, "TypeError"),
        ({}, {"bos_token": 1}, {}, "TypeError"), ({"model_max_length": "many"}, {}, {}, "TypeError"),
        ({}, {}, {"<y>": "x"}, "TypeError"), ({"added_tokens_decoder": []}, {}, {}, "AttributeError"),
        ({"add_eos_token": "yes", "model_max_length": 1e30}, {}, {}, ""),
    ],
)  # fmt: skip
def test_files_beside_it_raise_as_their_library_does(config: Any, listed: Any, added: Any, error: str) -> None:
    assert beside(config, listed, added) == error


PAIRED = {"model": {"type": "BPE", "vocab": {word: n for n, word in enumerate("abcdefg")}, "merges": []}}
OTHERWISE = {"model": {"type": "BPE", "vocab": {word: n for n, word in enumerate("abcdexg")}, "merges": []}}
FIRST_OTHERWISE = {"model": {"type": "BPE", "vocab": {word: n for n, word in enumerate("xycdefg")}, "merges": []}}
BEGINS = {
    **PAIRED,
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "a"}}, {"Sequence": {}}]},
}


@pytest.mark.parametrize(
    ("mine", "theirs", "is_"),
    [
        ((PAIRED, None, 1), (PAIRED, {}, 2), ""),
        ((PAIRED, None, 1), (OTHERWISE, None, 1), "tokens"),
        ((PAIRED, None, 1), (FIRST_OTHERWISE, None, 1), ""),
        ((PAIRED, {"add_bos_token": True}, 1), (PAIRED, None, 1), "ends"),
        ((PAIRED, {"add_bos_token": True}, 1), (PAIRED, {"add_bos_token": True}, 2), "ends"),
        ((BEGINS, None, 1), (PAIRED, {"add_bos_token": True}, 1), ""),
        ((BEGINS, {"add_bos_token": False}, 1), (PAIRED, None, 1), ""),
        ((PAIRED, {"add_eos_token": True}, 1), (PAIRED, None, 1), "ends"),
        (({"model": {"type": "Unigram", "vocab": []}}, None, 1), (PAIRED, None, 1), ""),
    ],
)
def test_tokenizers_are_apart_by_what_they_add_or_by_their_tokens(mine: Any, theirs: Any, is_: str) -> None:
    assert apart(mine, theirs, 7) == is_
    assert apart(theirs, mine, 7) == is_
