# ./dev cluster-test: what runs on several machines, on this one.

cluster_parts=(mpi sanitizers ray kubernetes)
mpi_packages=(openmpi-bin)  # without it tests of ranks that are processes are skipped

# cluster-test [PART...]: all parts, or those named.
command_cluster_test() {
  local part
  for part in "$@"; do
    [[ " ${cluster_parts[*]} " == *" $part "* ]] ||
      die "cluster-test: '$part' is none of ${cluster_parts[*]}"
  done
  (($#)) || set -- "${cluster_parts[@]}"
  for part in "$@"; do
    "cluster_test_$part"
  done
  print_phases
  report_tests
}

# Ranks that mpirun starts.
cluster_test_mpi() {
  need_packages "${build_packages[@]}" "${mpi_packages[@]}"
  build_or_end ci subbyte exchange_test
  run_tests ci --label-regex "$(label_regex exchange_test)"
  count_test "tests/mpi/mpi_test.py --all" python3 tests/mpi/mpi_test.py build/ci/app/subbyte --all
}

# Two and four ranks and two stages that are threads, and what carries numbers between processes:
# no races, no leaks.
cluster_test_sanitizers() {
  local preset
  need_packages "${build_packages[@]}" "${mpi_packages[@]}"
  for preset in tsan-scalar asan-scalar; do
    GTEST_FILTER='-*RanksOfGoldens*/1:*SamplingOnRanks*/1:*StagesOfGoldens*/1' \
      build_and_test "$preset" exchange_test parallel_test ranks_test
  done
}

# Replicas and jobs on a cluster of Ray.
cluster_test_ray() {
  local test
  need_packages "${build_packages[@]}" python3-dev python3-venv
  if ! make_python_wheel || ! install_ray; then
    num_failed=$((num_failed + 1))
    return
  fi
  for test in serve jobs manual; do
    count_test "tests/cluster/ray_${test}_test.py" build/ray-venv/bin/python \
      "tests/cluster/ray_${test}_test.py"
  done
}

# Manifests beside their schemas and the program.
cluster_test_kubernetes() {
  build_or_end ci subbyte
  if step "schemas in build/ray-venv" filled_venv ray-venv fill_ray; then
    count_test "tests/cluster/kubernetes_test.py" build/ray-venv/bin/python \
      tests/cluster/kubernetes_test.py build/ci/app/subbyte
  else
    num_failed=$((num_failed + 1))
  fi
}

# What the extra of the package asks for, in build/ray-venv, and the wheel of this tree.
install_ray() {
  step "Ray in build/ray-venv" filled_venv ray-venv fill_ray || return 1
  step "the wheel in build/ray-venv" pip_install build/ray-venv/bin/python --no-deps \
    --force-reinstall build/ci/wheel/subbyte-*.whl
}

# fill_ray PYTHON
fill_ray() {
  local extra
  extra=$(sed -n 's/^ray = \["\(.*\)"\]$/\1/p' pyproject.toml)
  pip_install "$1" numpy "$extra" kubernetes-validate
}
