# ./dev package roots: each package answers in a bare root of each Debian, and leaves nothing.

package_suites=(bookworm trixie)
readonly roots=$PWD/build/package-roots

package_roots() {
  local suite kind kinds debian
  kinds=$(kinds_to_try)
  need_packages debootstrap
  mkdir -p "$roots"
  rm -f "$roots/answer"
  for suite in "${package_suites[@]}"; do
    step "root of $suite" make_root "$suite"
    step "root of $suite with Python" make_python_root "$suite"
    step "root of $suite with a compiler" make_compiler_root "$suite"
    for kind in $kinds; do
      debian=("$dist/$kind"/*.deb)
      step "$kind, Debian packages in $suite" try_in_root "$suite" deb "${debian[@]}"
      step "$kind, programs with them in $suite" try_in_root "$suite-compiler" dev "${debian[@]}"
      step "$kind, tarball in $suite" try_in_root "$suite" tarball "$dist/$kind"/*.tar.?z
      step "$kind, wheel in $suite" try_wheel "$suite" "$kind"
    done
  done
}

# make_root SUITE: of the packages that debootstrap calls required, and apt.
make_root() {
  local root=$roots/$1 mirror
  [[ ! -f $root.complete ]] || return 0
  mirror=$(apt-get indextargets --format '$(REPO_URI)' "Origin: Debian" "Label: Debian" |
    sort -u | head -n 1)
  if [[ -z $mirror ]]; then
    echo "dev: expected apt to have Debian itself among its sources (apt-get update)" >&2
    return 1
  fi
  as_root rm -rf "$root" &&
    as_root debootstrap --variant=minbase "$1" "$root" "$mirror" &&
    touch "$root.complete"
}

# make_python_root SUITE: the same with Python, pip in a venv, and numpy.
make_python_root() {
  local root=$roots/$1-python
  [[ ! -f $root.complete ]] || return 0
  extend_root "$1" "$root" python3-venv python3-numpy &&
    in_root "$root" python3 -m venv --system-site-packages /venv &&
    touch "$root.complete"
}

# make_compiler_root SUITE: the same with what builds a program in C++.
make_compiler_root() {
  local root=$roots/$1-compiler
  [[ ! -f $root.complete ]] || return 0
  extend_root "$1" "$root" g++ cmake make pkg-config &&
    touch "$root.complete"
}

# extend_root SUITE ROOT PACKAGE...
extend_root() {
  local suite=$1 root=$2
  shift 2
  as_root rm -rf "$root" &&
    as_root cp --archive "$roots/$suite" "$root" &&
    as_root cp /etc/resolv.conf "$root/etc/resolv.conf" &&
    in_root "$root" apt-get update &&
    in_root "$root" apt-get install --yes --no-install-recommends "$@"
}

# try_wheel SUITE KIND
try_wheel() {
  local minor wheel
  minor=$(in_root "$roots/$1-python" python3 -c 'import sys; print(sys.version_info[1])')
  wheel=$(wheel_for "$2" "$minor")
  if [[ -z $wheel ]]; then
    echo "dev: no wheel is there for Python 3.$minor of $1" >&2
    return 1
  fi
  try_in_root "$1-python" wheel "$wheel"
}

# try_in_root ROOT FORM FILE...: as tools/dev/in_root.sh says, without a network; tarballs are
# unpacked here, as xz is in no bare root. The answer is that of all others, and the files after it
# are those before. Otherwise the root is made anew next time.
try_in_root() {
  local root=$roots/$1 form=$2 answer=$roots/answer status=0
  shift 2
  as_root rm -rf "$root/try" &&
    as_root mkdir "$root/try" &&
    as_root cp --recursive demo/model examples tools/dev/in_root.sh "$@" "$root/try" || return
  files_of "$root" >"$root.before"
  [[ $form != tarball ]] || as_root tar --extract --directory "$root/opt" --file "$1" || status=1
  in_root "$root" unshare --net sh /try/in_root.sh "$form" >"$root.answer" || status=1
  files_of "$root" >"$root.after"
  as_root rm -rf "$root/try"
  diff "$root.before" "$root.after" || status=1
  [[ -f $answer ]] || cp "$root.answer" "$answer"
  diff "$answer" "$root.answer" || status=1
  ((status == 0)) || rm -f "$root.complete"
  return "$status"
}

# in_root ROOT COMMAND...
in_root() {
  local root=$1
  shift
  as_root unshare --mount --pid --fork --mount-proc="$root/proc" \
    chroot "$root" env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

files_of() {
  as_root find "$1" -xdev -path "$1/try" -prune -o -path "$1/proc" -prune -o -printf '%P\n' | sort
}
