# ./dev gpu-test, gpu-bench and gpu-pack.

num_skipped=0
skip_reasons=  # a line for each test
# Tests that look at all of the GPU's memory, so that no other may run beside them.
gpu_memory_tests='GpuLoading.takes_the_memory*:GpuLoading.refuses_what_does_not_fit*'
# Tests that touch everything and are few enough for compute-sanitizer.
gpu_sanitizer_tests='CInterface*:GpuFaults*:GpuNorm*:GpuRotate*:*GpuAttention.more_heads*'
gpu_sanitizer_tests+=':*GpuGoldens.bf16_activations/qwen3_awq:GpuEngine.a_few_generations*'
gpu_sanitizer_tests+=':GpuEngine.goes_on_after_pages*:GpuEngine.a_shared_prefix*'
gpu_sanitizer_tests+=':all/GpuStep.a_product_reads*u4_g16_scale_f16_zero_u8'
gpu_sanitizer_tests+=':GpuSample.refuses*:GpuSample.is_captured*:GpuSteps.graphs_know*'

# Those of several GPUs, each of which takes all that there are.
gpu_rank_tests='*RanksOnGpus*:*StagesOnGpus*:*OneModelOnGpus*:GpuExchange.*'

# Small tests for the interpreter of PTX that together have each kind of instruction: normalisation,
# rotation, attention by mma and by wgmma with TMA, products of 16 bits, routing, experts.
gpu_interpreted_tests='GpuNorm.*:GpuRotate.*:GpuAttendBatch.windows'
gpu_interpreted_tests+=':GpuDense.products*:GpuDense.batch*:GpuDense.*_head'
gpu_interpreted_tests+=':GpuAttendBatch.long_sequences*:GpuRouting.is_what*'
gpu_interpreted_tests+=':GpuPagedAttention.prompts_by_wgmma*'
gpu_interpreted_tests+=':GpuExperts.of_long_rows:GpuExperts.of_short_rows'

command_gpu_test() {
  local sanitize=false preset=release gpus=0 options=() program
  while (($#)); do
    case $1 in
      --sanitize) sanitize=true ;;
      --ampere) preset=ampere ;;
      --interpreted) preset=interpreted ;;
      --gpus)
        [[ ${2:-} =~ ^[2-8]$ ]] || die "gpu-test: --gpus: expected 2 to 8, found '${2:-}'"
        gpus=$2
        shift
        ;;
      -*) options+=("$1") ;;
      *)
        die "gpu-test: '$1' is none of --sanitize, --ampere, --interpreted, --gpus N, options of" \
          "GoogleTest"
        ;;
    esac
    shift
  done
  [[ $preset == release || $sanitize == false ]] ||
    die "gpu-test: --sanitize without --ampere and --interpreted"
  [[ $preset != interpreted || $gpus == 0 ]] || die "gpu-test: --gpus without --interpreted"
  if [[ $preset == interpreted ]]; then
    interpret_gpu_tests "${options[@]}"
    report_skips
    report_tests ", $num_skipped skipped"
    return
  fi
  find_gpu_program gpu_test tests/gpu/gpu_test "$preset"
  if ((gpus)); then
    use_gpus "$gpus"
    run_gpu_tests 1 "$program" "--gtest_filter=$gpu_rank_tests" "${options[@]}"
  elif [[ ${options[*]} == *--gtest_filter* ]]; then
    run_gpu_tests 8 "$program" "${options[@]}"
  else
    run_gpu_tests 8 "$program" "--gtest_filter=-$gpu_memory_tests" "${options[@]}"
    run_gpu_tests 1 "$program" "--gtest_filter=$gpu_memory_tests" "${options[@]}"
  fi
  if [[ $sanitize == true ]]; then sanitize_gpu_tests "$program"; fi
  report_skips
  report_tests ", $num_skipped skipped"
}

# interpret_gpu_tests [OPTION...]: on the CPU, in a process for each of its cores. Where the
# interpreter stops a test, its process ends, and tools/run_gtest.py goes on with the others.
interpret_gpu_tests() {
  local program=build/interpreted/tests/gpu/gpu_test parts reports i pids=()
  [[ $* == *--gtest_filter* ]] || set -- "--gtest_filter=$gpu_interpreted_tests" "$@"
  build_gpu_programs interpreted gpu_test
  parts=$(nproc)
  reports=$(mktemp -d)
  echo "== interpret $program in $parts processes $*" >&2
  for ((i = 0; i < parts; ++i)); do
    python3 tools/run_gtest.py --part "$i/$parts" --report "$reports/$i" "$program" "$@" >&2 &
    pids+=($!)
  done
  for ((i = 0; i < parts; ++i)); do
    wait "${pids[i]}" || [[ -e $reports/$i ]] || die "$program cannot be run"
    num_passed=$((num_passed + $(grep -c '^passed ' "$reports/$i" || true)))
    num_failed=$((num_failed + $(grep -c '^failed ' "$reports/$i" || true)))
    num_skipped=$((num_skipped + $(grep -c '^skipped ' "$reports/$i" || true)))
    skip_reasons+=$(sed -n 's/^skipped [^:]*: //p' "$reports/$i")$'\n'
  done
  rm -r "$reports"
  if ((num_passed + num_failed + num_skipped == 0)); then die "no test of $program was chosen"; fi
}

# use_gpus NUMBER: programs see the first ones alone.
use_gpus() {
  local there
  there=$(nvidia-smi --list-gpus 2>/dev/null | wc -l || true)
  (("$1" <= there)) || die "gpu-test: --gpus $1: this machine has $there"
  CUDA_VISIBLE_DEVICES=$(seq --separator=, 0 $(($1 - 1)))
  export CUDA_VISIBLE_DEVICES SUBBYTE_TEST_GPUS=$1
}

command_gpu_bench() {
  local program libraries
  find_gpu_program subbyte_gpu_bench bench/subbyte_gpu_bench release
  libraries=$(folder_of_cublas)
  [[ -n $libraries ]] || echo "dev: no libcublas.so.13 on this machine" >&2
  export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  exec "$program" "$@"
}

command_gpu_pack() {
  local ampere=()
  case $* in
    '') ;;
    --ampere) ampere=(device/gpu_test_ampere) ;;
    *) die "gpu-pack: '$*' is not --ampere" ;;
  esac
  build_gpu_programs release gpu_test subbyte_gpu_bench
  mkdir -p build/device
  if ((${#ampere[@]} > 0)); then
    build_gpu_programs ampere gpu_test
    strip -o build/device/gpu_test_ampere build/ampere/tests/gpu/gpu_test
  fi
  strip -o build/device/gpu_test build/release/tests/gpu/gpu_test
  strip -o build/device/subbyte_gpu_bench build/release/bench/subbyte_gpu_bench
  # Whole models bring libraries that machines without our packages do not have.
  rm -rf build/device/lib
  mkdir build/device/lib
  ldd build/device/gpu_test build/device/subbyte_gpu_bench |
    awk '$1 ~ /^libfmt\.so/ {print $3}' | sort -u |
    xargs -I '{}' cp -L '{}' build/device/lib
  tar -C build -cJf build/device.tar.xz device/gpu_test device/subbyte_gpu_bench device/lib \
    "${ampere[@]}"
  touch build/device  # not older than what it was packed into
  ls -l build/device/gpu_test build/device/subbyte_gpu_bench build/device/lib/* build/device.tar.xz
}

# find_gpu_program NAME PATH PRESET: sets `program` to the packed one, or builds the one at PATH of
# the build folder.
find_gpu_program() {
  program=build/device/$1
  [[ $3 == release ]] || program+=_$3
  if [[ build/device.tar.xz -nt build/device ]]; then  # just carried here
    mkdir -p build/device
    tar -C build -xf build/device.tar.xz
    touch build/device
  fi
  if [[ -x $program ]]; then
    echo "== $program, as ./dev gpu-pack left it" >&2
    export LD_LIBRARY_PATH=$PWD/build/device/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    return
  fi
  build_gpu_programs "$3" "$1"
  program=build/$3/$2
}

# build_gpu_programs PRESET TARGET...
build_gpu_programs() {
  command -v "${CUDACXX:-nvcc}" >/dev/null ||
    die "no nvcc: the CUDA kernels need the CUDA toolkit, with nvcc in PATH or named by CUDACXX"
  build "$@"
}

# run_gpu_tests MOST PROGRAM [OPTION...]: in at most so many processes side by side, as one waits
# for the host most of the time. Adds to num_passed and num_failed.
run_gpu_tests() {
  local program=$2 shards logs i status pids=()
  shards=$(nproc)
  ((shards <= $1)) || shards=$1
  shift 2
  logs=$(mktemp -d)
  echo "== test $program in $shards processes $*" >&2
  for ((i = 0; i < shards; ++i)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i "$program" "$@" >"$logs/$i" 2>&1 &
    pids+=($!)
  done
  for ((i = 0; i < shards; ++i)); do
    status=0
    wait "${pids[i]}" || status=$?
    count_gpu_tests "$logs/$i" "$status"
  done
  rm -r "$logs"
  say_counts
  if ((num_passed + num_failed + num_skipped == 0)); then die "no test of $program was chosen"; fi
}

# A run that is cut off has shown what it did.
say_counts() {
  echo "   so far $num_passed passed, $num_failed failed, $num_skipped skipped" >&2
}

# What this machine lacks for the tests that were skipped, each with their number.
report_skips() {
  sort <<<"$skip_reasons" | uniq -c | awk 'NF > 1 {
    count = $1; $1 = ""; print "dev: skipped " count ":" $0}' >&2
}

# count_gpu_tests LOG STATUS: STATUS is what the program returned.
count_gpu_tests() {
  local passed failed skipped
  passed=$(grep -c '^\[       OK \]' "$1" || true)
  skipped=$(grep -c '^\[  SKIPPED \] .* ms)$' "$1" || true)
  failed=$(grep -c '^\[  FAILED  \] .* ms)$' "$1" || true)
  # The status is 1 for failed tests. A program that dies fails, too.
  if (($2 > 1 || ($2 == 1 && failed == 0))); then failed=$((failed + 1)); fi
  if ((failed)); then
    grep -v '^\[       OK \]\|^\[  SKIPPED \]' "$1" >&2 || true
    echo "dev: the program ended with status $2" >&2
  fi
  num_passed=$((num_passed + passed))
  num_failed=$((num_failed + failed))
  num_skipped=$((num_skipped + skipped))
  skip_reasons+=$(awk '/: Skipped$/ {getline; print}' "$1")$'\n'
}

# sanitize_gpu_tests PROGRAM: a tool that finds something is a failed test.
sanitize_gpu_tests() {
  local program=$1 sanitizer tool log status
  sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  [[ -x $sanitizer ]] || die "no compute-sanitizer: it is a part of the CUDA toolkit"
  log=$(mktemp)
  for tool in memcheck racecheck synccheck initcheck; do
    echo "== $tool $gpu_sanitizer_tests" >&2
    status=0
    "$sanitizer" --tool "$tool" --error-exitcode 9 "$program" \
      --gtest_filter="$gpu_sanitizer_tests" >"$log" 2>&1 || status=$?
    # Not every tool turns what it finds into the status.
    if ((status == 0)) && ! grep -q 'SUMMARY: 0 ' "$log"; then status=9; fi
    count_gpu_tests "$log" "$status"
    say_counts
  done
  rm "$log"
}

# The folder of libcublas.so.13, nothing if there is none.
folder_of_cublas() {
  local name=libcublas.so.13 known site file
  known=$(ldconfig -p 2>/dev/null | awk -v name="$name" '$1 == name {print $NF}' || true)
  site=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))' 2>/dev/null || true)
  for file in "${known%%$'\n'*}" /usr/local/cuda*/{lib64,targets/*/lib}/$name \
    "$site/nvidia/cu13/lib/$name"; do
    if [[ -e $file ]]; then
      dirname "$file"
      return
    fi
  done
  find / -path /proc -prune -o -name "$name" -printf '%h\n' -quit 2>/dev/null || true
}
