# The Python package: a wheel of the objects of build/ci, and its tests where nothing else is.

# What makes wheels; it stays, as the build of the module asks it for nanobind.
readonly python_tools=$PWD/build/ci/python-tools
readonly python_venv=$PWD/build/ci/python-venv  # what a user has: made anew each time

# The least of each that pyproject.toml takes, and what the tests run with.
python_tool_packages=("scikit-build-core>=1.1" "nanobind>=3")
python_test_packages=(numpy pytest)

command_python_test() {
  build_and_test_python
  print_phases
  report_tests
}

# A package that cannot be made is a failed test, and the end of its tests.
build_and_test_python() {
  need_packages "${build_packages[@]}" python3-dev python3-venv
  if make_python_wheel; then
    run_python_tests "$python_venv" "$PWD/build/ci/python-tests.xml"
  else
    num_failed=$((num_failed + 1))
  fi
}

make_python_wheel() {
  if [[ ! -d build/ci ]]; then
    step "configure build/ci" cmake --preset ci || return 1
  fi
  step "tools that make wheels" install_python_tools "$python_tools" || return 1
  rm -rf build/ci/wheel
  step "wheel of build/ci" build_python_wheel build/ci "$python_tools" build/ci/wheel || return 1
  step "the wheel, ${python_test_packages[*]} in a new venv" install_wheel "$python_tools" \
    build/ci/python-packages "$python_venv" build/ci/wheel/subbyte-*.whl
}

# install_python_tools VENV [PYTHON]
install_python_tools() {
  [[ -x $1/bin/pip ]] || "${2:-python3}" -m venv "$1" || return 1
  "$1/bin/pip" --disable-pip-version-check install --quiet --retries 2 \
    "${python_tool_packages[@]}" || no_packages "${python_tool_packages[*]}"
}

# build_python_wheel BUILD TOOLS FOLDER [OPTION...]: for the interpreter of TOOLS. The options of
# the folder BUILD stay, flags among them: with those that pyproject.toml has for others all would
# be compiled again. What another interpreter left there is forgotten: scikit-build-core would empty
# the whole cache, and CMake would keep its headers. Comments go, too, as CMake takes none without
# an entry.
build_python_wheel() {
  local build=$1 tools=$2 folder=$3 flags
  shift 3
  flags=$(sed -n 's/^CMAKE_CXX_FLAGS_RELWITHDEBINFO:[A-Z]*=//p' "$build/CMakeCache.txt")
  rm -f "$build/.skbuild-info.json"
  sed -i -E '/^(_?Python_|nanobind_|\/\/)/d' "$build/CMakeCache.txt"
  PATH=$tools/bin:$PATH CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) \
    "$tools/bin/python" -m pip --disable-pip-version-check wheel . --no-deps \
    --no-build-isolation --wheel-dir "$folder" \
    --config-settings=build-dir="$build" \
    --config-settings=cmake.python-hints=false \
    --config-settings=cmake.define.CMAKE_CXX_FLAGS_RELWITHDEBINFO="$flags" \
    --config-settings=cmake.define.Python_EXECUTABLE="$tools/bin/python" "$@"
}

# install_wheel TOOLS PACKAGES VENV WHEEL [PYTHON]: into a new VENV of PYTHON. What the tests run
# with is fetched to the folder PACKAGES once; from then on nothing needs a network.
install_wheel() {
  local packages=$2 venv=$3 pip=("$1/bin/python" -m pip --disable-pip-version-check)
  rm -rf "$venv"
  "${5:-python3}" -m venv --without-pip "$venv" || return 1
  pip+=(--python "$venv/bin/python")
  if [[ ! -d $packages ]]; then
    "${pip[@]}" download --quiet --retries 2 --only-binary :all: --dest "$packages.part" \
      "${python_test_packages[@]}" || no_packages "${python_test_packages[*]}" || return 1
    mv "$packages.part" "$packages"
  fi
  "${pip[@]}" install --quiet --no-compile --no-index --find-links "$packages" "$4" \
    "${python_test_packages[@]}"
}

# no_packages NAMES: says what helps, and fails.
no_packages() {
  echo "dev: pip cannot get $1: it needs a network, or an index of its own that has them" \
    "(PIP_INDEX_URL, PIP_FIND_LINKS)" >&2
  return 1
}

# run_python_tests VENV REPORT: adds to num_passed and num_failed. Tests of Ctrl-C need the signal,
# which shells ignore in what they run in the background.
run_python_tests() {
  local venv=$1 report=$2 status=0
  rm -f "$report"
  phase "test python/" env --default-signal=INT "$venv/bin/python" -m pytest --quiet \
    -p no:cacheprovider --junit-xml "$report" --ignore python/tests/torch python/tests || status=$?
  count_python_tests "$report" "$status"
}

# count_python_tests REPORT STATUS: STATUS is what pytest returned. A skip is a failure: nothing of
# what these tests need may be missing.
count_python_tests() {
  local tests=0 bad=0 count
  if [[ -f $1 ]]; then
    tests=$(grep -o ' tests="[0-9]*"' "$1" | head -n 1 | grep -o '[0-9]*')
    for count in $(grep -oE ' (errors|failures|skipped)="[0-9]*"' "$1" | grep -o '[0-9]*'); do
      bad=$((bad + count))
    done
  fi
  if (($2 != 0 && bad == 0)); then bad=1 tests=$((tests + 1)); fi
  num_passed=$((num_passed + tests - bad))
  num_failed=$((num_failed + bad))
}
