# ./dev package: what others install. All of it is made of build/packages, first without and then
# with kernels for GPUs, and has everything inside but the C library.

package_tools=(lintian fakeroot dpkg-dev file gzip xz-utils python3-dev python3-venv)
package_parts=(cpu cuda tests roots)
declare -A package_megabytes=([cpu]=40 [cuda]=150)  # of each file
readonly dist=$PWD/build/dist  # a folder for each kind
made_kinds=()  # those that this call made
readonly package_trials=$PWD/build/package-trials

# package [PART...]
command_package() {
  local parts=("$@") part
  for part in "$@"; do
    [[ " ${package_parts[*]} " == *" $part "* ]] ||
      die "package: '$part' is none of ${package_parts[*]}"
  done
  if ((!${#parts[@]})); then
    parts=("${package_parts[@]}")
    if ! command -v nvcc >/dev/null; then
      echo "dev: there is no nvcc, so there are no packages with CUDA" >&2
      parts=(cpu tests roots)
    fi
  fi
  for part in "${parts[@]}"; do
    "package_$part"
  done
  print_phases
  [[ " ${parts[*]} " != *" tests "* ]] || report_tests
}

package_cpu() {
  make_packages cpu packages
}

package_cuda() {
  command -v nvcc >/dev/null || die "package: cuda: there is no nvcc"
  make_packages cuda packages-cuda
}

# make_packages KIND PRESET
make_packages() {
  local kind=$1 preset=$2 folder=$dist/$1 minor found=0
  need_packages "${package_tools[@]}"
  rm -rf "$folder"
  mkdir -p "$folder"
  build "$preset"
  step "Debian packages" make_debian_packages "$folder"
  step "lintian" lint_packages "$folder"
  step "tarball" make_tarball "$kind" "$preset"
  for minor in 11 12; do
    [[ -n $(python_of "$minor") ]] || continue
    make_wheel "$kind" "$minor"
    found=1
  done
  ((found)) || die "package: expected Python 3.11 or 3.12 to make wheels, found neither"
  phase "sizes, at most ${package_megabytes[$kind]} MB" check_sizes "$folder" \
    "${package_megabytes[$kind]}"
  made_kinds+=("$kind")
}

make_debian_packages() {
  rm -rf build/packages/packages
  (cd build/packages && cpack -G DEB) && mv build/packages/packages/*.deb "$1"
}

# Errors fail; warnings are shown.
lint_packages() {
  lintian --allow-root --fail-on error "$1"/*.deb
}

# make_tarball KIND PRESET: with lib/, where /usr would have a folder for the machine. The program
# and the libraries have the same code for GPUs, which a window over all of them finds; otherwise
# gzip does, as any machine has it.
make_tarball() {
  local kind=$1 name suffix=gz compress="gzip -9n" staged=build/packages/tarball
  name=subbyte-$(package_version)-linux-$(uname -m)
  if [[ $kind != cpu ]]; then
    name+=-$kind suffix=xz compress="xz --threads=1 --lzma2=preset=9,dict=512MiB"
  fi
  rm -rf "$staged"
  cmake --preset "$2" -DCMAKE_INSTALL_PREFIX=/opt/subbyte &&
    cmake --install build/packages --prefix "$staged/$name" --strip &&
    cp LICENSE build/packages/package/LICENSES-OF-LIBRARIES "$staged/$name" &&
    tar --create --sort=name --owner=0 --group=0 --numeric-owner \
      --use-compress-program="$compress" --directory "$staged" \
      --file "$dist/$kind/$name.tar.$suffix" "$name"
}

package_version() {
  sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' build/packages/CMakeCache.txt
}

# make_wheel KIND MINOR: that of Python 3.12 is for all later ones.
make_wheel() {
  local kind=$1 python tools=$PWD/build/packages/python-3.$2 options=() checks=()
  if [[ $kind != cpu ]]; then
    options=(--config-settings=wheel.build-tag="1$kind") checks=("--$kind")
  fi
  python=$(python_of "$2")
  step "tools that make wheels of Python 3.$2" install_python_tools "$tools" "$python"
  step "wheel of Python 3.$2" build_python_wheel build/packages "$tools" "$dist/$kind" \
    "${options[@]}"
  step "what it needs" "$tools/bin/python" tools/check_wheel.py "${checks[@]}" \
    "$(wheel_for "$kind" "$2")"
}

# python_of MINOR: Python 3.MINOR on the PATH, or else of pyenv; nothing without it.
python_of() {
  local python
  for python in "python3.$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$1".*/bin/python3; do
    "$python" -c "" 2>/dev/null || continue  # what pyenv has on the PATH may not work
    command -v "$python"
    return
  done
}

# check_sizes FOLDER MEGABYTES
check_sizes() {
  local file bytes status=0
  for file in "$1"/*; do
    bytes=$(stat --format=%s "$file")
    awk -v bytes="$bytes" -v file="${file#"$PWD/"}" \
      'BEGIN { printf "%6.1f MB  %s\n", bytes / 1e6, file }'
    if ((bytes > $2 * 1000000)); then
      echo "$file: expected at most $2 MB" >&2
      status=1
    fi
  done
  return "$status"
}

# kinds_to_try: those that this call made; where it made none, those that are there, which it says.
kinds_to_try() {
  local kind kinds=("${made_kinds[@]}")
  if ((!${#kinds[@]})); then
    for kind in cpu cuda; do
      [[ -d $dist/$kind ]] || continue
      kinds+=("$kind")
      echo "dev: tries build/dist/$kind, made on $(date --reference "$dist/$kind" '+%F %R')" >&2
    done
  fi
  ((${#kinds[@]})) || die "package: there is nothing in $dist: ./dev package cpu makes it"
  echo "${kinds[@]}"
}

# What is in the packages, used with what is here: the examples with the libraries, the tests of
# the Python package with each wheel in each Python that takes it.
package_tests() {
  local kind kinds wheel minor python
  kinds=$(kinds_to_try)
  need_packages "${build_packages[@]}" "${package_tools[@]}"
  mkdir -p "$package_trials/no-driver"
  : >"$package_trials/no-driver/libcuda.so.1"  # is found first, and is no library
  for kind in $kinds; do
    step "examples with the Debian packages, $kind" use_packages "$kind"
    for minor in {11..20}; do
      python=$(python_of "$minor")
      wheel=$(wheel_for "$kind" "$minor")
      [[ -n $python && -n $wheel ]] || continue
      test_wheel "$wheel" "$python" "$package_trials/$kind-3.$minor"
    done
  done
}

# wheel_for KIND MINOR: the wheel that Python 3.MINOR takes; nothing without one.
wheel_for() {
  local tag=cp312-abi3
  (($2 >= 12)) || tag=cp3$2-cp3$2
  compgen -G "$dist/$1/subbyte-*-$tag-*.whl" || true
}

# test_wheel WHEEL PYTHON FOLDER: where no driver of a GPU is, whatever this machine has.
test_wheel() {
  local wheel=$1 python=$2 folder=$3
  step "tools of $python" install_python_tools "$folder/tools" "$python"
  step "${wheel##*/} in a new venv" install_wheel "$folder/tools" "$folder/packages" \
    "$folder/venv" "$wheel" "$python"
  LD_LIBRARY_PATH=$package_trials/no-driver run_python_tests "$folder/venv" "$folder/tests.xml"
}

# use_packages KIND: unpacks them beside each other and builds and runs the examples from there.
use_packages() {
  local root=$package_trials/debian-$1 package
  rm -rf "$root"
  for package in "$dist/$1"/*.deb; do
    dpkg-deb -x "$package" "$root" || return 1
  done
  python3 tests/install/check_install.py --cmake "$(command -v cmake)" --cxx "$(command -v c++)" \
    --source "$PWD" --build "$package_trials" --prefix "$root/usr"
}
