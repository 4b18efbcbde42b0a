#!/usr/bin/env bash
# Runs a command with stores, mounts, settings and temporary files of its own, so that a test or a tour never meets the
# user's. When it ends, a mount or process that is left there is an error: it is named and taken down.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

scratch=$(mktemp -d "${TMPDIR:-/tmp}/atoll.XXXXXX")
# Tests act as an ordinary user too, who has to reach what is made for him below.
chmod 755 "$scratch"
export XDG_DATA_HOME=$scratch/data XDG_RUNTIME_DIR=$scratch/run XDG_CONFIG_HOME=$scratch/config
export XDG_CACHE_HOME=$scratch/cache TMPDIR=$scratch/tmp
unset ATOLL_STORE ATOLL_WORKSPACE ATOLL_BRANCH ATOLL_BASE
# A history server ends by itself half a minute after its last use; nobody waits for that here.
export ATOLL_SERVER_IDLE=${ATOLL_SERVER_IDLE:-1}
mkdir -p "$XDG_DATA_HOME" "$XDG_RUNTIME_DIR" "$XDG_CONFIG_HOME" "$XDG_CACHE_HOME"
mkdir -m 1777 "$TMPDIR"
chmod 700 "$XDG_RUNTIME_DIR"

finish() {
  local status=$?
  trap - EXIT INT TERM
  python=$here/../.venv/bin/python
  [ -x "$python" ] || python=python3
  "$python" "$here/leftovers.py" "$scratch" || status=$((status ? status : 1))
  rm -rf --one-file-system "$scratch" || status=$((status ? status : 1))
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
"$@"
