# ./dev serve-test: `subbyte serve` from outside, with the client of OpenAI, a browser and a proxy.

readonly serve_venv=$PWD/build/serve-venv
serve_parts=(load slow page tsan fuzz)
serve_packages=(python3-venv openssl curl nginx-light)

# serve-test [load | slow | page | tsan | fuzz]: without a part what each of them is about, shortly.
command_serve_test() {
  local part=${1:-} preset=ci
  [[ -z $part || " ${serve_parts[*]} " == *" $part "* ]] ||
    die "serve-test: '$part' is none of ${serve_parts[*]}"
  if [[ $part == fuzz ]]; then
    command_fuzz http messages blocks -max_total_time=600
    return
  fi
  need_packages "${build_packages[@]}" "${serve_packages[@]}"
  [[ $part != page ]] || need_packages chromium
  [[ $part != tsan ]] || preset=tsan
  build_or_end "$preset" subbyte http_test serve_test
  step "client of OpenAI in build/serve-venv" install_openai || true
  case $part in
    load)
      test_server "$preset" load.py --requests 20000 --memory
      build_or_end "$preset" engine_test
      count_test "1,000 conversations that branch, of each family" test_conversations "$preset"
      build_or_end asan-scalar subbyte
      test_server asan-scalar load.py --requests 2000
      ;;
    slow) test_server "$preset" slow.py ;;
    page) test_server "$preset" page_test.py ;;
    tsan) test_server "$preset" load.py --requests 500 ;;
    *)
      run_tests "$preset" --label-regex "$(label_regex http_test serve_test)"
      test_server "$preset" serve_test.py
      test_server "$preset" access_test.py
      test_server "$preset" operations_test.py
      test_server "$preset" load.py
      ;;
  esac
  print_phases
  report_tests
}

test_conversations() {
  SUBBYTE_TEST_CONVERSATIONS=1000 "build/$1/src/engine/engine_test" --gtest_brief=1 \
    --gtest_filter='*SharedPrefixes.change_no_bit*'
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
