"""A launch line is read as a shell and the engine would read it, and never run."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftproof.dims import Unknown
from draftproof.launch import Launch, carried, contradictions, flags_of, parse, quote, words_of
from draftproof.library import Library
from draftproof.profiles import Flag, Launches

LIBRARY = Library()
SPEC = '{"method": "eagle3", "model": "C/D", "num_speculative_tokens": 3}'
VLLM = f"vllm serve A/B --speculative-config '{SPEC}'"


def read(line: str, *codes: str) -> Launch:
    made = parse(line, LIBRARY)
    assert [f.code for f in made.findings] == list(codes)
    return made


def given_flags(line: str, *codes: str) -> dict[str, Any]:
    flags = dict(read(line, *codes).flags)
    assert flags.pop("env") is not None
    return flags


LINES = {  # as typed -> engine, target, drafter
    VLLM: ("vllm", "A/B", "C/D"),
    "python3 -m vllm.entrypoints.openai.api_server --model A/B -sc.model C/D": ("vllm", "A/B", "C/D"),
    "vllm serve --spec-model C/D --model=A/B": ("vllm", "A/B", "C/D"),
    "python -m sglang.launch_server --model A/B --speculative-draft-model-path C/D": ("sglang", "A/B", "C/D"),
    "sglang serve A/B --speculative-draft-model C/D": ("sglang", "A/B", "C/D"),
    "./build/bin/llama-server -m a.gguf -md d.gguf": ("llama.cpp", "a.gguf", "d.gguf"),
    "llama-server -hf A/B:Q8_0 -hfd C/D": ("llama.cpp", "A/B", "C/D"),
}
FRONTS = (
    "CUDA_VISIBLE_DEVICES=0,1 ",
    "$ ",
    "env -u FOO A=b ",
    "sudo -u root -E nohup ",
    "nice -n 10 numactl -N 0 -m 0 ",
    "timeout 60 taskset -c 0-3 ",
    "uv run --with x ",
    "conda run -n env --no-capture-output ",
    "docker run --rm -it --gpus all --shm-size=32g -v ~/.cache:/cache -p 80:80 -e HF_TOKEN=x some/image:tag ",
    "cd /srv && source venv/bin/activate && exec ",
    "docker exec -it box ",
    "srun --gres=gpu:4 -N 1 apptainer exec --nv -B /data image.sif ",
    "# start it\n",
)


@pytest.mark.parametrize("line", LINES)
def test_line_alone_names_engine_target_and_drafter(line: str) -> None:
    made = read(line)
    assert (made.engine, made.target, made.drafter) == LINES[line]
    assert "refused" not in made.flags


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("line", [VLLM, "python -u -X dev -m sglang.launch_server --model-path A --tp 2"])
def test_what_runs_the_command_changes_nothing(front: str, line: str) -> None:
    plain, made = parse(line, LIBRARY), read(front + line + " > server.log 2>&1 &")
    assert {**made.flags, "env": {}} == {**plain.flags, "env": {}}


def test_shell_in_a_container_is_read_too() -> None:
    made = read(f"docker run --gpus all -e A=1 -eB=2 org/image bash -lc {shlex.quote('export C=3; ' + VLLM)}")
    assert made.flags["env"] == {"A": "1", "B": "2", "C": "3"}
    assert (made.engine, made.drafter, made.image) == ("vllm", "C/D", "org/image")


def test_image_runs_its_own_command() -> None:
    made = read("docker run --gpus=all --ipc host ghcr.io/vllm/vllm-openai:v0.33.0 --model A/B -tp 2")
    assert (made.engine, made.image, made.target) == ("vllm", "ghcr.io/vllm/vllm-openai:v0.33.0", "A/B")
    made = read("podman run -d --entrypoint llama-server org/image -m a.gguf -c 512")
    assert (made.engine, made.flags["ctx_size"]) == ("llama.cpp", 512)


def test_variables_before_the_command_and_of_the_text_are_known() -> None:
    made = read('M=A/B\nexport N=C/D; VLLM_USE_V2_MODEL_RUNNER=0 \\\n  vllm serve "$M" -sc.model ${N}')
    assert (made.target, made.drafter) == ("A/B", "C/D")
    assert made.flags["env"] == {"N": "C/D", "VLLM_USE_V2_MODEL_RUNNER": "0"}


FLAGS = {  # of vLLM, as typed -> what rules see
    "--max-model-len 4096": {"max_model_len": 4096},
    "--max-model-len 4k": {"max_model_len": 4000},
    "--max-model-len=4K": {"max_model_len": 4096},
    "--max-model-len auto": {},
    "--max-model-len -1": {},
    "--max_model_len 1.5k": {"max_model_len": 1500},
    "--max-model 7": {"max_model_len": 7},
    "-tp 2": {"tensor_parallel_size": 2},
    "--gpu-memory-utilization 0.9": {"gpu_memory_utilization": 0.9},
    "--enforce-eager": {"enforce_eager": True},
    "--no-enforce-eager": {"enforce_eager": False},
    "--no-enable-prefix-caching": {"enable_prefix_caching": False},
    "--disable-prefix-caching": {"enable_prefix_caching": False},
    "--served-model-name a b c": {"served_model_name": ["a", "b", "c"]},
    "-O3": {"optimization_level": 3},
    "-O 3": {"optimization_level": 3},
    "--max-model-len AUTO": {},
    f"-sc '{SPEC}'": {"speculative_config": json.loads(SPEC)},
    "-sc '{\"num-speculative-tokens\": 3}'": {"speculative_config": {"num_speculative_tokens": 3}},
    "--speculative '{}'": {"speculative_config": {}},
    "-sc.method eagle3 -sc.num-speculative-tokens=3": {
        "speculative_config": {"method": "eagle3", "num_speculative_tokens": 3}
    },
    "--speculative_config.method eagle3 --speculative-config.model=D": {
        "speculative_config": {"method": "eagle3", "model": "D"}
    },
    "--hf_overrides.a.b 1k --hf-overrides.l+ x --hf-overrides.l+=y,z": {
        "hf_overrides": {"a": {"b": 1000}, "l": ["x", "y", "z"]}
    },
    '--compilation-config \'{"mode": 3, "compile_sizes": [4k]}\'': {
        "compilation_config": {"mode": 3, "compile_sizes": [4000]}
    },
    "--middleware a --middleware b": {"middleware": ["a", "b"]},
    """--hf-overrides '{"a": 1}' --additional-config [1]""": {"hf_overrides": {"a": 1}, "additional_config": "[1]"},
    "--quantization None --chat-template ''": {"quantization": None, "chat_template": None},
}


@pytest.mark.parametrize("typed", FLAGS)
def test_flags_have_the_types_that_the_engine_gives_them(typed: str) -> None:
    assert given_flags(f"vllm serve M {typed}") == {"model": "M", **FLAGS[typed]}


def test_engine_that_takes_no_equals_sign_or_beginning_of_a_flag() -> None:
    assert given_flags("llama-server -c 8 -ngl all -kvo -nkvo --spec-type draft-eagle3,ngram-mod", "CLI660") == {
        "ctx_size": 8, "n_gpu_layers": "all", "kv_offload": False, "spec_type": "draft-eagle3,ngram-mod"
    }  # fmt: skip
    assert "--ctx 8" not in given_flags("llama-server --ctx-size=8 --ctx 8", "CLI657", "CLI657")["refused"]
    assert given_flags("LLAMA_ARG_CTX_SIZE=9 LLAMA_ARG_THREADS=2 llama-server -t 4") == {"ctx_size": 9, "threads": 4}
    assert given_flags("llama-server -c 4K --temp 0.5x") == {"ctx_size": 4, "temperature": 0.5}
    assert given_flags("llama-server --control-vector-layer-range 1 2 -n -1") == {
        "control_vector_layer_range": ["1", "2"], "n_predict": -1
    }  # fmt: skip


ODD = {  # of llama.cpp, as typed -> what rules see, or that it is refused
    "-np 0": "refused", "-np -2": {"parallel": -2}, "-np 2.5": {"parallel": 2}, "-np 99999999999": "refused",
    "-c 4k": {"ctx_size": 4}, "-c k4": "refused", "-ngl -7": {"n_gpu_layers": -7}, "-ngl some": "refused",
    "--spec-draft-n-max -1": "refused", "--spec-draft-n-max +2": {"spec_draft_n_max": 2},
    "--spec-draft-n-min -1": {"spec_draft_n_min": -1}, "--spec-draft-p-min .5x": {"draft_p_min": 0.5},
    "--spec-draft-p-min nan": {"draft_p_min": None}, "--spec-draft-p-min inf": {"draft_p_min": 2.0**62},
    "--spec-draft-p-min 0x1p-3": {"draft_p_min": 0.125}, "--spec-draft-p-min 1e50": "refused",
    "--spec-draft-p-min 1e-50": "refused", "--spec-draft-p-min half": "refused", "--temp 0": {"temperature": 0.0},
    "--repeat-penalty 0": "refused", "--repeat-penalty inf": "refused", "--prio-draft 4": "refused",
    "-Cd 0xff": {"cpu_mask_draft": "0xff"}, "-Cd 0xfg": "refused", "-otd a": "refused", "-s -1": {"seed": -1},
    "--override-kv a=int:1": {"override_kv": {"a": 1}}, "--override-kv a=integer:1": "refused",
    "--override-kv a.b=float:1e-3z,a.c=int:x --override-kv a.d=bool:true": {
        "override_kv": {"a": {"b": 0.001, "c": 0, "d": True}}
    },
    f"--override-kv {'a' * 127}=int:1": {"override_kv": {"a" * 127: 1}}, f"--override-kv a=str:{'a' * 128}": "refused",
    f"--override-kv {'a.' * 3000}=int:1 --override-kv {'a.' * 3000}=int:2": "refused",
    "--override-kv a=bool:True": "refused", "--override-kv a=str:x,b": "refused", "-otd a=cpu": "refused",
    "-otd a=CPU,b=CUDA0": {"override_tensor_draft": "a=CPU,b=CUDA0"},
}  # fmt: skip


@pytest.mark.parametrize("typed", ODD)
def test_odd_numbers_are_read_as_cplusplus_reads_them(typed: str) -> None:
    made = parse(f"llama-server -m M {typed}", LIBRARY)
    assert bool(made.findings) == (ODD[typed] == "refused") == ("refused" in made.flags)
    if ODD[typed] != "refused":
        flags = {key: value for key, value in made.flags.items() if key not in ("env", "model")}
        assert flags == ODD[typed]


VARIABLES = {  # set before llama-server -m M -t 4 -> what rules see besides, or that it is refused
    "LLAMA_ARG_BATCH=9": {"batch_size": 9}, "LLAMA_ARG_BATCH=many": "refused", "LLAMA_ARG_BATCH=": "refused",
    "LLAMA_ARG_THREADS=9": {}, "LLAMA_ARG_THREADS=x": "refused", "LLAMA_ARG_N_PARALLEL=0": "refused",
    "LLAMA_ARG_DRAFT_MAX=3": "refused", "LLAMA_ARG_SPEC_TYPE=eagle": "refused", "LLAMA_ARG_NO_SUCH=1": {},
    "LLAMA_ARG_EMBEDDINGS=on": {"embeddings": True}, "LLAMA_ARG_EMBEDDINGS=0": {}, "LLAMA_ARG_EMBEDDINGS=maybe": {},
    "LLAMA_ARG_JINJA=off": {"jinja": False}, "LLAMA_ARG_JINJA=1": {"jinja": True}, "LLAMA_ARG_JINJA=maybe": "refused",
    "LLAMA_ARG_NO_JINJA=maybe": {"jinja": False}, "LLAMA_ARG_NO_EMBEDDINGS=1": {},
}  # fmt: skip


@pytest.mark.parametrize("typed", VARIABLES)
def test_variables_are_read_where_no_flag_is_and_refused_all_the_same(typed: str) -> None:
    made = parse(f"{typed} llama-server -m M -t 4", LIBRARY)
    assert bool(made.findings) == (VARIABLES[typed] == "refused") == ("refused" in made.flags)
    if VARIABLES[typed] != "refused":
        flags = {key: value for key, value in made.flags.items() if key != "env"}
        assert flags == {"model": "M", "threads": 4, **VARIABLES[typed]}


def test_variable_that_a_shell_fills_in_leaves_its_flag_unknown() -> None:
    flags = parse("LLAMA_ARG_BATCH=$(size) llama-server -m M", LIBRARY).flags
    assert isinstance(flags["batch_size"], Unknown)


BAD = {  # as typed -> codes, and words of what is observed or expected
    "vllm serve A --max-model-length 9": (["CLI657"], "did you mean '--max-model-len'?"),
    "vllm serve A —speculative-config x": (["CLI657", "CLI657"], "did you mean '--speculative-config'?"),
    "vllm serve A --spec x": (["CLI657"], "may be --spec-method"),
    "vllm serve A --dtype flaot16": (["CLI658"], "did you mean 'float16'?"),
    "vllm serve A --max-model-len": (["CLI658"], "a value behind it"),
    "vllm serve A --max-model-len 1.5K": (["CLI658"], "an integer, such as 4096, 4k or 4K or auto"),
    "vllm serve A --enforce-eager=1": (["CLI658"], "no value behind it"),
    "vllm serve A -sc.method": (["CLI658"], "a value behind it"),
    "vllm serve A B": (["CLI657"], "B at character 14"),
    "vllm serve A --port x --port 1": (["CLI658"], "an integer"),
    "vllm serve A -sc '{\"method\": eagle3}'": (["CLI659"], "character 30"),
    "vllm serve A -sc \"{'method': 'eagle3'}\"": (["CLI659"], "Expecting property name"),
    'vllm serve A -sc {"method":"eagle3"}': (["CLI659"], "single quotes"),
    "vllm serve A -sc '{“method”: 1}'": (["CLI659"], "typographic quotes"),
    "vllm serve A --port 1 --port 2": (["CLI660"], "1, then 2: the last counts"),
    'vllm serve A -sc \'{"method": "eagle3"}\' -sc.model M': (["CLI660"], "the last counts"),
    "vllm serve A --model B": (["CLI657"], "A at character 12"),
    "sglang serve A --model B": (["CLI660"], "A, then B"),
    "vllm serve A --hf-overrides '{a: 1}'": (["CLI659"], "character 31"),
    "vllm serve A -sc.modle B": (["CLI657"], "did you mean 'model'?"),
    "vllm serve A -cc.mod 3": (["CLI657"], "did you mean 'mode'?"),
    "vllm serve A --compilation-config 3": (["CLI658"], "a JSON object"),
    "llama-server -m a -ctk f17": (["CLI658"], "did you mean 'f16'?"),
    "vllm serve A --port 1 --config x.yaml": (["CLI662"], "x.yaml, which is not read"),
    "vllm serve $M": (["CLI662"], "$M at character 12"),
    "vllm serve `cat m` --port $(p)": (["CLI662", "CLI662"], "`cat m` at character 12"),
    "vllm serve A $ARGS -tp 2": (["CLI662"], "$ARGS at character 14"),
    "python -m sglang.launch_server --model A $(cat f)": (["CLI662"], "$(cat f) at character 42"),
    "vllm serve A --foo$X": (["CLI657"], "--foo$X at character 14"),
    "vllm serve A; sglang serve B": (["CLI662"], "another at character 15"),
    "llama-server -m a --draft-max 3": (["CLI657"], "use --spec-draft-n-max"),
    "vllm serve A --speculative-model=B --num-speculative-tokens 5": (["CLI657", "CLI657"], "or --spec-model"),
    "llama-server -m a --spec-type draft-eagle": (["CLI658"], "did you mean 'draft-eagle3'?"),
    "llama-server -c": (["CLI658"], "a value behind it"),
    "vllm serve 'A": (["CLI655"], "it stops at character 12"),
    'vllm serve "A': (["CLI655"], "it stops at character 12"),
    "vllm serve A $(x": (["CLI655"], "it stops at character 14"),
    "vllm serve A (b)": (["CLI655"], "( outside quotes"),
    "vllm serve A >": (["CLI655"], "a redirection to nothing"),
    "vllm serve A \\ \n --port 1": (["CLI655"], "blanks behind it, so that the line ends"),
    "vllm serve A\n  --port 1": (["CLI655"], "it stops at character 16 (line 2), before '--port 1'"),
    "vlm serve A": (["CLI656"], "did you mean 'vllm serve'?"),
    "python -m sglang.launch_serve": (["CLI656"], "did you mean 'python* -m sglang.launch_server'?"),
    "docker run org/other --model A": (["CLI656"], "docker run org/other"),
    "": (["CLI656"], "nothing"),
}


@pytest.mark.parametrize("line", BAD)
def test_what_cannot_be_read_is_named_with_its_place(line: str) -> None:
    codes, words = BAD[line]
    made = parse(line, LIBRARY)
    assert [f.code for f in made.findings] == codes
    assert words in " ".join(part for f in made.findings for part in (f.observed, f.expected, f.note))
    told = made.flags.get("refused") or made.flags.get("odd")
    assert bool(told) == bool({"CLI657", "CLI658", "CLI659"} & set(codes))


@pytest.mark.parametrize(
    ("engines", "drafter", "target", "seen"),
    [
        ([], "C/D", "A/B", []),
        (["vllm"], "c/d@abc", "A/B/", []),
        (["sglang"], "C/D", "A/B", ["launch: engine"]),
        (["vllm", "sglang"], "C/E", "A/C", ["launch: drafter", "launch: target"]),
        ([], "./local", "", []),
        ([], "Other/Name", "", []),
    ],
)
def test_line_that_speaks_of_something_else_contradicts(
    engines: list[str], drafter: str, target: str, seen: list[str]
) -> None:
    found = list(contradictions(read(VLLM), engines, drafter=(drafter, ["other/name", "C/D"] if "O" in drafter else []),
                                target=(target, [])))  # fmt: skip
    assert [(f.code, f.subject) for f in found] == [("CLI661", subject) for subject in seen]


def test_path_contradicts_another_path_alone() -> None:
    made = read("vllm serve /models/a -sc.model ./b")
    assert list(contradictions(made, drafter=("b/c", []), target=("A/B", []))) == []
    assert list(contradictions(made, drafter=("./x/../b", []), target=("/models/a/", []))) == []
    assert len(list(contradictions(made, drafter=("./c", []), target=("/models/b", [])))) == 2


def test_drafter_that_a_flag_of_old_names_is_known() -> None:
    assert parse("vllm serve A/B --speculative-model C/D", LIBRARY).drafter == "C/D"
    assert parse("python -m vllm.entrypoints.cli.main serve A/B", LIBRARY).target == "A/B"


def test_value_that_a_shell_fills_in_is_not_known() -> None:
    made = parse("vllm serve A --dtype $DTYPE -sc.method ${METHOD}", LIBRARY)
    assert isinstance(made.flags["dtype"], Unknown)
    assert isinstance(made.flags["speculative_config"]["method"], Unknown)
    typed = 'A=$B vllm serve ${M} --dtype "$(pick "a b")" -sc.method "$X \\\\ \\"y\\""'
    made = parse(typed, LIBRARY)
    assert parse(made.quoted, LIBRARY).flags == made.flags
    assert isinstance(parse("X=$Y; vllm serve $X", LIBRARY).flags["model"], Unknown)
    made = parse("A=$B C=d docker run -e E=$F vllm/vllm-openai --model M", LIBRARY)
    assert isinstance(made.flags["env"]["E"], Unknown)
    assert (isinstance(made.flags["env"]["A"], Unknown), made.flags["env"]["C"]) == (True, "d")
    assert made.env == {"A": "$B", "C": "d", "E": "$F"}


def test_words_that_are_apart_already_give_the_same_flags() -> None:
    words = ["vllm", "serve", "{target}", "--dtype", "float32", "-sc", '{"method": "eagle3", "model": "{drafter}"}']
    assert flags_of(words, {"A": "b"}) == {
        "model": "{target}", "dtype": "float32", "speculative_config": {"method": "eagle3", "model": "{drafter}"},
        "env": {"A": "b"},
    }  # fmt: skip
    assert flags_of(["ls", "$HOME"]) == {"env": {}}
    assert flags_of(["vllm", "serve", "$HOME"])["model"] == "$HOME"


WORDS = st.one_of(
    st.sampled_from(["vllm", "serve", "sglang", "llama-server", "python", "-m", "docker", "run", "-c", "bash", "env"]),
    st.sampled_from([name for launches in (LIBRARY.get("launch", id)[0] for id in LIBRARY.files("launch"))
                     for name in launches.names]),
    st.sampled_from(["'", '"', "\\", "\n", "$", "${", "$(", "`", ">", "2>&1", "&&", ";", "#", "--"]),
    st.sampled_from(["-", "-sc.a", "=", "{"]),
    st.text(max_size=12),
)  # fmt: skip
ENDINGS = st.lists(st.one_of(WORDS, st.sampled_from(["3", "auto", SPEC, "--max-model-len=4k", "-sc.a.b"])), max_size=8)


@settings(deadline=None)
@given(st.lists(WORDS, max_size=8), st.sampled_from(["", " "]), st.booleans())
def test_no_line_raises(words: list[str], between: str, launched: bool) -> None:
    made = parse(("vllm serve " if launched else "") + between.join(words), LIBRARY)
    assert made.engine or made.findings
    again = parse(made.quoted, LIBRARY) if made.engine else made
    assert (again.flags, again.words, again.env) == (made.flags, made.words, made.env)


@settings(deadline=None)
@given(st.sampled_from([("vllm", "serve"), ("sglang", "serve"), ("llama-server",)]), ENDINGS,
       st.dictionaries(st.from_regex(r"[A-Z_]{1,5}", fullmatch=True), st.text(max_size=9), max_size=2))  # fmt: skip
def test_line_that_is_quoted_anew_says_the_same(
    command: tuple[str, ...], words: list[str], env: dict[str, str]
) -> None:
    words = [word for word in words if "\x00" not in word]
    line = " ".join([*(f"{k}={shlex.quote(v)}" for k, v in env.items()), *map(shlex.quote, (*command, *words))])
    made = parse(line, LIBRARY)
    again = parse(made.quoted, LIBRARY)
    assert (made.words, made.env) == (tuple(words), env)
    assert (again.flags, again.words, again.env, again.command) == (made.flags, made.words, made.env, made.command)
    assert flags_of([*command, *words], env, LIBRARY) == made.flags


def values(flag: Flag) -> st.SearchStrategy[Any]:
    """Return values that a flag can hold, as its engine types them."""
    numbers = st.integers(int(flag.low or 0), int(min(9, flag.high or 9))).filter(lambda n: n not in flag.never)
    kinds = {"int": numbers, "stoi": numbers, "stoul": numbers, "float": st.sampled_from([0.5, 2.0]),
             "stof": st.sampled_from([0.5, 2.0]), "size": st.integers(0, 9), "units": st.just({})}  # fmt: skip
    tables = st.dictionaries(st.sampled_from(flag.keys or ("a", "b")), st.sampled_from([1, "x", None, [2]]), max_size=2)
    one = kinds.get(flag.type, tables if flag.type in ("json", "loose") else st.sampled_from(["x", "a b", "'"]))
    if flag.choices:
        one = st.sampled_from([c for c in flag.choices if not str(c).startswith("-")])
    if flag.takes == "none":
        return st.sampled_from([True, False] if flag.off else [True])
    return st.lists(one, min_size=1, max_size=2) if flag.takes in ("some", "any") else one


@pytest.mark.parametrize(
    ("line", "names", "typed", "told"),
    [
        ("vllm serve org/d", ["./d", "org/d"], "org/d", []),
        ("vllm serve org/d", [f"org/d@{'a' * 40}"], "org/d", []),
        ("vllm serve ./x/../d/", ["./d", ""], "./x/../d/", []),
        ("vllm serve org/t", ["./d", "org/d"], "", []),
        ("vllm serve org/e", ["./d", "org/d"], "", ["launch: target"]),
        ("vllm serve org/d --spec-model org/d", ["org/d"], "", ["launch: target"]),
        ("vllm serve", ["", "org/d"], "", []),
        ("python -m sglang.launch_server --model-path org/d", ["org/d"], "org/d", []),
    ],
)
def test_line_that_serves_the_drafter_itself_is_no_contradiction(
    line: str, names: list[str], typed: str, told: list[str]
) -> None:
    made = parse(line, LIBRARY)
    assert carried(made.flags, made.engine, names, LIBRARY) == typed
    found = contradictions(made, drafter=(names[-1], []), target=("org/t", []))
    assert [f.subject for f in found] == told


@pytest.mark.parametrize(("said", "refused"), [("0", False), ("-1", True), ("1024", False)])
def test_number_of_a_flag_has_bounds(said: str, refused: bool) -> None:
    words = ["llama-server", "-m", "a", "--spec-draft-n-max", said, "--spec-ngram-mod-n-max", "1024"]
    assert ("refused" in flags_of(words, {}, LIBRARY)) is refused
    assert "refused" in flags_of([*words[:-1], "1025"], {}, LIBRARY)


@settings(deadline=None)
@given(st.data(), st.sampled_from([LIBRARY.get("launch", id)[0] for id in LIBRARY.files("launch")]))
def test_flags_written_as_words_are_read_again(data: st.DataObject, launches: Launches) -> None:
    plain = [f for f in launches.flags if not (f.many or f.gone or f.takes.isdigit() or f.dest in launches.unread)]
    plain = [f for f in plain if not f.form and f.type not in ("falling", "pairs")]  # read otherwise than written
    once = [f for f in plain if sum(f.dest == other.dest for other in launches.flags) == 1]
    chosen = data.draw(st.lists(st.sampled_from(once), max_size=4, unique_by=lambda f: f.dest))
    flags = {flag.dest: data.draw(values(flag)) for flag in chosen}
    made = words_of(launches, flags)
    for read in (flags_of(made, {}, LIBRARY), parse(quote({}, made), LIBRARY).flags):
        assert {name: value for name, value in read.items() if name not in ("unfit", "ranges", "spoilt")} == {
            **flags,
            "env": {},
        }


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        ("--config=flags.yaml", {}),  # such a file is never opened
        ("--config flags.yaml", {"config": "flags.yaml", "unread": ["flags.yaml"]}),
        ("--config a --config b", {"config": "b", "unread": ["a", "b"], "spoilt": "twice"}),
        ("--config", {"refused": "argument --config: --config", "unread": [""]}),
        ("-sc.method eagle3 --speculative-config.model D", {"speculative_config": {"model": "D"}}),  # two tables
    ],
)
def test_what_a_name_stands_for_as_it_is_typed(words: str, flags: dict[str, Any]) -> None:
    assert flags_of(["vllm", "serve", "M", *words.split()], {}, LIBRARY) == {"model": "M", "env": {}, **flags}


YAML = """
max-model-len: 128
enforce-eager: true
enable-prefix-caching: false
served-model-name: [a, b]
speculative-config: {method: eagle3, model: D, num_speculative_tokens: 3}
"""


def test_flags_of_a_yaml_file_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "flags.yaml"
    path.write_text(YAML)
    spec = {"method": "eagle3", "model": "D", "num_speculative_tokens": 3}
    held = {"enforce_eager": True, "enable_prefix_caching": False, "served_model_name": ["a", "b"], "env": {}}
    held["pulled"] = [line.partition(":")[0].replace("-", "_") for line in YAML.splitlines() if line[:1].isalpha()]
    made = parse(f"vllm serve M --config {path} --max-model-len 64", LIBRARY)
    assert made.flags == {"model": "M", "max_model_len": 64, "speculative_config": spec, **held}
    assert (made.target, made.drafter, [f.code for f in made.findings]) == ("M", "D", ["CLI660"])
    assert "model" not in parse(f"vllm serve --config {path}", LIBRARY).flags


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [("a.yaml", "[a]", "no table"), ("a.json", "{}", "suffix"), ("a.yml", "a: [", "ParserError"),
     ("a.YAML", "", "empty"), ("a.yaml", "a: 1", "")],
)  # fmt: skip
def test_what_is_wrong_with_a_file_of_flags_is_told(tmp_path: Path, name: str, text: str, fault: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    words = ["python", "-m", "sglang.launch_server", "--config", str(path)]
    assert flags_of(words, {}, LIBRARY).get("spoilt", "") == fault
    assert flags_of([*words, "--config", str(path)], {}, LIBRARY)["spoilt"] == "twice"


@pytest.mark.parametrize("text", ["[a]", "a: &a [*a]", "{", "a: 2026-12-01", "\0", "- - -"])
def test_file_that_is_no_table_of_flags_is_not_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "flags.yaml"
    path.write_text(text)
    assert flags_of(["vllm", "serve", "M", "--config", str(path)], {}, LIBRARY)["unread"] == [str(path)]


@pytest.mark.parametrize(
    ("flag", "value", "taken"),
    [
        ("--attention-config", '{"backend": "Triton_Attn"}', True),
        ("--attention-config", '{"backend": "triton-attn"}', False),
        ("--attention-config", '{"flash_attn_version": 5}', False),
        ("--kernel-config", '{"moe_backend": "BATCHED-triton"}', True),
        ("--kernel-config", '{"moe_backend": "nope"}', False),
        ("--compilation-config", '{"mode": 3}', True),
        ("--compilation-config", '{"mode": 4}', False),
        ("--compilation-config", '{"mode": "vllm_compile"}', True),
        ("--compilation-config", '{"mode": "3"}', False),
        ("--compilation-config", '{"mode": []}', False),
        ("--compilation-config", '{"cudagraph_capture_sizes": [1, "2"]}', True),
        ("--compilation-config", '{"cudagraph_capture_sizes": [1, "b"]}', False),
        ("--compilation-config", '{"splitting_ops": ["a", 1]}', False),
        ("--compilation-config", '{"compile_sizes": [1, "a"]}', True),
        ("--compilation-config", '{"compile_sizes": 1}', False),
        ("--kv-transfer-config", '{"kv_role": "both"}', False),
        ("--kv-transfer-config", '{"kv_role": null}', True),
    ],
)
def test_key_of_a_table_takes_some_words(flag: str, value: str, taken: bool) -> None:
    assert ("refused" not in flags_of(["vllm", "serve", "M", flag, value], {}, LIBRARY)) is taken


def test_short_name_that_takes_few_words_apart() -> None:
    flags = flags_of(["vllm", "serve", "M", "-O", "5"], {}, LIBRARY)
    assert flags["refused"] == "unrecognized arguments: -O; unrecognized arguments: 5"
    assert "optimization_level" not in flags
    assert flags_of(["vllm", "serve", "M", "-O5"], {}, LIBRARY)["unfit"] == "-O must be an integer >=0 <=3, not 5"


@pytest.mark.parametrize(
    ("words", "misplaced"),
    [
        ("--served-model-name a M", True),
        ("--dtype auto M --served_model_name a", True),
        ("M --served-model-name a", False),
        ("--served-model-name a --model M", False),
        ("--served-model-name a --config flags.yaml", False),
        ("--served-model a M", False),
    ],
)
def test_flag_beside_which_the_model_must_come_first(words: str, misplaced: bool) -> None:
    assert ("misplaced" in flags_of(["vllm", "serve", *words.split()], {}, LIBRARY)) is misplaced


@pytest.mark.parametrize(
    ("table", "refused"), [('{"backend": "xgrammar"}', False), ('{"backend": "x"}', True), ('{"backend": 1}', True),
                           ('{"disable_any_whitespace": "on"}', False), ('{"disable_any_whitespace": 2}', True)]
)  # fmt: skip
def test_table_that_is_typed_when_flags_are_read_is_refused_then(table: str, refused: bool) -> None:
    flags = flags_of(["vllm", "serve", "M", "--structured-outputs-config", table], {}, LIBRARY)
    assert ("refused" in flags) is refused
    assert "unfit" not in flags


def test_values_of_a_table_that_are_not_of_their_kind_are_named() -> None:
    table = '{"method": "eagle3", "model": "d", "num_speculative_tokens": "3", "max_model_len": 0}'
    words = ["vllm", "serve", "M", "-tp", "0", "--speculative-config", table]
    flags = flags_of(words, {}, LIBRARY)
    assert flags["speculative_config"]["num_speculative_tokens"] == 3
    assert flags["unfit"] == "-tp must be an integer >=1, not 0; max_model_len must be an integer >=1, not 0"
    found = parse(" ".join(words[:-1]) + f" '{table}'", LIBRARY).findings
    assert [(f.code, f.observed) for f in found] == [("CLI658", "0"), ("CLI658", "0")]


@pytest.mark.parametrize(
    ("words", "env", "types"),
    [
        (["--spec-type", "draft-eagle3", "--spec-type", "ngram-mod"], "", "draft-eagle3,ngram-mod"),
        (["--spec-type", "draft-eagle3", "--spec-type", "none"], "", "draft-eagle3"),
        (["--spec-type", "none"], "draft-eagle3", "draft-eagle3"),
        (["--spec-type", "ngram-mod"], "draft-eagle3", "draft-eagle3,ngram-mod"),
        (["--spec-type", "none"], "none", "none"),
        ([], "draft-eagle3", "draft-eagle3"),
    ],
)
def test_types_that_are_given_twice_add_up(words: list[str], env: str, types: str) -> None:
    said = {"LLAMA_ARG_SPEC_TYPE": env} if env else {}
    assert flags_of(["llama-server", "-m", "a", *words], said)["spec_type"] == types
