#!/usr/bin/env bash
# fuzz/seeds.sh TARGET FOLDER: fills FOLDER with the seeds of a target, taken from the data of the
# tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=$1 folder=$2
mkdir -p "$folder"

# add FILE...: under names of their own.
add() {
  local file
  for file in "$@"; do cp "$file" "$folder/$(echo "$file" | tr / _)"; done
}

case $target in
  safetensors) add conformance/safetensors/files/*.safetensors ;;
  index)
    find conformance/safetensors/directories -name '*.index.json' -type f | while read -r file; do
      add "$file"
    done
    ;;
  patterns)
    cut -f4 conformance/patterns/patterns.tsv | awk -v folder="$folder" '
      { printf "%s\n%s", $0, "A wordy'"'"'s aaab 12  \n x" > (folder "/" NR) }'
    ;;
  http)  # a body of each kind, one request after the other, and what is refused
    host='POST /a?b HTTP/1.1\r\nHost: h\r\n'
    printf "${host}Content-Length: 3\r\n\r\nabcGET / HTTP/1.0\r\n\r\n" >"$folder/two"
    printf "${host}Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nX: y\r\n\r\n" \
      >"$folder/chunks"
    printf "${host}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" >"$folder/both"
    printf "${host}X: a\r\n b\r\nConnection: close\r\nExpect: 100-continue\r\n\r\n" >"$folder/fold"
    ;;
  resume)  # nothing changed; a byte of the header, of the data, of the record; both as text
    printf '\x00' >"$folder/kept"
    printf '\x00\x0c\x00!' >"$folder/header"
    printf '\x00\xff\x0f!' >"$folder/data"
    printf '\x01\x20\x00!' >"$folder/record"
    printf '\x02\x02\x00\x00\x00\x00\x00\x00\x00{}' >"$folder/shard_as_text"
    printf '\x03{}\n' >"$folder/record_as_text"
    ;;
  template)  # numbers at the ends of 64 bits in whatever takes one
    operations=("'a' * N" "'abc'.ljust(N)" "'abc'.center(N)" "'abc'.zfill(N)"
      "'b'.replace('b', '', N)" "'a b'.split(' ', N)" "'abc'[N:]" "'abc'[::N]" "'abc'.find('b', N)"
      "'abc'|indent(N)"
      "'abc'|truncate(N, true, '', N)" "'a'|center(N)" "[1]|tojson(indent=N)" "'\\t'.expandtabs(N)"
      "1.5|round(N)" "7|round(N, 'ceil')" "[1]|batch(N, 0)|list" "[1]|slice(N)|list" "range(N)"
      "range(0, N, N)" "[1, 2].index(2, N)" "7 // N" "N % 7" "N|abs" "-N" "N ** 2" "'%d' % N"
      "'{:>9}'.format(N)")
    for i in "${!operations[@]}"; do
      for number in "(-9223372036854775807 - 1)" -1 9223372036854775807 18446744073709551615; do
        printf '{{ %s }}' "${operations[$i]//N/$number}" >"$folder/edge_${i}_${number//[^0-9]/}"
      done
    done
    ;;
  gguf)  # without the data of tensors, which nothing looks at
    for file in tests/data/gguf/*/model.gguf; do
      head -c 4000 "$file" >"$folder/$(basename "$(dirname "$file")")"
    done
    add tests/data/gguf/qwen3moe/model.gguf
    ;;
  config | quantization) add tests/data/goldens/*/config.json ;;
esac
if [[ -d fuzz/seeds/$target ]]; then add fuzz/seeds/"$target"/*; fi
