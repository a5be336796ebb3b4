# ./dev serve-test: `subbyte serve` from outside, with the client of OpenAI.

readonly serve_venv=$PWD/build/serve-venv

command_serve_test() {
  local preset=ci requests=400
  case ${1:-} in
    tsan) preset=tsan ;;
    load) requests=20000 ;;
    '') ;;
    *) die "serve-test: '$1' is neither load nor tsan" ;;
  esac
  need_packages "${build_packages[@]}" python3-venv
  build_or_end "$preset" subbyte http_test
  run_tests "$preset" --label-regex "$(label_regex http_test)"
  step "client of OpenAI in build/serve-venv" install_openai || true
  phase "tests/serve/serve_test.py" test_server serve_test.py "build/$preset/app/subbyte"
  phase "tests/serve/load.py, $requests requests" test_server load.py \
    "build/$preset/app/subbyte" --requests "$requests" $( ((requests < 20000)) || echo --memory)
  print_phases
  report_tests
}

install_openai() {
  [[ -x $serve_venv/bin/pip ]] || python3 -m venv "$serve_venv" || return 1
  "$serve_venv/bin/pip" --disable-pip-version-check install --quiet --retries 2 openai ||
    no_packages openai
}

# test_server SCRIPT ARGUMENT...: one test more, which has passed or failed as a whole.
test_server() {
  local python=python3
  [[ ! -x $serve_venv/bin/python ]] || python=$serve_venv/bin/python
  if "$python" "tests/serve/$1" "${@:2}"; then
    num_passed=$((num_passed + 1))
  else
    num_failed=$((num_failed + 1))
  fi
}
