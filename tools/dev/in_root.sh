#!/bin/sh
# in_root.sh FORM: within a root that has nothing else, installs what lies in /try (a tarball is
# unpacked in /opt), lets the program answer, and removes it. The answer goes to standard output.
set -eu
exec 3>&1 >&2
cd /try

answers() {
  "$@" --version
  "$@" inspect model
  "$@" run model -p "Mr. Sherlock Holmes" -n 12 --temp 0 --threads 2 >answer
  test -s answer
  cat answer >&3
  serves "$@"
}

# A server of the same model starts, says so and ends when it is told to.
serves() {
  "$@" serve model --uds /try/socket --threads 2 2>served &
  server=$!
  tries=0
  until grep "ready on" served; do
    tries=$((tries + 1))
    if [ "$tries" -gt 600 ] || ! kill -0 "$server"; then
      cat served
      return 1
    fi
    sleep 0.1
  done
  kill "$server"
  wait "$server"
}

# finds_all FILE...: every library that these are linked with.
finds_all() {
  for file; do
    ldd "$file" >needs
    if grep "not found" needs; then
      echo "$file: expected it to need what a bare root has" >&2
      exit 1
    fi
  done
}

try_deb() {
  dpkg --install ./*.deb
  finds_all /usr/bin/subbyte /usr/lib/*/libsubbyte.so.0
  grep "^ExecStart=subbyte serve" /usr/lib/systemd/system/subbyte.service
  answers subbyte
  dpkg --purge subbyte libsubbyte-dev libsubbyte0
}

# Programs that use the C++ interface, where nothing of what is inside it is installed.
try_dev() {
  dpkg --install ./*.deb
  cmake -S examples -B by_cmake -DCMAKE_BUILD_TYPE=Debug
  cmake --build by_cmake --target example_continue
  c++ -std=c++20 examples/continue.cc -o by_pkg_config $(pkg-config --cflags --libs subbyte-cpp)
  for program in by_cmake/example_continue ./by_pkg_config; do
    "$program" model "Mr. Sherlock Holmes" >said
    test -s said
  done
  answers subbyte
  dpkg --purge subbyte libsubbyte-dev libsubbyte0
}

try_tarball() {
  finds_all /opt/subbyte-*/bin/subbyte /opt/subbyte-*/lib/libsubbyte.so.0
  answers /opt/subbyte-*/bin/subbyte
  rm -r /opt/subbyte-*
}

try_wheel() {
  /venv/bin/pip install --no-index --no-cache-dir ./*.whl
  answers /venv/bin/subbyte
  /venv/bin/python - <<'PYTHON'
import subbyte

llm = subbyte.LLM("/try/model", threads=2)
[answer] = llm.generate("Mr. Sherlock Holmes", subbyte.SamplingParams(max_tokens=12, temperature=0))
assert answer.outputs[0].text in open("/try/answer").read(), answer.outputs[0].text
PYTHON
  /venv/bin/pip uninstall --yes subbyte
}

"try_$1"
