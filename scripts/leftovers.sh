#!/usr/bin/env bash
# Names each mount below DIR and each process whose environment or command line names DIR, takes them down, and
# fails when there was one. A history server ends by itself a moment after its last use, so it gets some seconds.
set -uo pipefail
dir=${1:?usage: leftovers.sh DIR}

mounts() { awk -v dir="$dir/" 'index($2, dir) == 1 { print $2 }' /proc/mounts 2>/dev/null | sort -r; }
processes() {
  local p
  for p in /proc/[0-9]*; do
    [ "${p#/proc/}" = $$ ] || [ "${p#/proc/}" = "$PPID" ] && continue
    if { tr '\0' '\n' <"$p/environ" | grep -q "^XDG_RUNTIME_DIR=$dir/"; } 2>/dev/null; then
      printf '%s %s\n' "${p#/proc/}" "$(tr '\0' ' ' <"$p/cmdline" 2>/dev/null | cut -c1-120)"
    fi
  done
}
# This script's own pipelines inherit the environment: only what survives two looks counts.
ours() { processes | while read -r pid rest; do [ -d "/proc/$pid" ] && [ -n "$rest" ] && echo "$pid $rest"; done | grep -v 'leftovers.sh' ; }

for _ in $(seq 40); do
  [ -z "$(mounts)" ] && [ -z "$(ours)" ] && exit 0
  sleep 0.25
done
while read -r line; do
  [ -n "$line" ] || continue
  echo "left behind: process $line" >&2
  kill -TERM "${line%% *}" 2>/dev/null
done < <(ours)
sleep 0.5
while read -r mount; do
  [ -n "$mount" ] || continue
  echo "left behind: mount $mount" >&2
  umount "$mount" 2>/dev/null || umount -l "$mount" 2>/dev/null
done < <(mounts)
exit 1
