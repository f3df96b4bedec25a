"""Run cases through SGLang's own code on a plain CPU machine: from the launch line to the drafted tokens of two steps.

    python run_sglang.py CASES [--only ID,ID] [--out FILE] [--seconds N]

Runs in SGLang's interpreter (``benchmarks/truth/install-sglang.sh`` makes one) and reads folders only. SGLang's own
are the argument parser and resolution, the model configs, the loader with its weight loaders and parameter classes,
the model classes of both sides, the choice of captured layers, the sharing of embedding and head, the token map,
every forward and the logits processor. Not SGLang's: the modules without a CPU build (stand-ins that do nothing), the
attention kernel (plain softmax over the keys kept so far), the scheduler and the paged cache.

Each case runs in a process of its own, forked after the imports, so one that dies hard ends alone. The branches for
SGLang's CPU engine are switched off: weight loaders then do what they do on a CUDA machine, where they refuse shapes
that the CPU engine pads.

A parameter that no tensor reached keeps its default if that is a constant (norms are ones, biases zeros). Whatever
the engine would leave to chance, memory that was never written and random initial values, is filled with noise whose
seed is the parameter's name: so two runs repeat, and a drafter that depends on it differs from its twin.

Every id that the drafter's head can give is mapped and looked up once at the end, since some prompt will draft it: a
map that is too short or points beyond the vocabulary is found whatever this prompt drafts.

A quantised drafter is made up to its config and not loaded: its kernels are CUDA's. Then "logits" is null and the
settings, with the lists of unset parameters and ignored tensors, are all there is to compare.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import logging
import math
import os
import select
import signal
import sys
import tempfile
import time
import traceback
import types
import zlib
from pathlib import Path

STANDINS = ("triton", "torchvision", "sgl_kernel", "tvm_ffi", "vllm")  # vllm: only asked for a rope kernel
UNREAD, UNWRITTEN = 31744.0, -28672.0  # marks, exact in every float type: no tensor arrived; memory never written
ENGINE = "sglang"
NOISE = ("Ignore import", "Max running", "Non-overlap", "Overlap sched", "is not supported on CPU")
BLOCK = ("DFLASH", "DSPARK")  # algorithms that draft a block at once and refuse the CPU by its name
QUIET = {  # added to the launch line where it does not speak of them: what a CPU machine needs, and no drafter sees
    "--attention-backend": ["triton"],
    "--mem-fraction-static": ["0.5"],
}


class Nothing:
    """Stand for anything of a module that is not there: attribute, call, decorator, base class."""

    def __init__(self, name: str = "nothing") -> None:
        self.__dict__["name"] = name

    def __getattr__(self, key):
        if key.startswith("__") and key.endswith("__"):
            raise AttributeError(key)
        return self.__dict__.setdefault(key, Nothing(f"{self.name}.{key}"))

    def __call__(self, *args, **kwargs):
        bare = len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type))
        return args[0] if bare else Nothing(f"{self.name}()")

    def __mro_entries__(self, bases):
        return (object,)

    def __getitem__(self, key):
        return Nothing(f"{self.name}[]")

    def __iter__(self):
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __or__(self, other):
        return object

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other) -> bool:
        return self is other

    def __lt__(self, other) -> bool:
        return False

    def _same(self, other):
        return self

    __ror__ = __or__
    __le__ = __gt__ = __ge__ = __lt__
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = _same
    __truediv__ = __rtruediv__ = _same


class Standin(types.ModuleType):
    """Stand for a module that has no build for this machine."""

    def __getattr__(self, key):
        if key == "__version__":
            return "0.0.0"
        if key.startswith("__") and key.endswith("__"):
            raise AttributeError(key)
        made = Nothing(f"{self.__name__}.{key}")
        setattr(self, key, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Find stand-ins for every module below some roots."""

    def __init__(self, roots) -> None:
        self.roots = set(roots)

    def find_spec(self, name, path=None, target=None):
        """Return a spec for a module below one of the roots."""
        found = name.split(".")[0] in self.roots
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if found else None

    def create_module(self, spec):
        """Return the stand-in."""
        module = Standin(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module) -> None:
        """Run nothing."""


def prepare() -> None:
    """Set what must be set before SGLang is imported, and put the stand-ins in place."""
    os.environ.update(SGLANG_USE_CPU_ENGINE="0", HF_HUB_OFFLINE="1", TQDM_DISABLE="1", TOKENIZERS_PARALLELISM="false")
    os.environ.pop("SGLANG_IS_IN_CI", None)
    # these look into a real triton, so they come before one is faked
    for name in (
        "torch",
        "torch._dynamo",
        "torch.utils.flop_counter",
        "torch.distributed.tensor",
        "torch._inductor.compile_fx",
    ):
        importlib.import_module(name)
    absent = [root for root in STANDINS if importlib.util.find_spec(root) is None]
    sys.meta_path.append(Finder(absent))
    if "triton" in absent:  # without a driver SGLang names the device "cpu"
        triton = importlib.import_module("triton")
        triton.runtime = Standin("triton.runtime")
        triton.runtime.driver = object()


if __name__ == "__main__":
    prepare()

import sglang
import sglang.srt.model_loader.loader as loading
import torch
import torch.nn.functional as F
from sglang.srt import runtime_context as context
from sglang.srt.configs.device_config import DeviceConfig
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.distributed import parallel_state
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.model_executor.forward_context import ForwardContext, forward_context
from sglang.srt.model_executor.model_runner_components.attention_backend_setup import configure_aux_hidden_state_capture
from sglang.srt.model_executor.model_runner_components.spec_aux_hidden_state import resolve_spec_aux_hidden_state_config
from sglang.srt.model_loader import get_model
from sglang.srt.models import registry as _registry  # noqa: F401  imported here once, not in every case
from sglang.srt.server_args import prepare_server_args
from sglang.srt.speculative.dflash_utils import parse_dflash_draft_config
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2
from sglang.srt.speculative.dspark_components.dspark_config import resolve_runtime_config
from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.standalone_worker_v2 import StandaloneWorkerV2
from sglang.srt.utils.hf_transformers_utils import get_tokenizer

with contextlib.suppress(ImportError):  # asks for an accelerator where a rope of its own is made
    from sglang.srt.layers.rotary_embedding import rope_variant

    rope_variant.get_device = lambda *args: "cpu"


class Warned(logging.Handler):
    """Keep what SGLang logs as a warning or worse."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record) -> None:
        """Keep the first line of a message."""
        text = f"{record.levelname}: {record.getMessage()}".splitlines()[0][:300]
        if not any(part in text for part in NOISE) and text not in self.lines:
            self.lines.append(text)


class Attention:
    """Attend over all keys kept so far: in place of the kernel and the paged cache, one sequence."""

    token_to_kv_pool = req_to_token_pool = None
    prefill_attention_backend_str = decode_attention_backend_str = None  # the launch line's

    def __init__(self) -> None:
        self.kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # layer -> keys, values [heads, tokens, size]

    def keep(self, layer, k, v):
        """Append keys and values of a layer; return all of them."""
        k = k.reshape(k.shape[0], layer.tp_k_head_num, -1).transpose(0, 1)
        v = v.reshape(v.shape[0], layer.tp_v_head_num, -1).transpose(0, 1)
        if layer.layer_id in self.kept:
            old_k, old_v = self.kept[layer.layer_id]
            k, v = torch.cat([old_k, k], 1), torch.cat([old_v, v], 1)
        self.kept[layer.layer_id] = k, v
        return k, v

    def forward(self, q, k, v, layer, forward_batch, save_kv_cache=True, **rest):
        """Return softmax attention [tokens, heads * size]; causal, with the layer's window, unless it is an encoder."""
        if rest.get("q_rope") is not None:
            q = torch.cat([q.reshape(q.shape[0], layer.tp_q_head_num, -1), rest["q_rope"]], -1)
        if rest.get("k_rope") is not None:
            k = torch.cat([k.reshape(k.shape[0], layer.tp_k_head_num, -1), rest["k_rope"]], -1)
        n, heads = q.shape[0], layer.tp_q_head_num
        k, v = self.keep(layer, k, v)
        q = q.reshape(n, heads, -1).transpose(0, 1)
        at = torch.arange(k.shape[1])
        now = at[-n:, None]
        mask = now >= at[None]
        window = layer.sliding_window_size
        if isinstance(window, int) and window > 0:
            mask &= now - at[None] <= window
        if "ENCODER" in str(getattr(layer, "attn_type", "")).upper():
            mask = torch.ones_like(mask)
        k, v = k.repeat_interleave(heads // k.shape[0], 0), v.repeat_interleave(heads // v.shape[0], 0)
        out = F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask, scale=layer.scaling)[0]
        return out.transpose(0, 1).reshape(n, -1)


class Watch:
    """See which tensors of a drafter's files had an effect, and which parameters none reached."""

    def __init__(self) -> None:
        self.ignored: list[tuple[str, torch.Tensor]] = []
        self.first: dict[str, torch.Tensor] = {}
        self.on = False
        self.make, self.read = loading._initialize_model, loading.DefaultModelLoader._get_all_weights
        loading._initialize_model = self._made

        def watched(owner, config, model):
            yield from self._watched(owner, config, model)

        loading.DefaultModelLoader._get_all_weights = watched

    def _made(self, *args, **kwargs):
        empty = torch.empty

        def marked(*sizes, **options):
            made = empty(*sizes, **options)
            return made.fill_(UNWRITTEN) if made.is_floating_point() else made

        torch.empty = marked
        try:
            model = self.make(*args, **kwargs)
        finally:
            torch.empty = empty
        self.first = {}
        for name, parameter in model.named_parameters():
            self.first[name] = parameter.detach().clone()
            if parameter.is_floating_point():
                parameter.data.fill_(UNREAD)
        return model

    def _watched(self, owner, config, model):
        if not self.on:
            yield from self.read(owner, config, model)
            return
        self.ignored = []
        before = self._state(model)
        for name, tensor in self.read(owner, config, model):
            held = tensor.clone()
            yield name, tensor
            if (now := self._state(model)) == before:
                self.ignored.append((name, held))
            before = now

    @staticmethod
    def _state(model) -> tuple[int, ...]:
        raw = [p.detach().contiguous().flatten().view(torch.uint8).numpy() for p in model.parameters()]
        return (*map(zlib.crc32, raw), id(getattr(model, "hot_token_id", None)))

    def unset(self, model) -> list[str]:
        """Fill what no tensor reached (constants as they were made, else noise); return the names of it."""
        found = []
        for name, parameter in model.named_parameters():
            missing = parameter.detach() == UNREAD
            if not parameter.is_floating_point() or not missing.any():
                continue
            count, made = int(missing.sum()), self.first.get(name)
            found.append(name if count == missing.numel() else f"{name} ({count} of {missing.numel()})")
            seed = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            noise = 0.1 * torch.randn(parameter.shape, generator=seed)
            if made is not None and made.shape == parameter.shape and ((made == 1).all() or (made == 0).all()):
                noise = made
            parameter.data[missing] = noise.to(parameter.dtype)[missing]
        return found


def stands(tensor, model) -> bool:
    """Tell whether the first row of a tensor stands in a parameter: a loader may hold it until another one comes."""
    row = tensor.reshape(-1, tensor.shape[-1])[0] if tensor.dim() else tensor.reshape(1)
    wide = [p.detach() for p in model.parameters() if p.dim() > 1 and p.shape[-1] == row.shape[-1]]
    return tensor.dim() > 1 and any(bool((p == row.to(p.dtype)).all(-1).any()) for p in wide)


def load(config, form: str = "auto"):
    """Build a model and load its weights, as SGLang's model runner does."""
    return get_model(model_config=config, load_config=LoadConfig(load_format=form), device_config=DeviceConfig("cpu"))


@torch.no_grad()
def forward(model, kept: Attention, ids, start: int = 0, spec=None, **inputs):
    """Run a model on ids [tokens] at positions from `start` on; `spec` holds what its worker hands to a drafter."""
    n = len(ids)
    batch = ForwardBatch(
        forward_mode=ForwardMode.DECODE,
        batch_size=n,
        input_ids=ids,
        req_pool_indices=torch.zeros(n, dtype=torch.int64),
        seq_lens=torch.arange(start + 1, start + n + 1),
        out_cache_loc=torch.arange(start, start + n),
        seq_lens_sum=n * start + n * (n + 1) // 2,
    )
    batch.positions = torch.arange(start, start + n)
    batch.mrope_positions = batch.positions[None].repeat(3, 1)
    batch.capture_hidden_mode = CaptureHiddenMode.FULL
    batch.spec_info = spec
    with forward_context(ForwardContext(attn_backend=kept)):
        return model.forward(ids, batch.positions, batch, **inputs)


def numbers(row) -> list:
    """Return a row of logits [width] as JSON takes it: six digits, nan and inf as words."""
    return [round(x, 6) if math.isfinite(x) else str(x).removeprefix("-") for x in row.float().tolist()]


def words_of(launch: list[str], places: dict[str, str]) -> list[str]:
    """Return the arguments of a launch line: what follows the module or subcommand, with the folders put in."""
    starts = [n for n, word in enumerate(launch) if word in ("sglang.launch_server", "serve")]
    words = launch[starts[0] + 1 :] if starts else launch[1:]
    if starts and launch[starts[0]] == "serve" and words and not words[0].startswith("-"):
        words = ["--model-path", *words]  # cli/serve.py: the first word alone may be the model
    for key, place in places.items():
        words = [word.replace("{" + key + "}", place) for word in words]
    return words


def completed(words: list[str]) -> list[str]:
    """Add what a CPU machine needs to a launch line that does not speak of it."""
    given = {word.split("=")[0] for word in words}
    added = {"--device": ["cuda"], **QUIET}
    return words + [part for flag, value in added.items() if flag not in given for part in (flag, *value)]


class Batch(types.SimpleNamespace):
    """Stand for the scheduler's batch; unlike its parent it can be referred to weakly."""


class Run:
    """Take one case from its launch line to the second draft step, keeping how far it came."""

    def __init__(self, watch: Watch, warned: Warned, work: str) -> None:
        self.watch, self.warned, self.work = watch, warned, work
        self.stage = "flags"
        self.line: dict = {"logits": None, "tokens": [], "accepted": None, "drafted": None, "aux": None}
        self.line |= {"ignored": [], "unset": []}

    def __call__(self, words: list[str], prompt: list[int], request: dict) -> None:
        """Run the case; whatever SGLang raises goes through, with `stage` telling where."""
        args = self.flags(words)
        self.stage = "config"
        target = ModelConfig.from_server_args(args)
        spec = context.get_spec()
        algorithm = SpeculativeAlgorithm.from_string(spec.speculative_algorithm)
        aux = resolve_spec_aux_hidden_state_config(
            server_args=args, model_config=target, spec_algorithm=algorithm, is_draft_worker=False
        )
        self.stage = "load"
        # the scheduler has it before any weights; that of a drafter is never looked at
        skipped = args.skip_tokenizer_init
        self.tokenizer = None if skipped else get_tokenizer(args.tokenizer_path or target.model_path)
        self.target = load(target, args.load_format)
        self.watch.unset(self.target)
        wanted = {
            key: getattr(aux, key)
            for key in (
                "eagle_use_aux_hidden_state",
                "eagle_aux_hidden_state_layer_ids",
                "dflash_use_aux_hidden_state",
                "dflash_target_layer_ids",
            )
        }
        if hasattr(aux, "is_dspark"):
            wanted["is_dspark"] = aux.is_dspark
        configure_aux_hidden_state_capture(model=self.target, **wanted)
        captured = getattr(getattr(self.target, "model", None), "layers_to_capture", None)
        self.line["aux"] = [int(i) for i in captured] if captured else None
        if algorithm.is_none() or algorithm.is_ngram():  # no model drafts
            self.line["drafted"] = 0
            return
        self.stage = "config"
        draft = ModelConfig.from_server_args(
            args,
            model_path=spec.speculative_draft_model_path,
            model_revision=spec.speculative_draft_model_revision,
            is_draft_model=True,
            context_length=target.context_len,
        )
        settings = {"dtype": str(draft.dtype).removeprefix("torch."), "quantization": draft.quantization}
        self.line["draft"] = {**settings, "context": draft.context_len}
        if draft.quantization or target.quantization:
            self.stage = "load"
            loading._get_quantization_config(draft, LoadConfig())
            return
        self.stage = "load"
        self.watch.on = True
        self.draft = load(draft, spec.speculative_draft_load_format or args.load_format)
        self.watch.on = False
        self.line["ignored"] = [name for name, tensor in self.watch.ignored if not stands(tensor, self.draft)]
        first = self.watch.first
        ids = torch.tensor(prompt)
        if spec.speculative_algorithm in BLOCK:
            self.line["unset"] = self.watch.unset(self.draft)
            self.block(args, target, draft, ids)
            return
        hot = self.share(args, target, draft, algorithm)
        self.watch.first = first
        self.line["unset"] = self.watch.unset(self.draft)
        self.stage = "run"
        self.chain(ids, hot, not algorithm.is_standalone())
        if request:
            self.checked(request, target, ids)

    def flags(self, words: list[str]):
        """Parse a launch line and resolve it, up to what the scheduler's process holds of it."""
        heard = io.StringIO()
        try:
            with contextlib.redirect_stderr(heard):
                args = prepare_server_args(completed(words))
        except SystemExit as stop:
            said = heard.getvalue().strip().splitlines()
            raise SystemExit(said[-1] if said else str(stop.code)) from None
        logging.getLogger().handlers.clear()
        ranks = getattr(context, "SpawnRanks", None)
        args.resolve_once()
        args.check_server_args()
        context.publish(args, role="scheduler", **({"ranks": ranks(world_rank=0, gpu_id=0)} if ranks else {}))
        place = f"file://{self.work}/group_{os.getpid()}"
        parallel_state.init_distributed_environment(
            world_size=1, rank=0, local_rank=0, backend="gloo", distributed_init_method=place
        )
        parallel_state.initialize_model_parallel(backend="gloo")
        return args

    def share(self, args, target, draft, algorithm):
        """Share embedding and head as the draft worker does; return the token map, or none."""
        runner = types.SimpleNamespace(model=self.target, model_config=target, load_config=LoadConfig())
        worker = types.SimpleNamespace(
            speculative_algorithm=algorithm,
            hot_token_id=None,
            draft_runner=types.SimpleNamespace(model=self.draft, model_config=draft),
            target_worker=types.SimpleNamespace(model_runner=runner),
        )
        if hasattr(EagleDraftWorker, "_resolve_shared_embed_and_head"):
            own = EagleDraftWorker._resolve_shared_embed_and_head
            worker._resolve_shared_embed_and_head = types.MethodType(own, worker)
        if algorithm.is_standalone():
            EagleDraftWorker.init_token_map(worker)
            self.same_vocabulary(target, draft)
            return worker.hot_token_id
        for step in ("init_token_map", "init_lm_head"):
            setattr(worker, step, types.MethodType(getattr(EagleDraftWorker, step), worker))
        worker.draft_worker = Nothing()  # its pools are of the cache that is not here
        worker.target_worker.model_config = target
        EagleDraftWorker.alloc_memory_pool(worker)
        return worker.hot_token_id

    def same_vocabulary(self, target, draft) -> None:
        """Hold both vocabularies together as the worker of a plain draft model does."""
        if not hasattr(StandaloneWorkerV2, "_validate_vocab_compatibility"):
            return
        inner = types.SimpleNamespace(
            draft_runner=types.SimpleNamespace(model_config=draft),
            draft_worker=types.SimpleNamespace(tokenizer=None),  # managers/tp_worker.py:326
        )
        StandaloneWorkerV2._validate_vocab_compatibility(
            types.SimpleNamespace(_draft_worker=inner),
            target_vocab_size=target.vocab_size,
            target_tokenizer=self.tokenizer,
        )

    def chain(self, ids, hot, states: bool) -> None:
        """Prefill both sides and draft two tokens, one after the other; a plain draft model is given no states."""
        seen = forward(self.target, Attention(), ids)
        token = seen.next_token_logits[-1:].argmax(-1)
        kept, n = Attention(), len(ids)
        given = types.SimpleNamespace(hidden_states=seen.hidden_states if states else None)
        out = forward(self.draft, kept, torch.cat([ids[1:], token]), 0, given)
        self.line["logits"] = [numbers(out.next_token_logits[-1])]
        for step in (n, None):
            token = out.next_token_logits[-1:].argmax(-1)
            token = hot[token] if hot is not None else token
            self.line["tokens"].append(int(token[0]))
            if step is not None:
                given = types.SimpleNamespace(hidden_states=out.hidden_states[-1:] if states else None)
                out = forward(self.draft, kept, token, step, given)
                self.line["logits"].append(numbers(out.next_token_logits[-1]))
        every = torch.arange(out.next_token_logits.shape[-1])
        if hasattr(self.target, "get_embed_and_head"):
            F.embedding((hot[every] if hot is not None else every).long(), self.target.get_embed_and_head()[0])

    def checked(self, request: dict, target, ids) -> None:
        """Check the drafts as SGLang does for a request: keep the odds [drafts, vocab] that it hands to its kernel."""
        from sglang.srt.managers.schedule_batch import Req
        from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
        from sglang.srt.sampling.sampling_params import SamplingParams
        from sglang.srt.speculative import eagle_utils

        params = SamplingParams(**{k: v for k, v in request.items() if k != "custom_logit_processor"})
        params.verify(target.vocab_size)
        req = Req("0", "", ids.tolist(), params, vocab_size=target.vocab_size)
        req.custom_logit_processor = request.get("custom_logit_processor")
        batch = Batch(reqs=[req], device="cpu", forward_mode=ForwardMode.TARGET_VERIFY)
        batch.sampling_info = SamplingBatchInfo.from_schedule_batch(batch, target.vocab_size)
        batch.sampling_info.update_penalties()
        batch.seq_lens, batch.return_logprob = torch.tensor([len(ids)]), False
        seen = forward(self.target, Attention(), ids)
        drafts = torch.cat([seen.next_token_logits[-1:].argmax(-1), torch.tensor(self.line["tokens"])])
        logits = forward(self.target, Attention(), torch.cat([ids, drafts])).next_token_logits[-len(drafts) :]
        tree = types.SimpleNamespace(draft_token=drafts, draft_token_num=len(drafts), max_tree_depth=len(drafts))
        for name in ("retrieve_index", "retrieve_next_token", "retrieve_next_sibling", "draft_probs"):
            setattr(tree, name, None)
        tree.tree_topk = 1
        odds = []
        eagle_utils.tree_speculative_sampling_target_only = lambda **given: odds.append(given["target_probs"][0])
        eagle_utils.eagle_sample(tree, batch, types.SimpleNamespace(next_token_logits=logits))
        self.line["logits"] = [numbers(row) for row in odds[0]]

    def markov(self, target, draft) -> tuple[int, int]:
        """Ready a drafter with a Markov head as its worker does; return how many ids it asks for, and the mask's."""
        given = resolve_runtime_config(
            draft_hf_config=draft.hf_config,
            speculative_num_draft_tokens=context.get_spec().speculative_num_draft_tokens,
            target_vocab_size=target.vocab_size,
        )
        lm_head = getattr(self.target, "lm_head", None)
        self.draft.attach_shared_modules(embed_tokens=self.target.get_input_embeddings(), lm_head=lm_head)
        return given.gamma + (not self.draft.sample_from_anchor), given.mask_token_id

    def biased(self, hidden, token):
        """Return the logits [drafts, vocab] of hidden states [drafts, width], each with the bias of the id before."""
        hidden = hidden if self.draft.sample_from_anchor else hidden[1:]
        plain, _ = self.draft.compute_base_logits(hidden)
        state, rows = self.draft.markov_head.init_state(hidden[None]), []
        for n in range(len(plain)):
            bias, state = self.draft.markov_head.step_bias(token, hidden_states=hidden[None, n], state=state)
            rows.append(plain[n] + bias[0])
            token = rows[-1].argmax(-1, keepdim=True)
        return torch.stack(rows)

    def block(self, args, target, draft, ids) -> None:
        """Prefill the target and draft one block, as the worker of a block drafter does."""
        chained = context.get_spec().speculative_algorithm == "DSPARK"
        size, mask = self.markov(target, draft) if chained else self.masked(args, target, draft)
        self.stage = "run"
        seen = forward(self.target, Attention(), ids)
        token = seen.next_token_logits[-1:].argmax(-1)
        kept, n = Attention(), len(ids)
        with torch.no_grad():
            states = self.draft.project_target_hidden(seen.hidden_states)
            for layer in self.draft.layers:
                own = layer.self_attn
                k, v = own.kv_proj_only(self.draft.prepare_context_hidden_for_kv(layer, states))
                kept.keep(own.attn, own.apply_k_rope(torch.arange(n), own.apply_k_norm(k)), v)
            asked = torch.cat([token, torch.full((size - 1,), mask)])
            embedded = self.target.get_input_embeddings()(asked)
            out = forward(self.draft, kept, asked, n, input_embeds=embedded).hidden_states
            if chained:
                logits = self.biased(out, token)
            else:
                head = self.target.lm_head.weight[: target.vocab_size]
                logits = torch.matmul(out[1:].to(head.dtype), head.T)
        self.line["logits"] = [numbers(row) for row in logits[:2]]
        self.line["tokens"] = [int(i) for i in logits.argmax(-1)]

    def masked(self, args, target, draft) -> tuple[int, int]:
        """Ready a drafter that masks as its worker does; return the size of its block, and the id of the mask."""
        drafted = parse_dflash_draft_config(draft_hf_config=draft.hf_config)
        size = int(context.get_spec().speculative_num_draft_tokens)
        self.draft.set_block_size(size)
        runner = types.SimpleNamespace(model=self.target, model_config=target)
        side = types.SimpleNamespace(model_runner=runner, tokenizer=self.tokenizer)
        worker = types.SimpleNamespace(
            server_args=args, target_worker=side, _target_worker=side, device=torch.device("cpu")
        )
        worker._mask_token_id = DFlashWorkerV2._resolve_mask_token_id(
            worker, mask_token=drafted.mask_token, mask_token_id=drafted.mask_token_id
        )
        DFlashWorkerV2._maybe_merge_trained_mask_embedding(worker)
        return size, worker._mask_token_id


def told(case: dict, folder: Path, run: Run) -> dict:
    """Run one case in this process; return its line."""
    root, begin = folder.parent, time.monotonic()
    os.environ.update(case.get("env", {}).get(ENGINE, {}))
    torch.cuda.synchronize = torch.cuda.empty_cache = lambda *args: None  # asked for where heads are shared
    places = {"target": str(root / "targets" / case["target"]), "drafter": str(folder / case["drafter"])}
    end: dict = {"outcome": "ran", "stage": "run", "error": "", "message": ""}
    try:
        run(words_of(case["launch"][ENGINE], places), case["prompt"], case.get("request", {}))
    except BaseException as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "/sglang/srt/" in f.filename]
        stage = run.stage
        if stage == "flags" and any("configs/model_config" in f.filename for f in frames):
            stage = "config"  # resolution reads the model's config: what fails there is that
        text = " ".join(str(error).split()).replace(f"{root}/", "")[:300]
        end = {"outcome": "refused", "stage": stage, "error": type(error).__name__, "message": text}
        if frames:
            end["at"] = f"{frames[-1].filename.rpartition('/sglang/srt/')[2]}:{frames[-1].lineno}"
    rest = {"warnings": run.warned.lines[:6], "seconds": round(time.monotonic() - begin, 2)}
    return {**_start(case), **end, **run.line, **rest}


def apart(case: dict, folder: Path, make, seconds: float) -> dict:
    """Run one case in a process of its own; return its line, also when it dies or does not end."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        with os.fdopen(sink, "wb") as out:
            out.write(json.dumps(told(case, folder, make()), default=str).encode())
        os._exit(0)
    os.close(sink)
    heard, late = b"", time.monotonic() + seconds
    with os.fdopen(source, "rb", 0) as inside:
        while select.select([inside], [], [], max(0.0, late - time.monotonic()))[0]:
            part = inside.read(65536)
            if not part:
                break
            heard += part
        else:
            os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    with contextlib.suppress(ValueError):
        return json.loads(heard)
    died = {"outcome": "died", "stage": "", "error": "", "message": f"no answer; wait status {status}", "logits": None}
    return {**_start(case), **died}


def _start(case: dict) -> dict:
    return {"id": case["id"], "engine": ENGINE, "version": sglang.__version__, "runner": ""}


def main() -> int:
    """Run the cases of a folder, all or those named; write one line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--only", default="", help="ids, separated by commas")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=120.0, help="for one case")
    options = parser.parse_args()
    results = options.out.open("w", encoding="utf-8") if options.out else os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    logging.disable(logging.INFO)
    watch, warned = Watch(), Warned()
    logger = logging.getLogger("sglang")
    logger.addHandler(warned)
    logger.propagate = False
    only = set(options.only.split(",")) - {""}
    with results, tempfile.TemporaryDirectory() as work:
        for path in sorted(options.cases.resolve().glob("*/case.json")):
            case = json.loads(path.read_text(encoding="utf-8"))
            if ENGINE in case["launch"] and (not only or case["id"] in only):
                line = apart(case, path.parent, lambda: Run(watch, warned, work), options.seconds)
                print(json.dumps(line), file=results, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
