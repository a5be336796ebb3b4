# Builds test programs, runs them, counts their tests; for ./dev.

num_passed=0
num_failed=0

# Sanitizers reserve fixed ranges of addresses, which the randomization of recent kernels can hit.
without_randomization() {
  if setarch --addr-no-randomize true 2>/dev/null; then
    setarch --addr-no-randomize "$@"
  else
    "$@"
  fi
}

# run_tests PRESET [CTEST OPTION...]: adds to num_passed and num_failed.
run_tests() {
  local preset=$1 report=$PWD/build/$1/tests.xml status=0
  shift
  rm -rf "$report" "build/$preset/test_reports"
  phase "test build/$preset ${SUBBYTE_ISA:+with SUBBYTE_ISA=$SUBBYTE_ISA }$*" \
    run_ctest "$preset" --output-junit "$report" "$@" || status=$?
  count_tests "$report" "$status" "build/$preset/test_reports"
}

# Where tests put their files: in memory where that has room, as they wait for a disk at each fsync.
# Some become another user on the way, and some look at lines with a path of 40 columns.
folder_for_files_of_tests() {
  local available folder
  available=$(df --output=avail --block-size=1G /dev/shm 2>/dev/null | tail -n 1)
  if ((${available:-0} >= 8 && $(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo) >= 8 << 20)) &&
    [[ -z ${TMPDIR:-} && -w /dev/shm ]]; then
    folder=$(mktemp -d /dev/shm/XXXX)
  else
    folder=$(mktemp -d)
  fi
  chmod 1777 "$folder"
  echo "$folder"
}

# run_ctest PRESET [CTEST OPTION...]
run_ctest() {
  local files status=0
  files=$(folder_for_files_of_tests)
  TMPDIR=$files ctest_in "$@" || status=$?
  rm -rf "$files"
  return "$status"
}

# ctest_in PRESET [CTEST OPTION...]
ctest_in() {
  without_randomization ctest --preset "$1" --parallel 2 --no-tests=error "${@:2}" | slowest_labels
}

# Passes the output of ctest on, but of its seconds by label, which are programs, the largest ten.
slowest_labels() {
  awk '
    /^Label Time Summary:/ { print "Seconds of the slowest programs:"; in_labels = 1; next }
    in_labels && / sec\*proc / { print $0 | "sort -t = -k 2 -rn | head"; next }
    in_labels { close("sort -t = -k 2 -rn | head"); in_labels = 0 }
    { print; fflush() }'
}

# count_tests REPORT STATUS FOLDER: STATUS is what ctest returned; FOLDER has what the parts of
# GoogleTest programs reported (tools/run_gtest.py), which count in place of the parts.
count_tests() {
  local passed=0 failed=0 lines
  if [[ -f $1 ]]; then
    lines=$(grep '<testcase ' "$1" | grep -v 'name="[a-z_]*\.part_' || true)
    passed=$(grep -c 'status="run"' <<<"$lines" || true)
    failed=$(grep -c 'status="fail"' <<<"$lines" || true)
  fi
  lines=$(cat "$3"/* 2>/dev/null || true)
  passed=$((passed + $(grep -c '^passed ' <<<"$lines" || true)))
  failed=$((failed + $(grep -c '^failed ' <<<"$lines" || true)))
  sed -n -E 's/^(failed|skipped) ([a-z_]+) [0-9.]+ /\1: \2: /p' <<<"$lines"
  # Tests that could not start and reports that are not there are failures, too.
  if (($2 != 0 && failed == 0)); then failed=1; fi
  num_passed=$((num_passed + passed))
  num_failed=$((num_failed + failed))
}

# build_or_end PRESET [TARGET...]: a build that fails is a failed test, and the end.
build_or_end() {
  build "$@" && return
  num_failed=$((num_failed + 1))
  print_phases
  report_tests || exit 1
}

# build_and_test PRESET [PROGRAM...]: all programs if none is named.
build_and_test() {
  local preset=$1
  shift
  build_or_end "$preset" "$@"
  if (($#)); then
    run_tests "$preset" --label-regex "$(label_regex "$@")"
  else
    run_tests "$preset"
  fi
}

# Every test carries the name of its program as a label.
label_regex() {
  echo "^($(joined '|' "$@"))\$"
}

# joined SEPARATOR WORD...
joined() {
  local IFS=$1
  echo "${*:2}"
}

# filter_of SUITE...: for GTEST_FILTER, which ctest hands on to each program.
filter_of() {
  joined : "${@/%/.*}"
}

# quick_tests [BASE]: the programs that edits since BASE concern (tools/changed_tests.py), and the
# checks of the house, which need no program.
quick_tests() {
  local chosen programs=() targets=()
  need_packages "${build_packages[@]}" "${format_packages[@]}"
  step "configure build/ci" cmake --preset ci
  chosen=$(tools/changed_tests.py build/ci/test_programs.txt ${1:+--base "$1"})
  while read -r kind name; do
    case $kind in
      test) programs+=("$name") ;;&
      test | build) targets+=("$name") ;;
    esac
  done <<<"$chosen"
  echo "== changed: ${targets[*]:-nothing that has tests}" >&2
  if ((${#targets[@]})); then build_or_end ci "${targets[@]}"; fi
  run_tests ci --label-regex "$(label_regex tools "${programs[@]}")"
}

# report_tests [MORE]. The last line is for CI: alone on its line.
report_tests() {
  echo "$num_passed passed, $num_failed failed${1:-}"
  ((num_failed == 0))
}
