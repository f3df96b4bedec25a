"""Files of a tokenizer, as the libraries read them that engines load them with: what they refuse, and as which error.

The tables are of tokenizers 0.22 and transformers 5.19: the types of each part of a tokenizer.json, and the fields
without which one is not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

# type -> the fields that it must state; a field in _PARTS holds more of the same
_NORMALIZERS = {
    "BertNormalizer": ("clean_text", "handle_chinese_chars", "lowercase"), "Strip": ("strip_left", "strip_right"),
    "StripAccents": (), "NFC": (), "NFD": (), "NFKC": (), "NFKD": (), "Sequence": ("normalizers",), "Lowercase": (),
    "Nmt": (), "Precompiled": (), "Replace": ("pattern", "content"), "Prepend": ("prepend",), "ByteLevel": (),
}  # fmt: skip
_SPLITTERS = {
    "BertPreTokenizer": (), "ByteLevel": ("add_prefix_space", "trim_offsets"), "CharDelimiterSplit": ("delimiter",),
    "Metaspace": (), "Whitespace": (), "Sequence": ("pretokenizers",), "Split": ("pattern", "behavior", "invert"),
    "Punctuation": (), "WhitespaceSplit": (), "Digits": ("individual_digits",), "UnicodeScripts": (), "FixedLength": (),
}  # fmt: skip
_PROCESSORS = {
    "RobertaProcessing": ("sep", "cls", "trim_offsets", "add_prefix_space"), "BertProcessing": ("sep", "cls"),
    "ByteLevel": ("add_prefix_space", "trim_offsets"), "TemplateProcessing": ("single", "pair", "special_tokens"),
    "Sequence": ("processors",),
}  # fmt: skip
_DECODERS = {
    "BPEDecoder": ("suffix",), "ByteLevel": ("add_prefix_space", "trim_offsets"), "WordPiece": ("prefix", "cleanup"),
    "Metaspace": (), "CTC": ("pad_token", "word_delimiter_token", "cleanup"), "Sequence": ("decoders",),
    "Replace": ("pattern", "content"), "Fuse": (), "Strip": ("content", "start", "stop"), "ByteFallback": (),
}  # fmt: skip
_PARTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "normalizer": _NORMALIZERS, "pre_tokenizer": _SPLITTERS, "post_processor": _PROCESSORS, "decoder": _DECODERS,
}  # fmt: skip
_INNER = {"normalizers": "normalizer", "pretokenizers": "pre_tokenizer", "processors": "post_processor",
          "decoders": "decoder"}  # fmt: skip
_MODELS = {
    "BPE": ("vocab", "merges"), "WordPiece": ("vocab", "unk_token", "continuing_subword_prefix",
    "max_input_chars_per_word"), "WordLevel": ("vocab", "unk_token"), "Unigram": ("vocab",),
}  # fmt: skip
_ADDED = {"content": str, "single_word": bool, "lstrip": bool, "rstrip": bool, "normalized": bool, "special": bool}
_TEXTS = ("unk_token", "continuing_subword_prefix", "end_of_word_suffix")
_TRUTHS = ("fuse_unk", "byte_fallback", "ignore_merges")
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
DEPTH = 16  # parts within parts that are looked at


def refused(data: Any) -> str:
    """Return why tokenizers does not read what a tokenizer.json holds; "" if nothing is seen."""
    if not isinstance(data, dict):
        return "it is no object"
    if data.get("version", "1.0") != "1.0":
        return "version: it is not 1.0"
    for key, field in (("truncation", "max_length"), ("padding", "strategy")):
        value = data.get(key)
        if value is not None and not (isinstance(value, dict) and field in value):
            return f"{key}: no object with {field}"
    if (length := (data.get("truncation") or {}).get("max_length", 0)) is not None and not _u32(length):
        return "truncation: max_length is no number"
    added = data.get("added_tokens", [])
    if not isinstance(added, list) or not all(_is_added(one) for one in added):
        return "added_tokens: one lacks a field, or has one of another type"
    odd = next((key for key in _PARTS if key in data and not _is_part(key, data[key])), "")
    return f"{odd}: no part of a type that is known, with all that it must state" if odd else _model(data.get("model"))


def _u32(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 32


def _is_added(one: Any) -> bool:
    return isinstance(one, dict) and _u32(one.get("id")) and all(type(one.get(k)) is kind for k, kind in _ADDED.items())


def _is_part(key: str, value: Any, depth: int = 0) -> bool:
    """Tell whether a part is null, or of a known type with all fields; so are those within it."""
    if value is None and not depth:
        return True
    fields = _PARTS[key].get(str(value.get("type"))) if isinstance(value, dict) else None
    if fields is None or any(field not in value for field in fields):
        return False
    within = [(field, value[field]) for field in fields if field in _INNER]
    return depth > DEPTH or all(
        isinstance(rows, list) and all(_is_part(_INNER[field], row, depth + 1) for row in rows)
        for field, rows in within
    )


def _model(model: Any) -> str:
    if not isinstance(model, dict) or not model:
        return "model: no object"
    kind = model.get("type", "BPE" if "merges" in model else None)
    if "type" not in model and kind is None:
        return ""  # which of them it is meant to be is told by its fields
    fields = _MODELS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        return "model: its type is not known"
    if any(field not in model for field in fields):
        return f"model: {kind} lacks {next(field for field in fields if field not in model)}"
    vocab = model["vocab"]
    if kind == "Unigram":
        return "" if isinstance(vocab, list) else "model.vocab: no list"
    if not isinstance(vocab, dict) or not all(map(_u32, vocab.values())):
        return "model.vocab: no map of texts to numbers"
    if kind != "BPE":
        return next(
            (f"model.{key}: no text" for key in fields if key in _TEXTS and not isinstance(model[key], str)), ""
        )
    for keys, kinds in ((_TEXTS, (str, type(None))), (_TRUTHS, (bool, type(None)))):
        if bad := next((key for key in keys if not isinstance(model.get(key), kinds)), ""):
            return f"model.{bad}: of another type"
    drop = model.get("dropout")
    if drop is not None and not (type(drop) in (int, float) and 0 <= drop <= 1):
        return "model.dropout: no number from 0 to 1"
    return _merges(model["merges"], vocab, model.get("continuing_subword_prefix") or "")


def _merges(merges: Any, vocab: Mapping[str, int], prefix: str) -> str:
    """Return why merges are refused: each is two tokens, as one text or as a list of two, that make a third."""
    if not isinstance(merges, list):
        return "model.merges: no list"
    if merges and not (all(isinstance(one, str) for one in merges) or all(_two(one) for one in merges)):
        return "model.merges: neither texts nor lists of two"
    for one in merges:
        if isinstance(one, str) and one.startswith("#version"):
            continue
        pair = one.split(" ") if isinstance(one, str) else one
        if len(pair) != 2:
            return "model.merges: one is not of two tokens"
        made = (*pair, pair[0] + pair[1][len(prefix) :])
        if lost := next(islice((token for token in made if token not in vocab), 1), None):
            return f"model.merges: {lost[:40]!r} is not in the vocabulary"
    return ""


def _two(one: Any) -> bool:
    return isinstance(one, list) and len(one) == 2 and all(isinstance(part, str) for part in one)


def beside(config: Any, listed: Any, added: Any) -> str:
    """Return the error that transformers raises for what tokenizer_config, special_tokens_map and added_tokens say.

    Those that hold no object are told elsewhere.
    """
    config, listed, added = (one if isinstance(one, dict) else {} for one in (config, listed, added))
    if "added_tokens_decoder" in config and not isinstance(config["added_tokens_decoder"], dict):
        return "AttributeError"
    texts = [
        config.get(name) for name in _NAMED if not (isinstance(config.get(name), dict) and "__type" in config[name])
    ]
    texts += [listed.get(name) for name in _NAMED if not isinstance(listed.get(name), dict)]
    if not all(isinstance(one, (str, type(None))) for one in texts):
        return "TypeError"
    if isinstance(config.get("model_max_length"), str) or not all(
        type(one) in (int, float, bool) for one in added.values()
    ):
        return "TypeError"
    return ""


def apart(mine: tuple[Any, Any, Any], theirs: tuple[Any, Any, Any], most: int, first: int = 5) -> str:
    """Tell by what two tokenizers are apart.

    Each is a tokenizer.json, a tokenizer_config.json and the bos_token_id of a config.json. ends: one adds a first or
    last token and the other none, or another; tokens: below `most`, from `first` on, an id stands for other texts.
    "" where nothing is seen, or one of them is none of byte pairs.
    """
    if not all(isinstance(one, dict) and _paired(one) for one, *_ in (mine, theirs)):
        return ""
    if _ends(*mine) != _ends(*theirs):
        return "ends"
    own, other = _texts_of(mine[0]), _texts_of(theirs[0])
    return "tokens" if any(own.get(id) != other.get(id) for id in {*own, *other} if first <= id < most) else ""


def _paired(data: Mapping[str, Any]) -> bool:
    model = data.get("model")
    return isinstance(model, dict) and model.get("type") == "BPE" and isinstance(model.get("vocab"), dict)


def _texts_of(data: Mapping[str, Any]) -> dict[int, str]:
    added = data.get("added_tokens")
    listed = [one for one in added if isinstance(one, dict)] if isinstance(added, list) else []
    found = {id: text for text, id in data["model"]["vocab"].items() if type(id) is int}
    return found | {one["id"]: str(one.get("content")) for one in listed if type(one.get("id")) is int}


def _ends(data: Mapping[str, Any], config: Any, id: Any) -> tuple[Any, bool]:
    """Return the token that is added first, and whether a last one is: by the config, else by a template."""
    said = config if isinstance(config, dict) else {}
    process = data.get("post_processor")
    parts = process.get("processors", [process]) if isinstance(process, dict) else []
    begins = closes = False
    for part in parts if isinstance(parts, list) else []:
        single = part.get("single") if isinstance(part, dict) else None
        if not isinstance(single, list) or len(single) < 2 or part.get("type") != "TemplateProcessing":
            continue
        begins, closes = (isinstance(one, dict) and "SpecialToken" in one for one in (single[0], single[-1]))
    bos, eos = said.get("add_bos_token"), said.get("add_eos_token")
    named = said.get("bos_token")
    text = named.get("content") if isinstance(named, dict) else named
    listed = data.get("added_tokens") if isinstance(data.get("added_tokens"), list) else []
    given = next((one.get("id") for one in listed or () if isinstance(one, dict) and one.get("content") == text), id)
    adds = bos if isinstance(bos, bool) else begins
    return adds and given, eos if isinstance(eos, bool) else closes
