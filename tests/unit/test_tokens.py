"""What token ids stand for: every fault of a tokenizer is caught with its numbers, and its right twin passes."""

from __future__ import annotations

import base64
import json
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import builder as b
from builder import ABSENT
from draftproof import api, tokens
from draftproof import tokenizer as tokenizer_module
from draftproof.findings import Report
from draftproof.hub import Source

Files = Mapping[str, str | bytes]
WORDS = {f"w{i}": i for i in range(500)}
SPECIAL = {"<s>": 500, "</s>": 501, "<|think|>": 502, "<|end|>": 503}


def added(rows: Mapping[str, int], special: bool = True) -> list[dict[str, Any]]:
    return [{"id": i, "content": text, "special": special} for text, i in rows.items()]


def tokenizer(vocab: Any = WORDS, rows: Any = None, kind: str | None = "BPE", **more: Any) -> str:
    model = {"type": kind, "vocab": vocab} if kind else {"vocab": vocab}
    return json.dumps({"added_tokens": added(SPECIAL) if rows is None else rows, "model": model, **more})


def side(config: Any, table: b.Table | None, name: str, files: Files, unread: str = "") -> Source:
    """Return a source with files of tokenizers."""
    source = Source(name, repo=name, provenance="in memory", config=config, tensors=table)
    raw = {n: text.encode() if isinstance(text, str) else text for n, text in files.items()}

    def read(file: str, start: int, stop: int) -> bytes:
        if file == unread:
            raise PermissionError(13, "Permission denied")
        return raw[file][start:stop]

    source.files, source.read = {n: len(data) for n, data in raw.items()}, read
    return source


def pair(own: Files, theirs: Files, config: Any = None, base: Any = None, **more: Any) -> Report:
    """Check a good EAGLE-3 drafter and its target, of 512 rows each, with these tokenizer files."""
    drafter = side(b.dense_config() if config is None else config, more.get("table", b.dense()), b.DRAFTER, own,
                   more.get("unread", ""))  # fmt: skip
    target = side(b.target_config() if base is None else base, more.get("base_table", b.target()), b.TARGET, theirs)
    return b.check(drafter, target)


def said(report: Report, code: str, *, level: str = "") -> str:
    """Return all that is said under one code, on one line."""
    rows = [f for f in b.against(report) if f.code == code and level in ("", f.level)]
    return " ".join(f"{f.subject}: {f.message}; {f.expected}; {f.observed}; {f.note}" for f in rows)


def beyond_padding(report: Report) -> set[str]:
    """Return the codes, without the number of padding rows, which is said of every padded vocabulary."""
    return b.codes(report) - {"PAIR447 info"}


GOOD = tokenizer()
NO_IDS: Mapping[str, Any] = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), ABSENT)


# --- the tables ---------------------------------------------------------------------------------------------------

LATER = {"<|reserved_special_token_0|>": 504, "<|reserved_special_token_1|>": 505}
LATER = {"<|reserved_special_token_0|>": 504, "<|reserved_special_token_1|>": 505}
SWAPPED = dict(WORDS) | {"w7": 8, "w8": 7}
TABLES: Mapping[str, tuple[Files, Files, set[str], list[str]]] = {
    "same file": ({"tokenizer.json": GOOD}, {"tokenizer.json": GOOD}, set(), []),
    "same words, another file": ({"tokenizer.json": GOOD}, {"tokenizer.json": tokenizer(version="1")}, set(), []),
    "two words change places": (
        {"tokenizer.json": tokenizer(SWAPPED)}, {"tokenizer.json": GOOD}, {"PAIR419"},
        ["2 of 504 common ids differ, 0 ids are in one only", "7: 'w8' against 'w7'; 8: 'w7' against 'w8'"],
    ),
    "every word but one": (
        {"tokenizer.json": tokenizer({f"x{i}" if i else "w0": i for i in range(500)})}, {"tokenizer.json": GOOD},
        {"PAIR419"}, ["499 of 504 common ids differ", "1: 'x1' against 'w1'", "5: 'x5' against 'w5'"],
    ),
    "one word more": (
        {"tokenizer.json": GOOD}, {"tokenizer.json": tokenizer(dict(WORDS) | {"late": 504})}, {"PAIR421 info"},
        ["all 504 common ids are the same, 1 ids are in one only", "504: 'late' (target only)"],
    ),
    "placeholders more": (
        {"tokenizer.json": GOOD},
        {"tokenizer.json": tokenizer(rows=added(SPECIAL | LATER))},
        {"PAIR421 info"}, ["2 ids are in one only"],
    ),
    "a placeholder put to use": (
        {"tokenizer.json": tokenizer(rows=added(SPECIAL | {"<|unused_7|>": 504}))},
        {"tokenizer.json": tokenizer(rows=added(SPECIAL | {"<|tool|>": 504}))},
        {"PAIR421 info"}, ["all 504 common ids are the same", "1 are placeholders on one side"],
    ),
    "an added token where the other has a word": (
        {"tokenizer.json": tokenizer(rows=added({"</s>": 2}))}, {"tokenizer.json": tokenizer(rows=[])},
        {"PAIR419", "CFG334 warning"}, ["2: '</s>' against 'w2'", "'w2' and, added, '</s>'"],
    ),
    "no id in common": (
        {"tokenizer.json": tokenizer({"a": 1}, [])}, {"tokenizer.json": tokenizer({"a": 2}, [])}, {"PAIR419"},
        ["0 of 0 common ids differ, 2 ids are in one only"],
    ),
    "unigram lists": (
        {"tokenizer.json": tokenizer([["a", -1.0], ["b", -2.0]], [], "Unigram")},
        {"tokenizer.json": tokenizer([["a", -1.5], ["c", -2.0]], [], "Unigram")},
        {"PAIR419"}, ["1 of 2 common ids differ", "1: 'b' against 'c'"],
    ),
    "vocab.json beside added_tokens.json, against tokenizer.json": (
        {"vocab.json": json.dumps(WORDS), "merges.txt": "#version", "added_tokens.json": json.dumps(SPECIAL)},
        {"tokenizer.json": GOOD}, set(), [],
    ),
    "vocab.txt": (
        {"vocab.txt": "a\nb\nc\n"}, {"tokenizer.json": tokenizer({"a": 0, "b": 1, "d": 2}, [], "WordPiece")},
        {"PAIR419"}, ["2: 'c' against 'd'"],
    ),
    "a word at another place": (
        {"tokenizer.json": tokenizer(dict(WORDS) | {"late": 504})},
        {"tokenizer.json": tokenizer(dict(WORDS) | {"late": 505})}, {"PAIR419"},
        ["'late' is 504 in the drafter's and 505 in the target's"],
    ),
    "an added token at another place": (
        {"tokenizer.json": tokenizer(rows=added(SPECIAL | {"<tool>": 504}))},
        {"tokenizer.json": tokenizer(rows=added(SPECIAL | {"<tool>": 505}))}, {"PAIR440 warning"},
        ["1 have another", "'<tool>' is 504 in the drafter's and 505 in the target's"],
    ),
    "a placeholder at another place": (
        {"tokenizer.json": tokenizer(rows=added(SPECIAL | {"<|reserved_1|>": 504}))},
        {"tokenizer.json": tokenizer(rows=added(SPECIAL | {"<|reserved_1|>": 505}))}, {"PAIR421 info"}, [],
    ),
    "a drafter without tokenizer files": ({}, {"tokenizer.json": GOOD}, set(), []),
    "a target without tokenizer files": (
        {"tokenizer.json": GOOD}, {}, {"PAIR448 info"}, ["none of the target"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_compared_by_what_ids_stand_for(name: str) -> None:
    own, theirs, codes, shown = TABLES[name]
    report = pair(own, theirs, b.dense_config(**NO_IDS), b.target_config(**NO_IDS))
    assert beyond_padding(report) == codes, b.text(report)
    assert not [text for text in shown if text not in b.text(report)], b.text(report)


def test_same_table_is_a_pass_that_counts_its_ids() -> None:
    report = pair({"tokenizer.json": GOOD}, {"tokenizer.json": tokenizer(version="1")})
    assert [f.message for f in report.findings if f.code == "PAIR419"] == ["all 504 ids stand for the same text"]


def test_target_tokenizer_is_not_read_where_the_drafter_ships_none() -> None:
    assert b.codes(pair({}, {"tokenizer.json": "{"})) == set()


# --- tiktoken and sentencepiece -----------------------------------------------------------------------------------

BYTES = [b"a", b" the", b"\n", "é".encode(), b"\xff\x00"]


def ranks(rows: list[bytes]) -> bytes:
    return b"".join(base64.b64encode(row) + f" {i}\n".encode() for i, row in enumerate(rows))


LEVELS: dict[str, Any] = {"pre_tokenizer": {"type": "ByteLevel"}}
SAME_AS_BYTES = {"a": 0, "Ġthe": 1, "Ċ": 2, "Ã©": 3, "ÿĀ": 4}
OTHER_FILES: Mapping[str, tuple[Files, Files, set[str], list[str]]] = {
    "tiktoken of the same ranks": ({"tiktoken.model": ranks(BYTES)}, {"x.tiktoken": ranks(BYTES) + b"\n"}, set(), []),
    "tiktoken of other ranks": (
        {"tiktoken.model": ranks(BYTES)}, {"tiktoken.model": ranks(BYTES[::-1])}, {"PAIR419"},
        ["4 of 5 common ids differ", "0: 'a' against 'ÿĀ'"],
    ),
    "tiktoken against the same tokens as tokenizer.json": (
        {"tiktoken.model": ranks(BYTES)}, {"tokenizer.json": tokenizer(SAME_AS_BYTES, [], **LEVELS)}, set(), [],
    ),
    "tiktoken under the name of a sentencepiece model": (
        {"tokenizer.model": ranks(BYTES)}, {"tokenizer.json": tokenizer(SAME_AS_BYTES, [], **LEVELS)}, set(), [],
    ),
    "tiktoken with added tokens of another name": (
        {"tiktoken.model": ranks(BYTES),
         "tokenizer_config.json": json.dumps({"added_tokens_decoder": {"7": {"content": "[A]", "special": True}}})},
        {"tiktoken.model": ranks(BYTES),
         "tokenizer_config.json": json.dumps({"added_tokens_decoder": {"7": {"content": "[B]", "special": True}}})},
        {"PAIR440 warning"}, ["1 of 6 common ids: 7: '[A]' against '[B]'"],
    ),
    "tiktoken cut short": (
        {"tiktoken.model": ranks(BYTES) + b"YQ="}, {"tiktoken.model": ranks(BYTES)},
        {"CFG333 unknown", "PAIR419 unknown"}, ["line 6: YQ="],
    ),
    "tiktoken that uses a rank twice": (
        {"tiktoken.model": ranks(BYTES) + b"Yg== 0\n"}, {"tiktoken.model": ranks(BYTES)},
        {"CFG333 unknown", "PAIR419 unknown"}, ["a rank of its own on each line"],
    ),
    "one sentencepiece model": ({"tokenizer.model": b"\n\x0e\n\x05<unk>"}, {"tokenizer.model": b"\n\x0e\n\x05<unk>"},
                                set(), []),
    "two sentencepiece models": (
        {"tokenizer.model": b"\n\x0e\n\x05<unk>"}, {"tokenizer.model": b"\n\x0e\n\x05<pad>"}, {"PAIR419 unknown"},
        ["two files tokenizer.model that differ, and cannot be compared by id"],
    ),
    "a sentencepiece model, which the target has beside its tokenizer.json": (
        {"tokenizer.model": b"\n\x0e\n"}, {"tokenizer.model": b"\n\x0e\n", "tokenizer.json": tokenizer([["a", 0]], [])},
        set(), [],
    ),
    "a pointer instead of the file": (
        {"tokenizer.model": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"},
        {"tokenizer.json": GOOD}, {"CFG333 unknown", "PAIR419 unknown"}, ["a Git LFS pointer"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_FILES)
def test_tiktoken_is_read_and_sentencepiece_compared_by_its_bytes(name: str) -> None:
    own, theirs, codes, shown = OTHER_FILES[name]
    report = pair(own, theirs, b.dense_config(**NO_IDS), b.target_config(**NO_IDS))
    assert beyond_padding(report) == codes, b.text(report)
    assert not [text for text in shown if text not in b.text(report)], b.text(report)


# --- kinds (A07) --------------------------------------------------------------------------------------------------

FALLBACK = json.dumps({"model": {"type": "BPE", "byte_fallback": True, "vocab": WORDS, "merges": []}})
KINDS: Mapping[str, tuple[Files, Files, list[str]]] = {
    "BPE against Unigram": (
        {"tokenizer.json": tokenizer()}, {"tokenizer.json": tokenizer([[w, 0.0] for w in WORDS], [], "Unigram")},
        ["Unigram (target tokenizer.json)", "BPE (drafter tokenizer.json)"],
    ),
    "BPE against a sentencepiece model": (
        {"tokenizer.json": tokenizer()}, {"tokenizer.model": b"\n\x0e\n"},
        ["SentencePiece (target tokenizer.model)", "BPE (drafter tokenizer.json)"],
    ),
    "byte-level against byte fallback": (
        {"tokenizer.json": FALLBACK}, {"tokenizer.json": tokenizer(**LEVELS)},
        ["byte-level BPE (target tokenizer.json)", "BPE with byte fallback (SentencePiece) (drafter tokenizer.json)"],
    ),
    "WordPiece against BPE": (
        {"vocab.txt": "a\nb"}, {"tokenizer.json": tokenizer({"a": 0, "b": 1}, [])},
        ["BPE (target tokenizer.json)", "WordPiece (drafter vocab.txt)"],
    ),
    "a kind that nobody knows": (
        {"tokenizer.json": tokenizer(kind="Cuneiform")}, {"tokenizer.json": tokenizer()},
        ["Cuneiform (drafter tokenizer.json)"],
    ),
}  # fmt: skip
ONE_KIND: Mapping[str, tuple[Files, Files]] = {
    "BPE, named and not": (
        {"tokenizer.json": json.dumps({"model": {"vocab": WORDS, "merges": []}, "added_tokens": added(SPECIAL)})},
        {"tokenizer.json": tokenizer()},
    ),
    "BPE and byte-level BPE": ({"tokenizer.json": tokenizer()}, {"tokenizer.json": tokenizer(**LEVELS)}),
    "byte fallback, and its sentencepiece model": ({"tokenizer.json": FALLBACK}, {"tokenizer.model": b"\n\x0e\n"}),
    "Unigram, and its sentencepiece model": (
        {"tokenizer.json": tokenizer([["a", 0.0]], [], "Unigram")}, {"tokenizer.model": b"\n\x0e\n"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_tokenizers_of_two_kinds_are_named(name: str) -> None:
    own, theirs, shown = KINDS[name]
    report = pair(own, theirs)
    text = said(report, "PAIR442", level="warning")
    assert not [part for part in shown if part not in text], text


@pytest.mark.parametrize("name", ONE_KIND)
def test_tokenizers_of_one_kind_are_not_told_apart(name: str) -> None:
    assert not said(pair(*ONE_KIND[name]), "PAIR442")


@pytest.mark.parametrize(
    ("own", "theirs", "told"),
    [("OneTokenizer", "TwoTokenizerFast", True), ("OneTokenizer", "OneTokenizerFast", False),
     ("OneTokenizer", "PreTrainedTokenizerFast", False)],
)  # fmt: skip
def test_classes_differ_by_name_and_not_by_speed(own: str, theirs: str, told: bool) -> None:
    rows = (
        {"tokenizer.json": GOOD, "tokenizer_config.json": json.dumps({"tokenizer_class": c})} for c in (own, theirs)
    )
    text = said(pair(*rows), "PAIR442", level="info")
    assert (own in text and theirs in text) if told else not text


# --- special tokens (A10) -----------------------------------------------------------------------------------------


def test_special_ids_of_another_meaning_are_named_with_both_texts() -> None:
    changed = {"<|eos|>": 500, "</s>": 501, "<think>": 502, "</think>": 503}
    report = pair({"tokenizer.json": GOOD}, {"tokenizer.json": tokenizer(rows=added(changed))})
    assert beyond_padding(report) == {"PAIR440 warning"}
    text = said(report, "PAIR440")
    shown = ["3 of 504 common ids", "500: '<s>' against '<|eos|>'", "502: '<|think|>' against '<think>'", "503: "]
    assert not [part for part in shown if part not in text], text
    assert "501" not in text


def test_words_that_differ_stand_beside_special_ids_that_differ() -> None:
    changed = {"<|eos|>": 500, "</s>": 501, "<|think|>": 502, "<|end|>": 503}
    report = pair({"tokenizer.json": tokenizer(SWAPPED)}, {"tokenizer.json": tokenizer(rows=added(changed))})
    assert beyond_padding(report) == {"PAIR419", "PAIR440 warning"}
    assert "3 of 504 common ids differ" in said(report, "PAIR419")


def test_added_tokens_are_compared_where_the_drafter_ships_only_their_table() -> None:
    rows = {str(i): {"content": text, "special": True} for text, i in SPECIAL.items()}
    good, bad = ({"tokenizer_config.json": json.dumps({"added_tokens_decoder": r})} for r in (
        rows, rows | {"502": {"content": "<|tool|>", "special": True}}))  # fmt: skip
    assert beyond_padding(pair(good, {"tokenizer.json": GOOD})) == set()
    report = pair(bad, {"tokenizer.json": GOOD})
    assert beyond_padding(report) == {"PAIR440 warning"}
    assert "1 of 4 common ids: 502: '<|tool|>' against '<|think|>'" in said(report, "PAIR440")


def test_token_that_is_special_on_one_side_only_is_an_info() -> None:
    flags = [row | {"special": row["id"] != 502} for row in added(SPECIAL)]
    report = pair({"tokenizer.json": tokenizer(rows=flags)}, {"tokenizer.json": GOOD})
    assert beyond_padding(report) == {"PAIR444 info"}
    assert "502: '<|think|>' (special in the target only)" in said(report, "PAIR444")


def names(**more: Any) -> Files:
    return {"tokenizer.json": GOOD, "tokenizer_config.json": json.dumps(more)}


IDS = {"bos_token_id": 500, "eos_token_id": 501, "pad_token_id": ABSENT}
NAMES: Mapping[str, tuple[Files, Files, set[str], list[str]]] = {
    "the same": (names(eos_token="</s>"), names(eos_token={"content": "</s>"}), set(), []),
    "another end": (
        names(eos_token="<|end|>"), names(eos_token="</s>"), {"PAIR443 warning", "CFG332 info"},
        ["501 '</s>' (target)", "503 '<|end|>' (drafter)", "501 '</s>' (config)", "503 '<|end|>' (tokenizer)"],
    ),
    "another padding": (
        names(pad_token="<|end|>"), names(pad_token="</s>"), {"PAIR443 info"}, ["503 '<|end|>' (drafter)"],
    ),
    "an end that no table has": (
        names(eos_token="<eos>"), names(), {"CFG332 warning"}, ["drafter eos_token", "'<eos>', which it does not have"],
    ),
    "an end in special_tokens_map.json": (
        {"tokenizer.json": GOOD, "special_tokens_map.json": json.dumps({"eos_token": {"content": "<eos>"}})}, names(),
        {"CFG332 warning"}, ["'<eos>'"],
    ),
    "no end": (names(eos_token=None), names(eos_token="</s>"), set(), []),
    "another template": (
        names(chat_template="{{ a }}"), names(chat_template="{{ b }}"), {"PAIR445 info"},
        ["sha256 "],
    ),
    "the same template in another file": (
        names(chat_template="{{ a }}"), {"tokenizer.json": GOOD, "chat_template.jinja": "{{ a }}"}, set(), [],
    ),
    "one template": (names(chat_template="{{ a }}"), names(), set(), []),
    "two files of one tokenizer that disagree": (
        {"tokenizer.json": GOOD, "added_tokens.json": json.dumps({"<|tool|>": 502})}, {"tokenizer.json": GOOD},
        {"CFG334 warning"}, ["502 as in tokenizer.json: '<|think|>'", "'<|tool|>'"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_named_tokens_and_templates_are_compared(name: str) -> None:
    own, theirs, codes, shown = NAMES[name]
    report = pair(own, theirs, b.dense_config(**IDS), b.target_config(**IDS))
    assert beyond_padding(report) == codes, b.text(report)
    assert not [text for text in shown if text not in b.text(report)], b.text(report)


# --- ids in configs -----------------------------------------------------------------------------------------------


def ids(own: Any = None, theirs: Any = None, files: Files = {}, base: Files = {}) -> Report:  # noqa: B006
    return pair(files, base, b.dense_config(**{**IDS, **(own or {})}), b.target_config(**{**IDS, **(theirs or {})}))


def generated(**more: Any) -> Files:
    return {"generation_config.json": json.dumps(more)}


IN_CONFIGS: Mapping[str, tuple[dict[str, Any], set[str], list[str]]] = {
    "all inside": ({"base": generated(eos_token_id=[501, 503], bos_token_id=500)}, set(), []),
    "the target's end outside": (
        {"theirs": {"eos_token_id": [501, 512]}}, {"CFG331"},
        ["target config.json: eos_token_id", "0 to 511 (target config.json: vocab_size)", "observed 512"],
    ),
    "both ends outside": (
        {"own": {"eos_token_id": 600}, "theirs": {"eos_token_id": 600}}, {"CFG331"},
        ["drafter config.json: eos_token_id", "target config.json: eos_token_id", "600"],
    ),
    "below zero": ({"own": {"eos_token_id": -2}}, {"CFG331"}, ["observed -2"]),
    "none, in the old way, on one side": (
        {"own": {"pad_token_id": -1}, "theirs": {"pad_token_id": 0}}, {"PAIR410"}, ["0 to 511", "observed -1"],
    ),
    "the old way to say none": ({"own": {"pad_token_id": -1}, "theirs": {"pad_token_id": -1}}, set(), []),
    "an end that only the target's generation config has": (
        {"own": {"eos_token_id": 503}, "base": generated(eos_token_id=[501, 503])}, set(), [],
    ),
    "an end that the target does not have": (
        {"own": {"eos_token_id": 502}, "base": generated(eos_token_id=[501, 503])}, {"PAIR410 warning"}, ["[502]"],
    ),
    "an end of the target's generation config outside": (
        {"base": generated(eos_token_id=[501, 700])}, {"CFG331"},
        ["target generation_config.json: eos_token_id", "observed 700"],
    ),
    "an end of the drafter's generation config outside": (
        {"files": generated(eos_token_id=512)}, {"CFG331"}, ["drafter generation_config.json: eos_token_id"],
    ),
    "an end that is text": (
        {"base": generated(eos_token_id="</s>")}, {"CFG333 unknown"}, ["an id, or a list of ids", '"</s>"'],
    ),
    "a generation config that is no JSON": ({"base": {"generation_config.json": "{,"}}, {"CFG333 unknown"}, ["byte 1"]),
    "an end that is a row without a token": (
        {"own": {"eos_token_id": 510}, "theirs": {"eos_token_id": 510}, "files": {"tokenizer.json": GOOD},
         "base": {"tokenizer.json": GOOD}},
        {"CFG332 warning"}, ["target config.json: eos_token_id", "510, a row without a token"],
    ),
    "a padding that is a row without a token": (
        {"own": {"pad_token_id": 510}, "theirs": {"pad_token_id": 510}, "files": {"tokenizer.json": GOOD},
         "base": {"tokenizer.json": GOOD}}, {"CFG332 info"}, ["510, a row without a token"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_CONFIGS)
def test_special_ids_are_inside_the_vocabulary_and_name_tokens(name: str) -> None:
    given, codes, shown = IN_CONFIGS[name]
    report = ids(**given)
    assert beyond_padding(report) == codes, b.text(report)
    assert not [text for text in shown if text not in b.text(report)], b.text(report)


# --- rows (A01, A02, A04, A11) ------------------------------------------------------------------------------------

FULL: dict[str, Any] = {"draft_vocab_size": ABSENT}


def sized(own: int, theirs: int, files: Files, base: Files, **more: Any) -> Report:
    """Check a drafter of a whole vocabulary with a target, of so many rows."""
    return pair(files, base, b.dense_config(vocab_size=own, **FULL, **more), b.target_config(vocab_size=theirs, **more),
                table=b.dense(draft=own, vocab=own, maps=False), base_table=b.target(vocab=theirs))  # fmt: skip


@pytest.mark.parametrize(("own", "theirs"), [(151936, 152064), (152064, 151936)])
def test_vocabularies_that_differ_by_padding_only_are_an_info(own: int, theirs: int) -> None:
    file = {"tokenizer.json": tokenizer({f"w{i}": i for i in range(151643)}, added({"<a>": 151643, "<b>": 151644,
                                                                                  "<c>": 151645}))}  # fmt: skip
    report = sized(own, theirs, file, file)
    assert b.codes(report) == {"PAIR421 info", "PAIR447 info"}, b.text(report)
    text = said(report, "PAIR421")
    shown = [str(own), str(theirs), "151646 ids", "151645", f"{own - 151646} and {theirs - 151646} are padding"]
    assert not [part for part in shown if part not in text], text
    assert report.verdict == "pass"


def test_padding_is_no_failure_of_a_reduced_draft_vocabulary() -> None:
    config, base = b.dense_config(), b.target_config(vocab_size=576)
    file = {"tokenizer.json": GOOD}
    report = pair(file, file, config, base, base_table=b.target(vocab=576))
    assert b.codes(report) == {"PAIR421 info", "PAIR447 info"}, b.text(report)
    assert "8 and 72 are padding" in said(report, "PAIR421")


def test_sizes_that_differ_without_tokenizers_are_an_error() -> None:
    report = sized(151936, 152064, {}, {})
    assert "they differ by 128: padding rows, if both tokenizers are the same" in said(report, "PAIR404")


def test_sizes_that_differ_beside_tokenizers_that_differ_are_an_error() -> None:
    report = sized(512, 576, {"tokenizer.json": tokenizer(SWAPPED)}, {"tokenizer.json": GOOD})
    assert {"PAIR404", "PAIR419"} <= b.codes(report)
    assert "the tokenizers differ too" in said(report, "PAIR404")


def test_vocabulary_that_has_no_row_for_a_real_id_is_an_error() -> None:
    file = {"tokenizer.json": tokenizer({f"w{i}": i for i in range(570)}, [])}
    report = sized(512, 576, file, file)
    assert {"PAIR404", "CFG330", "PAIR441"} <= b.codes(report), b.text(report)
    assert "the tokenizers' largest id is 569: it needs 570 rows" in said(report, "PAIR404")
    assert "58 of 570 ids have no row, the largest is 569" in said(report, "CFG330")
    assert "58 of 570 ids beyond, the largest is 569; 512: 'w512'" in said(report, "PAIR441")
    assert "ids below 512 (drafter config.json: vocab_size)" in said(report, "PAIR441")


def test_what_the_tokenizer_of_the_target_tells_alone_is_said_of_sizes() -> None:
    file = {"tokenizer.json": tokenizer({f"w{i}": i for i in range(512)}, [])}
    report = sized(512, 576, {}, file)
    assert "both have a row for every id of the target's tokenizer, the largest of which is 511" in b.text(report)
    report = sized(448, 576, {}, file)
    assert "PAIR404" in b.codes(report)
    assert "ids up to 511: the drafter has no rows for them" in said(report, "PAIR404")


def test_padding_rows_are_counted() -> None:
    file = {"tokenizer.json": tokenizer(rows=added(SPECIAL | {"<|reserved_0|>": 504}))}
    text = said(pair(file, file), "PAIR447")
    assert "504 real ids, the largest 503: 8 rows are padding" in text
    exact = {"tokenizer.json": tokenizer({f"w{i}": i for i in range(512)}, [])}
    assert b.codes(pair(exact, exact)) == set()


def test_added_token_beyond_the_rows_of_both_is_a_warning_and_a_word_an_error() -> None:
    late = {"tokenizer.json": tokenizer(rows=added(SPECIAL | {"<image>": 512}))}
    report = pair(late, late)
    assert beyond_padding(report) == {"CFG330 warning"}
    assert "1 of 505 ids have no row, the largest is 512; 512: '<image>'" in said(report, "CFG330")
    assert "CFG330" in b.codes(pair(late, {"tokenizer.json": GOOD}))
    word = {"tokenizer.json": tokenizer(dict(WORDS) | {"late": 600})}
    assert beyond_padding(pair(word, word)) == {"CFG330"}


def test_rows_are_those_of_the_embedding_where_it_is_shorter() -> None:
    file = {"tokenizer.json": tokenizer({f"w{i}": i for i in range(512)}, [])}
    report = pair(file, file, base_table=b.target(vocab=448))
    assert "ids below 448 (tensor model.embed_tokens.weight [448, 64])" in said(report, "CFG330")


def test_edited_vocab_size_is_told_from_the_tensors() -> None:
    own = b.dense(draft=448, vocab=448, maps=False, embed=True)
    report = pair({}, {}, b.dense_config(**FULL), table=own)
    assert report.verdict == "fail"
    assert "448" in b.text(report)
    assert "512" in b.text(report)


# --- tokenizers of two families (A05, A08) ------------------------------------------------------------------------


def test_two_tokenizers_disagree_from_low_ids_on() -> None:
    own, theirs = ({"tokenizer.json": tokenizer({f"{x}{i}": i for i in range(n)}, [])} for x, n in
                   (("a", 49152), ("b", 256000)))  # fmt: skip
    report = sized(49152, 256000, own, theirs)
    assert {"PAIR404", "PAIR419"} <= b.codes(report)
    text = said(report, "PAIR419")
    assert "49152 of 49152 common ids differ, 206848 ids are in one only" in text
    assert "0: 'a0' against 'b0'; 1: 'a1' against 'b1'; 2: 'a2' against 'b2'" in text


def test_two_sizes_tell_two_tokenizers_apart() -> None:
    report = sized(32000, 128256, {}, {})
    assert "32000" in said(report, "PAIR404")
    assert "128256" in said(report, "PAIR404")


# --- mask tokens --------------------------------------------------------------------------------------------------

LAYERS_OF_BLOCK = 5


def block(mask: int, base: Files, vocab: int = 512) -> Report:
    """Check a block drafter, whose mask id stands in a table of its config."""
    config = b.dense_config(architectures=["DFlashDraftModel"], num_hidden_layers=2, draft_vocab_size=ABSENT,
                            eagle_config=ABSENT, num_target_layers=b.LAYERS, block_size=8, vocab_size=vocab,
                            dflash_config={"mask_token_id": mask, "target_layer_ids": [1, 5, 9]})  # fmt: skip
    return pair({}, base, config, table=None)


MASKS: Mapping[int, tuple[str, str]] = {
    510: ("pass", "510: a row without a token"),
    502: ("pass", "502: '<|think|>', an added token"),
    7: ("info", "7: 'w7', ordinary text"),
    501: ("info", "501: '</s>', the target's eos_token"),
}


@pytest.mark.parametrize("mask", MASKS)
def test_mask_token_stands_for_no_text_of_the_target(mask: int) -> None:
    report = block(mask, names(eos_token="</s>", mask_token="<|think|>"))
    (found,) = [f for f in report.findings if f.code == "PAIR446"]
    assert (found.level, f"{found.message} {found.observed}".strip().endswith(MASKS[mask][1])) == (MASKS[mask][0], True)
    assert found.subject == "config.json: dflash_config.mask_token_id"


def test_mask_token_is_inside_the_vocabulary_of_the_target() -> None:
    assert "PAIR410" not in b.codes(block(511, {}))
    report = block(520, {}, vocab=576)
    assert "config.json: dflash_config.mask_token_id" in said(report, "PAIR410")
    assert "0 to 511; 520" in said(report, "PAIR410")


# --- bad files ----------------------------------------------------------------------------------------------------

BAD: Mapping[str, tuple[str, str | bytes, str]] = {
    "cut short": ("tokenizer.json", GOOD[:-9], "(byte"),
    "not UTF-8": ("tokenizer.json", b'{"model": "\xff"}', "not UTF-8"),
    "a list": ("tokenizer.json", "[]", "a list"),
    "empty": ("tokenizer.json", "", "(byte 0)"),
    "no model": ("tokenizer.json", "{}", "model: an object"),
    "a model that is a list": ("tokenizer.json", '{"model": [], "added_tokens": 7}', "model: an object"),
    "no vocabulary": ("tokenizer.json", '{"model": {}}', "model.vocab: an object or a list"),
    "an empty vocabulary": ("tokenizer.json", tokenizer({}, []), "no token at all"),
    "a text for an id": ("tokenizer.json", tokenizer({"a": "0"}), "vocab: 'a': an id"),
    "an id below zero": ("tokenizer.json", tokenizer({"a": 0, "b": -1}), "vocab: 'b': an id"),
    "true for an id": ("tokenizer.json", tokenizer({"a": True}), "vocab: 'a': an id"),
    "an astronomic id": ("tokenizer.json", tokenizer({"a": 2**40}), "vocab: 'a': an id"),
    "a real number for an id": ("tokenizer.json", tokenizer({"a": 1.0}), "vocab: 'a': an id"),
    "a word twice": ("tokenizer.json", '{"model": {"vocab": {"a": 0, "a": 1}}}', "'a' stands twice"),
    "half a surrogate pair": ("tokenizer.json", r'{"model": {"vocab": {"\ud800": 0}}}', "surrogate"),
    "a list of odd rows": ("tokenizer.json", tokenizer([["a", 0], "b"]), "model.vocab[1]: text and score"),
    "added tokens that are an object": ("tokenizer.json", tokenizer(rows={"a": 1}), "added_tokens: a list"),
    "an added token that is text": ("tokenizer.json", tokenizer(rows=["a"]), "added_tokens[0]: an object"),
    "an added token without an id": ("tokenizer.json", tokenizer(rows=[{"content": "a"}]), "added_tokens[0].id"),
    "an added token without a text": ("tokenizer.json", tokenizer(rows=[{"id": 1}]), "added_tokens[0]: text"),
    "too deep": ("tokenizer.json", "[" * 100 + "]" * 100, "64 levels"),
    "a vocab.txt that is not UTF-8": ("vocab.txt", b"a\n\xff", "byte 2"),
    "an empty vocab.txt": ("vocab.txt", "", "no token at all"),
    "an empty vocab.json": ("vocab.json", "{}", "no token at all"),
    "an empty sentencepiece model": ("tokenizer.model", b"", "an empty file"),
    "an empty tiktoken file": ("x.tiktoken", b"", "no token at all"),
    "a config that is a list": ("tokenizer_config.json", "[]", "a list"),
    "a table of added tokens that is a list": ("tokenizer_config.json", '{"added_tokens_decoder": []}', "a list"),
    "an id that is a word": ("tokenizer_config.json", '{"added_tokens_decoder": {"x": "a"}}', '"x"'),
    "an added token that is a number": ("tokenizer_config.json", '{"added_tokens_decoder": {"1": 7}}', "a number"),
    "a named token without content": ("tokenizer_config.json", '{"eos_token": {}}', "eos_token: text"),
    "added tokens of text ids": ("added_tokens.json", '{"a": "1"}', "a: an id"),
    "a map that is text": ("special_tokens_map.json", '"a"', "text"),
    "a template that is no JSON": ("chat_template.json", "{", "(byte"),
}


@pytest.mark.parametrize("name", BAD)
def test_file_that_cannot_be_used_is_said_and_nothing_is_concluded_from_it(name: str) -> None:
    file, raw, shown = BAD[name]
    report = pair({file: raw}, {"tokenizer.json": GOOD})
    found = [f for f in report.findings if f.code == "CFG333"]
    assert [f.level for f in found] == ["unknown"], b.text(report)
    assert found[0].subject == f"drafter {file}"
    assert shown in f"{found[0].expected} {found[0].observed}"
    assert report.verdict == "unknown", b.text(report)
    assert b.codes(report) <= {"CFG333 unknown", "PAIR419 unknown", "PAIR447 info"}, b.text(report)


def test_ids_that_a_broken_file_may_name_are_not_said_to_be_without_a_token() -> None:
    words = tokenizer(rows=[])  # the special tokens stand in the other file
    rows = {str(i): {"content": text, "special": True} for text, i in SPECIAL.items()}
    whole = {"tokenizer.json": words, "tokenizer_config.json": json.dumps({"added_tokens_decoder": rows})}
    broken = whole | {"tokenizer_config.json": "{"}
    assert beyond_padding(ids(files=whole, base=whole)) == set()
    report = ids(files=broken, base=whole)
    assert b.codes(report) == {"CFG333 unknown", "PAIR419 unknown", "PAIR447 info"}, b.text(report)
    assert "500 of 500 common ids are the same; not all files can be used" in said(report, "PAIR419")


def test_lines_of_a_vocabulary_end_at_line_feeds_only() -> None:
    lines = ["a", "\u2028", "b\x0bc", "\x85"]
    report = pair({"vocab.txt": "\r\n".join(lines)}, {"vocab.txt": "\n".join(lines) + "\n"},
                  b.dense_config(**NO_IDS), b.target_config(**NO_IDS))  # fmt: skip
    assert beyond_padding(report) == set()
    assert "4 real ids, the largest 3" in said(report, "PAIR447")


def test_file_that_cannot_be_read_is_said() -> None:
    report = pair({"tokenizer.json": GOOD}, {"tokenizer.json": GOOD}, unread="tokenizer.json")
    assert "Permission denied" in said(report, "CFG333")
    assert report.verdict == "unknown"


def test_file_beyond_the_bound_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, config, table in (
        (b.DRAFTER, b.dense_config(), b.dense()),
        (b.TARGET, b.target_config(), b.target()),
    ):
        (b.write(tmp_path / folder, config, table) / "tokenizer.json").write_text(GOOD)
    with (tmp_path / b.DRAFTER / "tokenizer.json").open("wb") as file:
        file.truncate(65 << 20)
    report = b.check(b.DRAFTER, b.TARGET)
    assert beyond_padding(report) == {"CFG333 unknown", "PAIR419 unknown"}, b.text(report)
    assert report.bytes_read < 1 << 20


def test_json_of_too_many_values_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_VALUES", 100)
    assert "at most 100 values; more" in said(pair({"tokenizer.json": GOOD}, {}), "CFG333")


def test_id_that_two_words_have_is_a_contradiction() -> None:
    report = pair({"tokenizer.json": tokenizer(dict(WORDS) | {"again": 3})}, {"tokenizer.json": GOOD})
    assert "one token for id 3; 'w3' and 'again'; 1 in all" in said(report, "CFG334")


def test_arbitrary_bytes_never_raise() -> None:
    rng = random.Random(7)
    files = ["tokenizer.json", "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json", "vocab.json",
             "vocab.txt", "x.tiktoken", "tokenizer.model", "chat_template.json", "generation_config.json"]  # fmt: skip
    good = {"tokenizer_config.json": names(eos_token="</s>")["tokenizer_config.json"]}
    for _ in range(300):
        file = rng.choice(files)
        raw = bytearray(str(good.get(file, GOOD)).encode())
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(raw))
            raw[at : at + rng.randint(0, 9)] = bytes(rng.choices(b'{}[]",:0-1e9tnN\\u\xff ab', k=rng.randint(0, 9)))
        report = pair({file: bytes(raw)}, {"tokenizer.json": GOOD})
        assert all(f.code for f in report.findings)


# --- speed --------------------------------------------------------------------------------------------------------


def test_identical_files_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    parse = tokenizer_module.parse_vocabulary
    monkeypatch.setattr(tokenizer_module, "parse_vocabulary", lambda name, raw: seen.append(name) or parse(name, raw))
    pair({"tokenizer.json": GOOD}, {"tokenizer.json": GOOD})
    pair({"tokenizer.json": GOOD}, {"tokenizer.json": tokenizer(version="1")})
    assert len(seen) == 3


def test_large_tables_are_compared_in_a_few_times_what_it_takes_to_read_them() -> None:
    vocab = {f"w{i}": i for i in range(150_000)}
    merges = [f"w{i} w{i + 1}" for i in range(150_000)]
    texts = [json.dumps({"version": v, "model": {"type": "BPE", "vocab": vocab, "merges": merges}}) for v in "12"]
    start = time.process_time()
    for text in texts:
        json.loads(text)
    read = time.process_time() - start
    start = time.process_time()
    report = sized(150_000, 150_000, {"tokenizer.json": texts[0]}, {"tokenizer.json": texts[1]})
    assert b.codes(report) == set()
    assert time.process_time() - start < 12 * read + 1


# --- whole models as drafters (A01, A02, A04, A05, A08, A11) ------------------------------------------------------


def whole(vocab: int, files: Files, rows: int = 0, **more: Any) -> Source:
    """Return a small Llama, which reads token ids alone, of so many ids, or rows."""
    config = b.target_config(vocab_size=vocab, num_hidden_layers=1, **NO_IDS, **more)
    p, hidden, wide = "model.layers.0.", b.HIDDEN, b.HEADS * b.DIM
    sizes = {f"{p}{norm}.weight": (hidden,) for norm in ("input_layernorm", "post_attention_layernorm")} | {
        "model.embed_tokens.weight": (rows or vocab, hidden), "lm_head.weight": (rows or vocab, hidden),
        "model.norm.weight": (hidden,), f"{p}self_attn.q_proj.weight": (wide, hidden),
        f"{p}self_attn.k_proj.weight": (b.KV * b.DIM, hidden), f"{p}self_attn.v_proj.weight": (b.KV * b.DIM, hidden),
        f"{p}self_attn.o_proj.weight": (hidden, wide), f"{p}mlp.gate_proj.weight": (160, hidden),
        f"{p}mlp.up_proj.weight": (160, hidden), f"{p}mlp.down_proj.weight": (hidden, 160),
    }  # fmt: skip
    return side(config, {name: ("BF16", shape) for name, shape in sizes.items()}, b.DRAFTER, files)


def beside(vocab: int, files: Files) -> Source:
    """Return its target."""
    return side(b.target_config(vocab_size=vocab, **NO_IDS), b.target(vocab=vocab), b.TARGET, files)


def test_whole_model_with_the_target_s_tokenizer_is_good() -> None:
    full = {"tokenizer.json": tokenizer({f"w{i}": i for i in range(512)}, [])}
    assert b.codes(b.check(whole(512, full), beside(512, full))) == set()


@pytest.mark.parametrize(("own", "theirs"), [(576, 640), (640, 576)])
def test_whole_model_that_is_padded_otherwise_is_good(own: int, theirs: int) -> None:
    full = {"tokenizer.json": tokenizer({f"w{i}": i for i in range(512)}, [])}
    report = b.check(whole(own, full), beside(theirs, full))
    assert b.codes(report) == {"PAIR421 info", "PAIR447 info"}, b.text(report)
    assert report.verdict == "pass"


def test_whole_model_of_another_size_is_refused_where_no_tokenizer_tells() -> None:
    report = b.check(whole(576, {}), beside(640, {}))
    assert b.codes(report) == {"PAIR404", "PAIR448 unknown"}, b.text(report)


@pytest.mark.parametrize(
    ("own", "theirs", "lacking"),
    [({}, {"tokenizer.json": GOOD}, "none of the drafter"), ({"tokenizer.json": GOOD}, {}, "none of the target"),
     ({}, {}, "none of the drafter and target"), ({"tokenizer_config.json": "{}"}, {}, "none of the drafter and ")],
)  # fmt: skip
def test_whole_model_is_not_judged_without_both_tokenizers(own: Files, theirs: Files, lacking: str) -> None:
    report = b.check(whole(512, own), beside(512, theirs))
    assert report.verdict == "unknown"
    assert lacking in said(report, "PAIR448", level="unknown")


def test_whole_model_with_another_tokenizer_is_refused() -> None:
    own, theirs = {"tokenizer.json": tokenizer(SWAPPED)}, {"tokenizer.json": GOOD}
    report = b.check(whole(512, own), beside(512, theirs))
    assert beyond_padding(report) == {"PAIR419"}


def test_config_edited_to_the_size_of_the_target_is_told_from_the_tensors() -> None:
    report = b.check(whole(640, {}, rows=576), beside(640, {}))
    assert report.verdict == "fail"
    assert "576" in b.text(report)
    assert "640" in b.text(report)


# --- one side alone -----------------------------------------------------------------------------------------------


def test_special_ids_of_a_config_alone_are_held_to_its_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "draft.json"
    path.write_text(json.dumps(b.dense_config(bos_token_id=151643, eos_token_id=[2, 151645])))
    report = api.check_config(path, b.LIBRARY)
    assert [f.subject for f in report.findings if f.code == "CFG331"] == [
        "drafter config.json: bos_token_id", "drafter config.json: eos_token_id",
    ]  # fmt: skip
    assert "0 to 511 (drafter config.json: vocab_size); 151645" in said(report, "CFG331")
    path.write_text(json.dumps(b.dense_config()))
    assert "CFG331" not in b.codes(api.check_config(path, b.LIBRARY))


def test_special_id_inside_its_own_vocabulary_and_outside_the_target_s_is_of_the_pair() -> None:
    report = sized(576, 512, {}, {}, eos_token_id=ABSENT)
    assert "PAIR410" not in b.codes(report)
    config = b.dense_config(vocab_size=576, eos_token_id=550, **FULL)
    report = pair({}, {}, config, table=b.dense(draft=576, vocab=576, maps=False))
    assert "config.json: eos_token_id" in said(report, "PAIR410", level="error")
    assert "0 to 511; 550" in said(report, "PAIR410")
    assert "CFG331" not in b.codes(report)
