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
    cut -f3 tests/data/patterns/patterns.tsv | awk -v folder="$folder" '
      { printf "%s\n%s", $0, "A wordy'"'"'s aaab 12  \n x" > (folder "/" NR) }'
    ;;
  config | quantization) add tests/data/goldens/*/config.json ;;
esac
if [[ -d fuzz/seeds/$target ]]; then add fuzz/seeds/"$target"/*; fi
