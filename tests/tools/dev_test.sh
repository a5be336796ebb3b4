#!/usr/bin/env bash
# dev_test.sh ROOT: how ./dev counts tests, with programs that only print what real ones would.
set -euo pipefail
cd "$1"
source tools/dev/test.sh
source tools/dev/gpu.sh

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

run() {
  count_tests "$folder/tests.xml" 0
  report_tests
}
cat >"$folder/tests.xml" <<'TXT'
<testcase name="a" classname="a" time="0.1" status="run">
<testcase name="b" classname="b" time="0.1" status="fail">
<testcase name="c" classname="c" time="0.1" status="notrun">
TXT
expect "a report of ctest" "1 passed, 1 failed"
