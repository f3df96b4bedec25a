#!/bin/sh
# Make the environment in which testing/run_sglang.py runs SGLang's own code on a plain CPU machine.
# usage: install-sglang.sh VENV_DIR [SGLANG_VERSION]     (about 1.7 GB; no CUDA packages: SGLang itself comes without its dependencies)
set -e
python3 -m venv "$1"
pip="$1/bin/pip install -q --no-input"
$pip torch==2.13.0
$pip --no-deps "sglang==${2:-0.5.23}"
$pip transformers==5.19.0 compressed-tensors==0.18.0 openai==2.8.0 msgspec orjson pyzmq aiohttp fastapi uvicorn requests pillow ipython psutil pybase64 \
    python-multipart setproctitle sentencepiece gguf partial-json-parser einops nvidia-ml-py scipy dill distro watchfiles regex zstandard
