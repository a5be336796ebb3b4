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

# torch_test [PYTHON]: with an interpreter that has torch, or one that is made.
torch_test() {
  local python=${1:-}
  need_packages "${build_packages[@]}"
  step "configure build/release" cmake --preset release -DSUBBYTE_BUILD_TORCH=ON
  step "build build/release subbyte_torch" cmake --build --preset release --parallel "$(nproc)" \
    --target subbyte_torch
  if [[ -z $python ]]; then python=$(torch_python); fi
  (cd python/tests/torch && PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=$OLDPWD/build/release/torch_package "$python" -m unittest discover -p 'test_*.py')
}
