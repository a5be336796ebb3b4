# ./dev install and door-test.

package_tools=(lintian fakeroot dpkg-dev file gzip)
door_parts=(packages sanitizers aarch64 python-abi jetson cuda-wheel)
# Programs over the interfaces that others call.
interface_programs=(c_interface_test cpp_interface_test)
readonly abi_wheel=$PWD/build/python-abi
readonly cuda_wheel=$PWD/build/cuda-wheel
readonly cuda_wheel_megabytes=150

command_install() {
  (($# >= 1 && $# <= 2)) || die "install: expected PREFIX [COMPONENT]"
  case ${2:-tools} in
    tools | runtime | dev) ;;
    *) die "install: '$2' is not tools, runtime or dev" ;;
  esac
  build install
  cmake --install build/install --prefix "$1" --strip ${2:+--component "$2"}
}

# door-test [PART...]
command_door_test() {
  local parts=("$@") part
  for part in "$@"; do
    [[ " ${door_parts[*]} " == *" $part "* ]] ||
      die "door-test: '$part' is none of ${door_parts[*]}"
  done
  ((${#parts[@]})) || parts=("${door_parts[@]}")
  for part in "${parts[@]}"; do
    "door_${part//-/_}"
  done
  print_phases
  report_tests
}

door_packages() {
  need_packages "${package_tools[@]}"
  build packages
  step "make Debian packages" make_packages
  step "lintian" lint_packages
  step "use what is in them" use_packages
}

# The interfaces for C and C++ under the address and undefined-behaviour sanitizers.
door_sanitizers() {
  build_and_test asan-scalar "${interface_programs[@]}"
}

door_aarch64() {
  build_aarch64_tests
}

# One wheel, made by Python 3.12 of the objects of build/ci, for each later version that is here.
door_python_abi() {
  local found version python
  mapfile -t found < <(pythons_of_stable_abi)
  ((${#found[@]})) || die "door-test: python-abi: there is no Python 3.12"
  need_packages "${build_packages[@]}"
  [[ -d build/ci ]] || step "configure build/ci" cmake --preset ci
  step "tools that make wheels" install_python_tools "$abi_wheel/tools" "${found[0]#* }"
  step "wheel of Python ${found[0]% *}" build_python_wheel "$abi_wheel/tools" "$abi_wheel/dist"
  for python in "${found[@]}"; do
    version=${python%% *} python=${python#* }
    step "the wheel in a venv of Python $version" install_wheel "$abi_wheel/tools" \
      "$abi_wheel/packages-$version" "$abi_wheel/venv-$version" \
      "$abi_wheel"/dist/subbyte-*-cp312-abi3-*.whl "$python"
    run_python_tests "$abi_wheel/venv-$version" "$abi_wheel/tests-$version.xml"
    step "its symbols, by the headers of $version" "$python" tools/check_wheel.py \
      "$abi_wheel"/dist/subbyte-*.whl
  done
}

# Lines "3.12 /usr/bin/python3.12": on the PATH, or else of pyenv; none without 3.12, which comes
# first.
pythons_of_stable_abi() {
  local minor python
  for minor in {12..20}; do
    for python in "python3.$minor" "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor".*/bin/python3; do
      "$python" -c "" 2>/dev/null || continue  # what pyenv has on the PATH may not work
      echo "3.$minor $(command -v "$python")"
      continue 2
    done
    ((minor > 12)) || return 0
  done
}

# Device code for Jetson Orin: all files, with the kernels of two kinds of weights.
door_jetson() {
  command -v nvcc >/dev/null || die "door-test: jetson: there is no nvcc"
  need_packages "${build_packages[@]}"
  step "configure build/jetson" cmake --preset ci -B build/jetson \
    -DSUBBYTE_CUDA_ARCHITECTURES=87 -DSUBBYTE_BUILD_TESTS=OFF -DSUBBYTE_BUILD_BENCHMARKS=OFF
  step "compile for sm_87" cmake --build build/jetson --parallel "$(nproc)" \
    --target subbyte_kernels_cuda
}

# A wheel with the kernels for GPUs, as `pip install .` makes it where nvcc is: its size, and the
# tests of the package with it, which find no driver, whatever this machine has.
door_cuda_wheel() {
  command -v nvcc >/dev/null || die "door-test: cuda-wheel: there is no nvcc"
  need_packages "${build_packages[@]}" python3-dev python3-venv
  mkdir -p "$cuda_wheel"
  step "tools that make wheels" install_python_tools "$cuda_wheel/tools"
  step "wheel with CUDA" build_cuda_wheel
  step "its size and symbols" check_cuda_wheel
  step "the wheel in a new venv" install_wheel "$cuda_wheel/tools" "$cuda_wheel/packages" \
    "$cuda_wheel/venv" "$cuda_wheel"/dist/subbyte-*.whl
  mkdir -p "$cuda_wheel/no-driver"
  : >"$cuda_wheel/no-driver/libcuda.so.1"  # is found first, and is no library
  LD_LIBRARY_PATH=$cuda_wheel/no-driver run_python_tests "$cuda_wheel/venv" "$cuda_wheel/tests.xml"
}

build_cuda_wheel() {
  rm -rf "$cuda_wheel/dist"
  PATH=$cuda_wheel/tools/bin:$PATH CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) \
    "$cuda_wheel/tools/bin/python" -m pip --disable-pip-version-check wheel . --no-deps \
    --no-build-isolation --wheel-dir "$cuda_wheel/dist" \
    --config-settings=build-dir="$cuda_wheel/build" --config-settings=cmake.define.SUBBYTE_CUDA=ON
}

check_cuda_wheel() {
  local wheel bytes
  wheel=$(echo "$cuda_wheel"/dist/subbyte-*.whl)
  bytes=$(stat --format=%s "$wheel")
  echo "$wheel: $((bytes / 1000000)) MB"
  ((bytes <= cuda_wheel_megabytes * 1000000)) || {
    echo "expected at most $cuda_wheel_megabytes MB" >&2
    return 1
  }
  "$cuda_wheel/tools/bin/python" tools/check_wheel.py --cuda "$wheel"
}

make_packages() {
  rm -rf build/packages/packages
  (cd build/packages && cpack -G DEB >cpack.log 2>&1) && return
  cat build/packages/cpack.log >&2
  return 1
}

# Errors fail; warnings are shown.
lint_packages() {
  lintian --allow-root --fail-on error build/packages/packages/*.deb
}

# Unpacks them beside each other and builds and runs the examples from there.
use_packages() {
  local root=build/packages/root package
  rm -rf "$root"
  for package in build/packages/packages/*.deb; do
    dpkg-deb -x "$package" "$root" || return 1
  done
  python3 tests/install/check_install.py --cmake "$(command -v cmake)" --cxx "$(command -v c++)" \
    --source "$PWD" --build "$PWD/build/packages" --prefix "$PWD/$root/usr"
}
