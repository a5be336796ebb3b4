# ./dev aarch64-test: the portable kernels on 64-bit ARM, by a cross compiler and qemu.

aarch64_packages=(libfmt-dev libfmt9 libgtest-dev libonig-dev libonig5
  libedit-dev nlohmann-json3-dev libboost1.81-dev libssl-dev libssl3)
aarch64_programs=(base_test json_test formats_test matrix_test foreign_layouts_test
  checkpoints_test)
# Suites of goldens_test: layouts, and whole models one by one; batches take too long in qemu.
aarch64_goldens=('AllCheckpoints/GoldenModels' 'RealTools/*' 'Goldens/Precision' KbitGolden VqGolden
  Int4packGolden 'Marlin*' SwizzleGolden)

command_aarch64_test() {
  (($# == 0)) || die "aarch64-test: takes no arguments"
  build_aarch64_tests
  report_tests
}

build_aarch64_tests() {
  need_packages "${build_packages[@]}" g++-aarch64-linux-gnu qemu-user
  step "unpack libraries of arm64 to build/aarch64-packages" unpack_aarch64_packages
  build_and_test aarch64 "${aarch64_programs[@]}"
  GTEST_FILTER=$(filter_of "${aarch64_goldens[@]}") build_and_test aarch64 goldens_test
}

# Debian's own lists for arm64, in a folder of their own: the system's packages stay as they are.
unpack_aarch64_packages() {
  local root=$PWD/build/aarch64-packages lists=$PWD/build/aarch64-lists options file
  [[ ! -f $root/complete ]] || return 0
  options=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::Lists="$lists"
    -o Dir::Cache="$lists/cache" -o APT::Sandbox::User=)
  mkdir -p "$root" "$lists/partial" "$lists/cache/archives/partial" "$lists/packages" &&
    apt-get "${options[@]}" update &&
    (cd "$lists/packages" && apt-get "${options[@]}" download "${aarch64_packages[@]}") || return
  for file in "$lists/packages"/*.deb; do dpkg -x "$file" "$root" || return; done
  touch "$root/complete"
}
