"""Run cases in vLLM, in its own interpreter, and write what became of each as a JSON line. Knows nothing of draftproof.

    VENV/bin/python run_vllm.py CASES [--runner V1|V2] [--only REGEX] [--out FILE]

Where FILE has a case already, as it is now, at this version and by this runner, it is not run again.

The launch line of a case is read by vLLM's own parser; flags, configs, classes, weights, target and drafter are vLLM's.
Ours is only how the engine is held: one process, one sequence at a time, no tokenizer. vLLM is imported once, and each
case runs in a fork. What a checkpoint leaves unset is memory that was never written: there it is normal noise, from a
generator seeded for each model, so that a run can be repeated and such a parameter never happens to be right.

The runner V2 needs Triton kernels. On a machine without a GPU they run in Triton's interpreter.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import importlib.util
import json
import logging
import os
import re
import select
import signal
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

ENGINE = "vllm"
LIMIT = 240  # seconds for one case
MOST = {
    "V1": 25,
    "V2": 3,
}  # tokens to generate: one draft, its check, and one more; a step of the interpreter takes long
ENVIRONMENT = {  # before vLLM is imported
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_HOST_IP": "127.0.0.1", "VLLM_CONFIGURE_LOGGING": "0",
    "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}  # fmt: skip
HOLD = {  # how the engine is held here; none of it is about drafting
    "skip_tokenizer_init": True, "max_num_seqs": 1, "max_num_batched_tokens": 256, "num_gpu_blocks_override": 64,
    "enable_prefix_caching": False, "distributed_executor_backend": "uni", "disable_log_stats": False,
}  # fmt: skip
COMMON = (  # what all cases need, imported before the first, so that a fork has it
    "compressed_tensors.quantization", "vllm.model_executor.layers.quantization.online.base",
    "vllm.model_executor.models.llama_eagle3", "vllm.model_executor.model_loader.default_loader",
    "vllm.v1.attention.backends.cpu_attn", "vllm.v1.engine.llm_engine", "vllm.v1.metrics.reader",
    "vllm.v1.worker.cpu_worker", "vllm.v1.worker.cpu_model_runner",
)  # fmt: skip


def prepare(runner: str) -> None:
    """Set the environment; must come before vLLM is imported."""
    os.environ.update(ENVIRONMENT)
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1" if runner == "V2" else "0"
    if "PYTHONPATH" in os.environ:  # model classes are inspected in another process, from another folder
        paths = os.environ["PYTHONPATH"].split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in paths)
    if runner == "V2" and not os.path.exists("/dev/nvidiactl"):
        os.environ["TRITON_INTERPRET"] = "1"
        from triton import backends

        class Driver:
            """Stand for the driver of a backend that vLLM only asks for and the interpreter does not use."""

            @staticmethod
            def is_active() -> bool:
                """Say no."""
                return False

        backends.backends["cpu"] = types.SimpleNamespace(driver=Driver, compiler=None)


def command_line() -> Any:
    """Return the module of vLLM that reads command lines; it stands elsewhere in each version."""
    for place in ("common", "launchers", "openai"):
        if importlib.util.find_spec(f"vllm.entrypoints.{place}"):
            with suppress(ModuleNotFoundError):
                return importlib.import_module(f"vllm.entrypoints.{place}.cli_args")
    raise SystemExit("this build's parser of command lines is not where this runner looks for it")


def decode(out: Any, query: Any, cache: Any, scale: float, tables: Any, lengths: Any) -> None:
    """Attend in plain torch as the CPU's kernel for latent attention does, which is made for one size alone."""
    for row, length in enumerate(lengths.tolist()):
        blocks = tables[row, : -(-length // cache.shape[1])].long()
        rows = cache[blocks].reshape(-1, cache.shape[-1])[:length].float()
        weights = (query[row].float() @ rows.T * scale).softmax(-1)
        out[row] = weights @ rows[:, : out.shape[-1]]


def any_size() -> None:
    """Let latent attention have any size, and blocks as long as those of a target with other attention."""
    from vllm import _custom_ops
    from vllm.v1.attention.backend import MultipleOf
    from vllm.v1.attention.backends.mla.cpu_mla import CPUMLABackend

    CPUMLABackend.get_supported_head_sizes = classmethod(lambda cls: [])
    CPUMLABackend.get_supported_kernel_block_sizes = staticmethod(lambda kv_cache_spec=None: [MultipleOf(16)])
    CPUMLABackend.supports_block_size = classmethod(lambda cls, block_size: True)
    _custom_ops.mla_decode_kvcache_cpu = decode


def plain_products() -> None:
    """Let torch multiply: the CPU's own kernel reads past a state that is too narrow, which a GPU refuses."""
    from vllm import _custom_ops

    _custom_ops._supports_onednn = False


def copies() -> None:
    """Let a copy for the device be another tensor, as on a GPU: the CPU's is the same, and its lengths count double."""
    from vllm.v1.spec_decode import llm_base_proposer

    plain = llm_base_proposer.async_tensor_h2d
    llm_base_proposer.async_tensor_h2d = lambda *args, **named: plain(*args, **named).clone()


def masks() -> None:
    """Let Triton's interpreter load and store by masks that are no bools, as a GPU does."""
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def held(mask: Any) -> Any:
        return mask if mask.data.dtype == bool else TensorHandle(mask.data.astype(bool), mask.dtype)

    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store
    InterpreterBuilder.create_masked_load = lambda self, ptrs, mask, *rest, **named: load(
        self, ptrs, held(mask), *rest, **named
    )
    InterpreterBuilder.create_masked_store = lambda self, ptrs, value, mask, *rest, **named: store(
        self, ptrs, value, held(mask), *rest, **named
    )


class Seen:
    """Hold what was seen of a case so far."""

    def __init__(self) -> None:
        self.stage = "flags"
        self.aux: list[int] | None = None
        self.rows: list[Any] = []
        self.tokens: list[int] | None = None
        self.models: list[tuple[Any, dict[str, Any]]] = []
        self.warnings: list[str] = []


class Warnings(logging.Handler):
    """Keep the first lines of what is logged as a warning or worse."""

    def __init__(self, seen: Seen) -> None:
        super().__init__(logging.WARNING)
        self.seen = seen

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        text = record.getMessage().strip().split("\n")[0][:200]
        if text not in self.seen.warnings and len(self.seen.warnings) < 12:
            self.seen.warnings.append(text)


@contextmanager
def noise(seed: int) -> Iterator[None]:
    """Fill memory that torch.empty returns with normal noise, meanwhile."""
    import torch

    plain, generator = torch.empty, torch.Generator().manual_seed(seed)

    def empty(*args: Any, **kwargs: Any) -> Any:
        made = plain(*args, **kwargs)
        if made.is_floating_point() and made.device.type == "cpu":
            made.data.copy_(torch.randn(made.shape, generator=generator))
        return made

    torch.empty = empty
    try:
        yield
    finally:
        torch.empty = plain


def watch(seen: Seen) -> None:
    """Wrap what makes models, chooses layers and drafts, so that it is seen; called once in the process of a case."""
    from vllm.model_executor.model_loader import base_loader
    from vllm.model_executor.models import interfaces
    from vllm.v1.worker import worker_base

    make, layers = base_loader.initialize_model, interfaces.EagleModelMixin._set_aux_hidden_state_layers

    def initialize_model(*args: Any, **kwargs: Any) -> Any:
        with noise(len(seen.models)):
            made = make(*args, **kwargs)
        seen.models.append((made, {name: p.detach().clone() for name, p in made.named_parameters()}))
        return made

    def set_layers(self: Any, ids: Any) -> Any:
        result = layers(self, ids)
        seen.aux = [int(i) for i in self.aux_hidden_state_layers]
        return result

    base_loader.initialize_model = initialize_model
    interfaces.EagleModelMixin._set_aux_hidden_state_layers = set_layers
    load = worker_base.WorkerWrapperBase.load_model if hasattr(worker_base.WorkerWrapperBase, "load_model") else None
    from vllm.v1.worker.cpu_worker import CPUWorker

    load = CPUWorker.load_model

    def load_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.stage = "load"
        result = load(self, *args, **kwargs)
        seen.stage = "run"
        return result

    CPUWorker.load_model = load_model


def spy(owner: Any, name: str, of: Callable[[Any], None] | None, given: Callable[[Any], None] | None = None) -> None:
    """Tell of what a method of an object returns, and of what it is given first."""
    plain = getattr(owner, name)

    def told(*args: Any, **kwargs: Any) -> Any:
        if given is not None:
            given(args[0])
        result = plain(*args, **kwargs)
        if of is not None:
            of(result)
        return result

    setattr(owner, name, told)


def first_rows(seen: Seen) -> Callable[[Any], None]:
    """Return what keeps the first rows of logits."""

    def tell(result: Any) -> None:
        if hasattr(result, "shape") and len(seen.rows) < 2:
            seen.rows.extend(result.detach().float().reshape(-1, result.shape[-1])[: 2 - len(seen.rows)].tolist())

    return tell


def first_tokens(seen: Seen) -> Callable[[Any], None]:
    """Return what keeps the first proposed tokens."""

    def tell(result: Any) -> None:
        result = result[0] if isinstance(result, tuple) else result
        if seen.tokens is None and hasattr(result, "shape"):
            seen.tokens = [int(n) for n in result.reshape(result.shape[0], -1)[0].tolist()]

    return tell


def run(case: dict[str, Any], places: dict[str, str], seen: Seen, most: int) -> dict[str, Any]:
    """Run one case, and return what is known beside `seen`."""
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.inputs import TokensPrompt
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm.v1.metrics.reader import get_metrics_snapshot

    words = [re.sub(r"\{(target|drafter)\}", lambda m: places[m[1]], word) for word in case["launch"][ENGINE]]
    lines, parser = command_line(), FlexibleArgumentParser()
    lines.make_arg_parser(parser.add_subparsers(dest="subparser").add_parser("serve"))
    args = parser.parse_args(words[words.index("serve") :])  # it reads a line otherwise that begins with this word
    lines.validate_parsed_serve_args(args)
    args.model = args.model_tag or args.model
    made = AsyncEngineArgs.from_cli_args(args)
    for name, value in HOLD.items():
        setattr(made, name, value)
    seen.stage = "config"
    config = made.create_engine_config()
    watch(seen)
    seen.stage = "load"
    engine = LLMEngine.from_vllm_config(config)
    runner = engine.model_executor.driver_worker.worker.model_runner
    drafter = getattr(runner, "drafter", None) or getattr(runner, "speculator", None)
    model = getattr(drafter, "model", None)
    if hasattr(drafter, "_sample_sequential"):  # it adds to the logits of a block before it samples them one by one
        spy(drafter, "_sample_logits", None, first_rows(seen))
    elif model is not None:
        spy(model, "compute_logits", first_rows(seen))
    if drafter is not None:
        spy(drafter, "propose", first_tokens(seen))
    prompt = TokensPrompt(prompt_token_ids=case["prompt"])
    plain = {"temperature": 0, "max_tokens": min(case["tokens"], most), "ignore_eos": True, "detokenize": False}
    more = case.get("request", {})
    if "logit_bias" in more:  # JSON has no numbers for keys
        more = more | {"logit_bias": {int(token): bias for token, bias in more["logit_bias"].items()}}
    params = SamplingParams(**plain | more)
    engine.add_request("0", prompt, params)
    while engine.has_unfinished_requests():
        engine.step()
    counts = {m.name.rpartition("spec_decode_num_")[2]: getattr(m, "value", None) for m in get_metrics_snapshot()}
    unset = []
    for held, before in seen.models[1:]:
        now = dict(held.named_parameters())
        unset += [name for name, old in before.items() if name in now and old.equal(now[name].data)]
    return {"accepted": counts.get("accepted_tokens"), "drafted": counts.get("draft_tokens"), "unset": unset}


def innermost(error: BaseException) -> BaseException:
    """Return the error that was raised first, where others were raised from it or report it."""
    while True:
        listed = [e.get("ctx", {}).get("error") for e in error.errors()] if hasattr(error, "errors") else []
        inner = error.__cause__ or next((e for e in listed if isinstance(e, BaseException)), None)
        if inner is None or (isinstance(inner, (KeyError, AttributeError)) and isinstance(error, ImportError)):
            return error
        error = inner


def rounded(value: float) -> float | str:
    """Return a number that JSON can hold."""
    return round(value, 6) if abs(value) < 1e30 else "nan" if value != value else "inf" if value > 0 else "-inf"


def judge(folder: Path, path: Path, runner: str, version: str) -> dict[str, Any]:
    """Run one case in this process, and return its line."""
    case = json.loads(path.read_text(encoding="utf-8"))
    os.environ.update(case.get("env", {}).get(ENGINE, {}))
    places = {"target": str(folder / "targets" / case["target"]), "drafter": str(path.parent / case["drafter"])}
    seen, start = Seen(), time.time()
    logging.getLogger("vllm").addHandler(Warnings(seen))
    line: dict[str, Any] = {"id": case["id"], "engine": ENGINE, "version": version, "runner": runner}
    try:
        line |= {"outcome": "ran", "stage": "run", "error": "", "message": "", **run(case, places, seen, MOST[runner])}
    except BaseException as raised:
        error = innermost(raised)
        text = re.sub(re.escape(str(folder)) + r"[^\s'\"]*", "PATH", str(error))
        line |= {"outcome": "refused", "stage": seen.stage, "error": type(error).__name__, "message": text[:300]}
    logits = [[rounded(x) for x in row] for row in seen.rows] or None
    line |= {"logits": logits, "tokens": seen.tokens, "aux": seen.aux, "warnings": seen.warnings}
    return {**line, "seconds": round(time.time() - start, 1)}


def digest(folder: Path, path: Path) -> str:
    """Return what changes where anything of a case does that the engine sees: its words and all files."""
    case = json.loads(path.read_text(encoding="utf-8"))
    words = [case["launch"][ENGINE], case["env"].get(ENGINE, {}), case["prompt"], case["tokens"]]
    words += [case["request"]] if "request" in case else []
    seen = hashlib.sha256(json.dumps(words).encode())
    for place in (folder / "targets" / case["target"], path.parent / case["drafter"]):
        for file in sorted(p for p in place.rglob("*") if p.is_file()):
            seen.update(str(file.relative_to(place)).encode() + file.read_bytes())
    return seen.hexdigest()[:16]


def forked(work: Callable[[], dict[str, Any]], log: Path) -> dict[str, Any]:
    """Return what a function returns in a process of its own, whose output goes to a file."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(readable)
        sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        with os.fdopen(writable, "wb") as out:
            out.write(json.dumps(work(), default=str).encode())
        os._exit(0)
    os.close(writable)
    data = b""
    while True:
        if not select.select([readable], [], [], LIMIT)[0]:
            os.kill(child, signal.SIGKILL)
            break
        part = os.read(readable, 1 << 16)
        if not part:
            break
        data += part
    os.close(readable)
    status = os.waitpid(child, 0)[1]
    return json.loads(data) if data else {"outcome": "refused", "stage": "run", "error": "died", "message": str(status)}


def main() -> int:
    """Run the cases of a folder."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("cases", type=Path)
    options.add_argument("--runner", choices=("V1", "V2"), default="V2")
    options.add_argument("--only", default="", help="a regular expression that ids must hold")
    options.add_argument("--out", type=Path)
    asked = options.parse_args()
    folder = asked.cases.resolve()
    prepare(asked.runner)
    import torch
    import vllm

    torch.set_num_threads(1)
    gc.collect = lambda *generation: 0  # three quarters of a case's time, and a case's process ends
    from vllm.model_executor.models import registry
    from vllm.platforms import current_platform
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    for name in COMMON:
        importlib.import_module(name)
    command_line().make_arg_parser(FlexibleArgumentParser())
    logging.getLogger("vllm").setLevel(logging.WARNING)
    any_size()
    plain_products()
    copies()
    if "TRITON_INTERPRET" in os.environ:
        masks()
    registry._run_in_subprocess = lambda inspect: (
        inspect()
    )  # a model class is asked what it can; no GPU is to be spared
    current_platform.register_triton_kernel_overrides()  # once: it looks through all modules
    type(current_platform).register_triton_kernel_overrides = classmethod(lambda cls: None)
    gc.disable()
    gc.freeze()
    version = vllm.__version__.partition("+")[0]
    done: set[tuple[str, str]] = set()
    if asked.out and asked.out.exists():
        for text in asked.out.read_text(encoding="utf-8").splitlines():
            old = json.loads(text)
            done |= (
                {(old["id"], old["digest"])} if (old["version"], old["runner"]) == (version, asked.runner) else set()
            )
    with open(asked.out, "a", encoding="utf-8") if asked.out else os.fdopen(1, "w") as out:
        for path in sorted(folder.glob("*/case.json"), key=lambda p: json.loads(p.read_text())["order"]):
            case = json.loads(path.read_text(encoding="utf-8"))
            if ENGINE in case["launch"] and re.search(asked.only, case["id"]):
                row = {"id": case["id"], "engine": ENGINE, "version": version, "runner": asked.runner}
                row["digest"] = digest(folder, path)
                if (case["id"], row["digest"]) not in done:
                    work = partial(judge, folder, path, asked.runner, version)
                    line = forked(work, path.parent / f"{asked.runner}.log")
                    print(json.dumps({**row, **line}), file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
