# ./dev install and door-test.

package_tools=(lintian fakeroot dpkg-dev file gzip)

command_install() {
  (($# >= 1 && $# <= 2)) || die "install: expected PREFIX [COMPONENT]"
  case ${2:-tools} in
    tools | runtime | dev) ;;
    *) die "install: '$2' is not tools, runtime or dev" ;;
  esac
  build install
  cmake --install build/install --prefix "$1" --strip ${2:+--component "$2"}
}

command_door_test() {
  (($# == 0)) || die "door-test: '$1' is no argument of it"
  need_packages "${package_tools[@]}"
  build packages
  step "make Debian packages" make_packages
  step "lintian" lint_packages
  step "use what is in them" use_packages
  print_phases
}

make_packages() {
  rm -rf build/packages/packages
  (cd build/packages && cpack -G DEB >cpack.log 2>&1) && return
  cat build/packages/cpack.log >&2
  return 1
}

# Errors fail; warnings are shown.
lint_packages() {
  lintian --allow-root --fail-on error build/packages/packages/*.deb
}

# Unpacks them beside each other and builds and runs the examples from there.
use_packages() {
  local root=build/packages/root package
  rm -rf "$root"
  for package in build/packages/packages/*.deb; do
    dpkg-deb -x "$package" "$root" || return 1
  done
  python3 tests/install/check_install.py --cmake "$(command -v cmake)" --cxx "$(command -v c++)" \
    --source "$PWD" --build "$PWD/build/packages" --prefix "$PWD/$root/usr"
}
