# Builds the operators of PyTorch and runs their tests; for ./dev.

# The interpreter of build/torch-venv, made when it is not there. What is installed is torch with
# what its tests compare with; pip needs a network then, and takes a while.
torch_python() {
  local venv=build/torch-venv
  if [[ ! -e $venv/complete ]]; then
    python3 -m venv "$venv" >&2 &&
      "$venv/bin/python" -m pip install --quiet torch numpy bitsandbytes >&2 &&
      touch "$venv/complete" || return 1
  fi
  echo "$PWD/$venv/bin/python"
}

# torch_test [PYTHON]: with an interpreter that has torch, or one that is made. The kernels for GPUs
# take long to compile, so they are built only where a GPU can run them.
torch_test() {
  local python=${1:-} cuda=OFF
  if has_gpu_driver; then cuda=ON; fi
  need_packages "${build_packages[@]}"
  step "configure build/torch" cmake --preset release -B build/torch -DSUBBYTE_BUILD_TORCH=ON \
    -DSUBBYTE_CUDA="$cuda" -DSUBBYTE_BUILD_TESTS=OFF -DSUBBYTE_BUILD_PROGRAM=OFF
  step "build build/torch" cmake --build build/torch --parallel "$(nproc)" --target subbyte_torch
  if [[ -z $python ]]; then python=$(torch_python); fi
  (cd python/tests/torch && PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=$OLDPWD/build/torch/torch_package "$python" -m unittest discover -p 'test_*.py')
}
