# ./dev install and door-test.

door_parts=(sanitizers aarch64 jetson)
# Programs over the interfaces that others call.
interface_programs=(c_interface_test backends_test)

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

# The interfaces for C and C++ under the address and undefined-behaviour sanitizers.
door_sanitizers() {
  build_and_test asan-scalar "${interface_programs[@]}"
}

door_aarch64() {
  build_aarch64_tests
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
