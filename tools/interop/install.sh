#!/usr/bin/env bash
# The environments of tools/interop in build/interop, some 8 GB, with Python 3.11. All share one
# PyTorch. Packages that would pin other versions of what they are to be tried with go without
# their dependencies.
#
#   tools/interop/install.sh [tools | ct17 | awq]...
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p build/interop
cd build/interop

# environment NAME: an empty one that sees the PyTorch of all.
environment() {
  python3 -m venv "$1"
  ls -d "$PWD"/torch/lib/python3*/site-packages >"$(echo "$1"/lib/python3*/site-packages)/torch.pth"
  "$1/bin/pip" install --quiet setuptools wheel
}

install_torch() {
  [[ -d torch ]] && return
  python3 -m venv torch
  torch/bin/pip install --quiet torch==2.15.0 numpy setuptools wheel
}

# The current releases, side by side.
install_tools() {
  environment tools
  tools/bin/pip install --quiet transformers==5.23.0 compressed-tensors==0.20.0 \
    bitsandbytes==0.50.2 accelerate==1.15.0 optimum==2.3.0 datasets loguru pyyaml nvidia-ml-py \
    pillow
  tools/bin/pip install --quiet --no-deps llmcompressor==0.14.0.1
  tools/bin/pip install --quiet auto-round==0.16.1 nvidia-modelopt==0.47.0
  BUILD_CUDA_EXT=0 tools/bin/pip install --quiet --no-build-isolation GPTQModel==7.7.0
}

# The last that writes "actorder": "group" and packs 3 bits in lanes.
install_ct17() {
  environment ct17
  ct17/bin/pip install --quiet transformers==5.10.1 compressed-tensors==0.17.1 accelerate==1.15.0 \
    datasets loguru pyyaml requests nvidia-ml-py pillow
  ct17/bin/pip install --quiet --no-deps llmcompressor==0.12.0.2 auto-round==0.14.1
}

# AutoAWQ ends with this transformers, which also has the older rule of sliding layers and writes
# HQQ, as later ones do not.
install_awq() {
  environment awq
  awq/bin/pip install --quiet transformers==4.51.3 accelerate==1.15.0 datasets zstandard
  awq/bin/pip install --quiet --no-build-isolation --no-deps autoawq==0.2.9
  awq/bin/pip install --quiet --no-deps hqq==0.2.8.post1 termcolor==3.3.0
}

install_torch
[[ $# -gt 0 ]] || set -- tools ct17 awq
for name in "$@"; do "install_$name"; done
