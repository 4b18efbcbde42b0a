#!/usr/bin/env bash
# Runs a command with stores, mounts and settings of its own, so that a test or a tour never meets the user's.
# At its end it is an error when a mount below that place is left; what is left is taken down and named.
set -euo pipefail

scratch=$(mktemp -d "${TMPDIR:-/tmp}/atoll-home.XXXXXX")
export XDG_DATA_HOME=$scratch/data XDG_RUNTIME_DIR=$scratch/run XDG_CONFIG_HOME=$scratch/config
export XDG_CACHE_HOME=$scratch/cache
unset ATOLL_STORE ATOLL_WORKSPACE ATOLL_BRANCH ATOLL_BASE
mkdir -p "$XDG_DATA_HOME" "$XDG_RUNTIME_DIR" "$XDG_CONFIG_HOME" "$XDG_CACHE_HOME"
chmod 700 "$XDG_RUNTIME_DIR"

finish() {
  local status=$?
  trap - EXIT
  "$(dirname "$0")/leftovers.sh" "$scratch" || status=$(( status ? status : 1 ))
  rm -rf --one-file-system "$scratch"
  exit "$status"
}
trap finish EXIT
"$@"
