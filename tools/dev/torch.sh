# Builds the operators of PyTorch, and the package with what is made of them for other software, and
# runs their tests; for ./dev.

# filled_venv FOLDER PACKAGE...: the interpreter of build/FOLDER, made when it is not there; pip
# needs a network then, and takes a while.
filled_venv() {
  local venv=build/$1
  shift
  if [[ ! -e $venv/complete ]]; then
    python3 -m venv "$venv" >&2 && "$venv/bin/python" -m pip install --quiet "$@" >&2 &&
      touch "$venv/complete" || return 1
  fi
  echo "$PWD/$venv/bin/python"
}

# torch with what its tests compare with, and what builds the module of the package.
torch_python() {
  filled_venv torch-venv torch numpy bitsandbytes "transformers>=5" accelerate "nanobind>=3"
}

has_python_package() { "$1" -c "import $2" 2>/dev/null; }

# torch_test [PYTHON]: with an interpreter that has torch, or one that is made. The kernels for GPUs
# take long to compile, so they are built only where a GPU can run them.
torch_test() {
  local python=${1:-} cuda=OFF module=OFF targets=(subbyte_torch)
  if has_gpu_driver; then cuda=ON; fi
  if [[ -z $python ]]; then python=$(torch_python); fi
  if has_python_package "$python" nanobind; then module=ON targets+=(subbyte_python); fi
  need_packages "${build_packages[@]}"
  step "configure build/torch" cmake --preset release -B build/torch -DSUBBYTE_BUILD_TORCH=ON \
    -DSUBBYTE_CUDA="$cuda" -DSUBBYTE_BUILD_TESTS=OFF -DSUBBYTE_BUILD_PROGRAM=OFF \
    -DSUBBYTE_BUILD_PYTHON="$module" -DPython_EXECUTABLE="$python"
  step "build build/torch" cmake --build build/torch --parallel "$(nproc)" --target "${targets[@]}"
  run_torch_tests "$python" python/tests/torch build/torch/torch_package
  if [[ $module == OFF ]]; then
    echo "dev: $python has no nanobind: the package for transformers was not built or tested" >&2
    return
  fi
  link_torch_package
  # Matrix of the package with tensors of torch, where a GPU is.
  run_torch_tests "$python" python/tests/torch/with_module build/torch/package
  if has_python_package "$python" transformers; then
    run_torch_tests "$python" python/tests/torch/with_transformers build/torch/package
  else
    echo "dev: $python has no transformers: the package for it was not tested" >&2
  fi
  # vLLM wants a torch and a transformers of its own, so it has an interpreter of its own: this one,
  # or build/vllm-venv where somebody has made that (docs/torch.md).
  local vllm=$PWD/build/vllm-venv/bin/python
  [[ -x $vllm ]] || vllm=$python
  if has_python_package "$vllm" vllm; then
    run_torch_tests "$vllm" python/tests/torch/with_vllm build/torch/package
  else
    echo "dev: $vllm has no vllm: the plug-in was tested with torch alone" >&2
  fi
  # GPTQModel fits neither.
  local gptqmodel=$PWD/build/gptqmodel-venv/bin/python
  if [[ -x $gptqmodel ]] && ! has_python_package "$python" gptqmodel; then
    run_torch_tests "$gptqmodel" python/tests/torch build/torch/torch_package 'test_gptqmodel.py'
  fi
}

# run_torch_tests PYTHON FOLDER PACKAGES [FILES]
run_torch_tests() {
  (cd "$2" && PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$OLDPWD/$3 \
    "$1" -m unittest discover -p "${4:-test_*.py}")
}

# The package as a wheel has it: build/torch/package/subbyte.
link_torch_package() {
  local folder=build/torch/package/subbyte
  rm -rf "$folder" && mkdir -p "$folder" &&
    ln -s "$PWD"/python/subbyte/*.py "$PWD/python/subbyte/transformers" \
      "$PWD/build/torch/torch_package/subbyte/torch" "$PWD"/build/torch/python/_core.*so "$folder"
}
