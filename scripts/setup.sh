#!/usr/bin/env bash
# Installs what atoll's build (no argument), tests (`test`), lab (`lab`: all that a full run measures with) or tour
# (`quickstart`) need and this machine lacks.
# Idempotent, silent and quick when nothing is missing; says one line for each thing it does.
set -euo pipefail
cd "$(dirname "$0")/.."

for_what=${1:-build}

say() { printf 'setup: %s\n' "$*" >&2; }
has() { command -v "$1" >/dev/null 2>&1; }

# command (or, with a slash, a file) -> Debian package
needed_build="cc:gcc pkg-config:pkg-config make:make git:git"
needed_test="git:git zstd:zstd rsync:rsync sqlite3:sqlite3 setfattr:attr setfacl:acl tar:tar node:nodejs npm:npm /usr/sbin/mkfs.ext4:e2fsprogs /usr/sbin/mkfs.xfs:xfsprogs /usr/sbin/mkfs.btrfs:btrfs-progs bindfs:bindfs fio:fio redis-server:redis-server strace:strace pgrep:procps chromium:chromium"
needed_lab="$needed_test borg:borgbackup stress-ng:stress-ng"
needed_quickstart="node:nodejs npm:npm"
case $for_what in
  build) needed=$needed_build ;;
  test) needed=$needed_test ;;
  lab) needed=$needed_lab ;;
  quickstart) needed=$needed_quickstart ;;
  *) say "there is no set-up called $for_what; choose build, test, lab or quickstart"; exit 2 ;;
esac
# fusermount3 is only for mounts of ordinary users: root mounts by system call.
[ "$(uname -s)" = Linux ] && [ "$for_what" = build ] && needed="$needed fusermount3:fuse3"

missing=()
for pair in $needed; do
  has "${pair%%:*}" || missing+=("${pair##*:}")
done

# A Python new enough whose venv module really works (Debian splits ensurepip off).
find_python() {
  local p
  for p in python3 python3.13 python3.12 python3.11 python3.14; do
    has "$p" && "$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && return 0
  done
  return 1
}
if [ "$for_what" = build ] && [ ! -x .venv/bin/python ] && ! find_python; then
  missing+=(python3 python3-venv)
fi

if [ ${#missing[@]} -gt 0 ]; then
  if ! has apt-get; then
    say "missing: ${missing[*]}. Install these (Debian's names) with this system's package manager, then run it again"
    exit 1
  fi
  as_root=()
  if [ "$(id -u)" != 0 ]; then
    if has sudo; then as_root=(sudo); else
      say "missing: ${missing[*]}. Run as root: apt-get install ${missing[*]}"
      exit 1
    fi
  fi
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  install() { "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1; }
  # The list of packages may be old or absent; without a network the second try fails with its own message.
  install || { "${as_root[@]}" apt-get update -qq >/dev/null 2>&1 || true; install; } || {
    say "apt-get could not install ${missing[*]}; without a network, install them beforehand"
    exit 1
  }
fi

[ "$for_what" != build ] || scripts/rust.sh
# Conformance tools that come as crates; scripts/lab.py looks for them here.
if [ "$for_what" = lab ]; then
  for tool in pjdfstest@0.2.2 fsx@0.3.2; do
    has "${tool%@*}" || [ -x "target/tools/bin/${tool%@*}" ] && continue
    say "building $tool"
    cargo install --quiet --locked --root target/tools "$tool" || say "$tool could not be built; its suite will not be available"
  done
fi
if [ "$for_what" = build ] && [ "$(uname -s)" = Linux ] && [ ! -e /dev/fuse ]; then
  say "/dev/fuse is missing: atoll will use its copy driver here. As root, 'modprobe fuse' may bring it"
fi
exit 0
