#!/bin/bash
# Where the time of the steps of a program goes on a GPU, kernel by kernel, as CUPTI records it:
#
#   tools/gpu_trace/gpu_trace.sh build/gpu/app/subbyte --device cuda run MODEL -p Hello -n 64
#
# Needs g++ and the CUDA toolkit (CUDA_HOME, or the one of nvcc). Prints a table for each kind of
# step that ran several times (step_times.py); the raw lines stay in $KERNEL_TRACE if that is set.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cuda=${CUDA_HOME:-$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

include=$(find -L "$cuda" -name cupti.h -printf '%h\n' | head -1)
library=$(find -L "$cuda" -name libcupti.so -printf '%h\n' | head -1)
if [ -z "$include" ] || [ -z "$library" ]; then
  echo "gpu_trace.sh: no CUPTI in $cuda: set CUDA_HOME" >&2
  exit 1
fi
g++ -std=c++20 -O1 -shared -fPIC -I"$include" -I"$cuda/include" "$here/kernel_trace.cc" \
  -o "$work/libkernel_trace.so" -L"$library" -Wl,-rpath,"$library" -lcupti

export KERNEL_TRACE=${KERNEL_TRACE:-$work/trace}
CUDA_INJECTION64_PATH=$work/libkernel_trace.so "$@"
python3 "$here/step_times.py" "$KERNEL_TRACE"
