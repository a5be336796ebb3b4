#!/usr/bin/env bash
# dev_test.sh ROOT: how ./dev counts tests and takes times, with programs that only print or take
# what real ones would.
set -euo pipefail
cd "$1"
source tools/dev/phases.sh
source tools/dev/test.sh
source tools/dev/gpu.sh
source tools/dev/python.sh

folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
die() {
  echo "$*" >&2
  exit 1
}

# expect TITLE LINE: LINE is the last one that the command in `run` prints.
expect() {
  local found
  found=$(run 2>"$folder/errors" | tail -n 1) || true
  [[ $found == "$2" ]] || die "$1: expected '$2', found '$found'; $(cat "$folder/errors")"
}

# gpu_program STATUS: of what is on standard input, for every process.
gpu_program() {
  { echo "#!/bin/sh"; echo "cat <<'TXT'"; cat; echo TXT; echo "exit $1"; } >"$folder/program"
  chmod +x "$folder/program"
}
find_gpu_program() { program=$folder/program; }
nproc() { echo 1; }

run() { command_gpu_test --gtest_filter='*'; }
gpu_program 0 <<'TXT'
[       OK ] A.passes (1 ms)
b.cc:3: Skipped
the kernel of a step needs compute capability 9.0

[  SKIPPED ] A.skips (0 ms)
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] A.skips
TXT
expect "a skip is neither passed nor failed" "1 passed, 0 failed, 1 skipped"
grep -q 'skipped 1: the kernel of a step needs compute capability 9.0' "$folder/errors" ||
  die "the reason of a skip is not said"
gpu_program 1 <<'TXT'
[  FAILED  ] A.fails (1 ms)
[  FAILED  ] 1 test, listed below:
[  FAILED  ] A.fails
TXT
expect "a failed test" "0 passed, 1 failed, 0 skipped"
gpu_program 134 <<<'[       OK ] A.passes (1 ms)'
expect "a program that dies" "1 passed, 1 failed, 0 skipped"

ctest_status=0
run() {
  count_tests "$folder/tests.xml" "$ctest_status" "$folder/reports"
  report_tests
}
cat >"$folder/tests.xml" <<'TXT'
<testcase name="a" classname="a" time="0.1" status="run">
<testcase name="b" classname="b" time="0.1" status="fail">
<testcase name="c" classname="c" time="0.1" status="notrun">
<testcase name="d_test.part_0" classname="d" time="0.1" status="run">
<testcase name="d_test.part_1" classname="d" time="0.1" status="fail">
TXT
expect "a report of ctest" "1 passed, 1 failed"
mkdir "$folder/reports"
echo "passed d_test 0.1 D.a" >"$folder/reports/d_test.part_0"
printf '%s\n' "failed d_test 0.1 D.b" "skipped d_test 0.1 D.c: no such machine" \
  "passed d_test 0.1 D.d" >"$folder/reports/d_test.part_1"
expect "a report of ctest and those of parts" "3 passed, 2 failed"
for line in "failed: d_test: D.b" "skipped: d_test: D.c: no such machine"; do
  grep -qxF "$line" <<<"$(run)" || die "'$line' is not said"
done
sed -i 's/"fail"/"run"/' "$folder/tests.xml"
rm "$folder/reports/d_test.part_1"
ctest_status=8
expect "a part that reports nothing" "3 passed, 1 failed"

# python_report STATUS ATTRIBUTES: what pytest returned, and what its report says.
python_report() {
  local status=$1
  echo "<testsuites><testsuite name=\"pytest\" $2 time=\"1.0\">" >"$folder/python.xml"
  eval "run() { count_python_tests '$folder/python.xml' $status; report_tests; }"
}
python_report 1 'errors="1" failures="2" skipped="1" tests="9"'
expect "a skip of pytest is a failure" "5 passed, 4 failed"
python_report 0 'errors="0" failures="0" skipped="0" tests="9"'
expect "a report of pytest" "9 passed, 0 failed"
python_report 3 'errors="0" failures="0" skipped="0" tests="9"'
expect "a pytest that dies" "9 passed, 1 failed"
run() { count_python_tests "$folder/none.xml" 4; report_tests; }
expect "a pytest that has not begun" "0 passed, 1 failed"

# A phase that computes, one that fails and the table of both.
busy() {
  local end=$((wall + 40)) cpu_end=$((cpu + 10)) i
  while ((wall < end || cpu < cpu_end)); do
    for ((i = 0; i < 1000; ++i)); do :; done
    read_clocks
  done
}
fails() {
  echo "what it says"
  return 3
}
status=0
{
  read_clocks
  phase "computes" busy
  step "fails $(printf '%070d' 0)" fails || status=$?
  print_phases
} 2>"$folder/errors"
((status == 3)) || die "a phase that fails has status 3, not $status"
grep -q '^what it says$' "$folder/errors" || die "what a phase that failed had printed is not shown"
# Other programs may have the processors; but what was computed is no more than the time that
# passed.
awk '
  NF >= 3 { wall[$1] = $(NF - 1); cpu[$1] = $NF }
  function apart(a, b) { return a > b ? a - b : b - a }
  END {
    exit !(wall["computes"] >= 0.4 && cpu["computes"] > 0 &&
      cpu["computes"] <= wall["computes"] + 0.1 &&
      apart(wall["all"], wall["computes"] + wall["fails"]) < 0.15)
  }' "$folder/errors" || die "times of phases are wrong: $(cat "$folder/errors")"
! awk 'length > 79 && !/^== /' "$folder/errors" | grep -q . || die "a line of the table is too long"

# A build says how far it is; what it prints otherwise is shown if it fails.
builds() {
  local i
  for ((i = 1; i <= 40; ++i)); do echo "[$i/40] Building a file"; done
  echo "what it says"
  return "$1"
}
step "builds" builds 0 2>"$folder/errors"
[[ $(grep -c '^   [0-9]*0 %$' "$folder/errors") == 10 ]] || die "a build does not say each tenth"
! grep -q "what it says" "$folder/errors" || die "a build that succeeds shows what it printed"
status=0
step "builds" builds 4 2>"$folder/errors" || status=$?
((status == 4)) || die "a build that fails has status 4, not $status"
grep -q '^what it says$' "$folder/errors" || die "a build that fails does not show what it printed"

slowest_labels >"$folder/slowest" <<'TXT'
100% tests passed

Label Time Summary:
a_test       =   1.50 sec*proc (2 tests)
b_test       =  12.25 sec*proc (1 test)

Total Test time (real) =   9.50 sec
TXT
[[ $(grep -c sec.proc "$folder/slowest") == 2 ]] || die "programs are missing"
[[ $(grep -m 1 sec.proc "$folder/slowest") == b_test* ]] || die "the slowest program is not first"
grep -q '^Total Test time' "$folder/slowest" || die "the last line of ctest is missing"

# Packages that are too large, that leave a file, or whose answer is not that of the others.
(
  root=$PWD
  cd "$folder"
  source "$root/tools/dev/package.sh"
  source "$root/tools/dev/package_roots.sh"
  as_root() { "$@"; }
  in_root() {
    echo "$answered"
    [[ -z $left ]] || : >"$1/$left"
  }
  ln -s "$root/demo" "$root/examples" "$root/tools" .
  mkdir -p build/dist/cpu build/package-roots/suite/proc
  package=build/dist/cpu/subbyte-1.0-1cuda-cp312-abi3-linux_x86_64.whl
  truncate --size=2000000 "$package"
  check_sizes build/dist/cpu 2 >/dev/null || die "a package of 2 MB is refused"
  ! check_sizes build/dist/cpu 1 >/dev/null 2>&1 || die "a package that is too large passes"
  [[ $(wheel_for cpu 13) == "$PWD/$package" ]] || die "Python 3.13 does not take the wheel of 3.12"
  [[ -z $(wheel_for cpu 11) ]] || die "Python 3.11 takes the wheel of 3.12"
  answered=words left=
  try_in_root suite deb "$package" || die "a package that leaves nothing is refused"
  left=rest
  ! try_in_root suite deb "$package" >/dev/null || die "a package that leaves a file passes"
  rm build/package-roots/suite/rest
  answered="other words" left=
  ! try_in_root suite deb "$package" >/dev/null || die "a package that answers otherwise passes"
)
