# ./dev serve-test: `subbyte serve` from outside, with the client of OpenAI, a browser and a proxy.

readonly serve_venv=$PWD/build/serve-venv
serve_parts=(usual load slow page tsan)
serve_packages=(python3-venv openssl curl nginx-light systemd chromium)

# serve-test [PART...]: all parts but fuzz, which takes half an hour, or those named.
command_serve_test() {
  local part
  for part in "$@"; do
    [[ " ${serve_parts[*]} fuzz " == *" $part "* ]] ||
      die "serve-test: '$part' is none of ${serve_parts[*]} fuzz"
  done
  (($#)) || set -- "${serve_parts[@]}"
  need_packages "${build_packages[@]}" "${serve_packages[@]}"
  for part in "$@"; do
    "serve_test_$part"
  done
  print_phases
  report_tests
}

# What `./dev test` runs, too, but with the client of OpenAI, and nothing left out.
serve_test_usual() {
  build_or_end ci subbyte http_test serve_test
  step "client of OpenAI in build/serve-venv" install_openai || true  # its test fails then
  run_tests ci --label-regex "$(label_regex http_test serve_test)"
  test_server ci serve_test.py --all
  test_server ci access_test.py --all
  test_server ci wire_test.py --all
  test_server ci operations_test.py --all
}

serve_test_load() {
  build_or_end ci subbyte engine_test
  test_server ci load.py --requests 20000 --memory
  count_test "1,000 conversations that branch, of each family" test_conversations ci
  build_or_end asan-scalar subbyte
  test_server asan-scalar load.py --requests 2000 --longest 600
}

serve_test_slow() {
  build_or_end ci subbyte
  test_server ci slow.py
}

serve_test_page() {
  build_or_end ci subbyte
  test_server ci page_test.py
}

serve_test_tsan() {
  build_or_end tsan-scalar subbyte
  test_server tsan-scalar load.py --requests 500 --longest 600
}

serve_test_fuzz() {
  count_test "fuzz targets, ten minutes each" command_fuzz http messages blocks -max_total_time=600
}

# test_conversations PRESET: half of them on a machine that takes one step at a time, and beside it
# half on one that takes two.
test_conversations() {
  local shard status=0 shards=()
  for shard in 0 1; do
    SUBBYTE_TEST_CONVERSATIONS=500 GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=$shard \
      "build/$1/src/engine/engine_test" --gtest_brief=1 \
      --gtest_filter='*SharedPrefixes.change_no_bit*' &
    shards+=($!)
  done
  for shard in "${shards[@]}"; do
    wait "$shard" || status=1
  done
  return "$status"
}

install_openai() {
  [[ -x $serve_venv/bin/pip ]] || python3 -m venv "$serve_venv" || return 1
  "$serve_venv/bin/pip" --disable-pip-version-check install --quiet --retries 2 openai ||
    no_packages openai
}

# test_server PRESET SCRIPT ARGUMENT...: one test more, which has passed or failed as a whole.
test_server() {
  local preset=$1 script=$2 python=python3
  [[ ! -x $serve_venv/bin/python ]] || python=$serve_venv/bin/python
  count_test "tests/serve/$script ${*:3}, build/$preset" without_randomization "$python" \
    "tests/serve/$script" "build/$preset/app/subbyte" "${@:3}"
}

# count_test TITLE COMMAND...
count_test() {
  if phase "$@"; then
    num_passed=$((num_passed + 1))
  else
    num_failed=$((num_failed + 1))
  fi
}

# bench_serve --slow | MODEL [OPTION...]
bench_serve() {
  build release subbyte
  if [[ ${1:-} == --slow ]]; then
    python3 tests/serve/slow.py build/release/app/subbyte "${@:2}"
  else
    python3 tools/bench_serve.py build/release/app/subbyte "$@"
  fi
}
