#!/usr/bin/env bash
# Makes the virtual environment DIR with the tools that build and check atoll (the extras
# `dev` and `lab` of pyproject.toml).
set -euo pipefail
cd "$(dirname "$0")/.."
dir=${1:-.venv}

if [ ! -x "$dir/bin/python" ]; then
  # The system's own first: tests run the command as an ordinary user too, who may not look into root's home.
  for python in /usr/bin/python3 python3 python3.13 python3.12 python3.11 python3.14; do
    command -v "$python" >/dev/null 2>&1 || continue
    "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    echo "venv: making $dir with $("$python" --version)" >&2
    "$python" -m venv "$dir"
    break
  done
fi
[ -x "$dir/bin/python" ] || { echo "venv: no Python 3.11 or newer with a working venv module was found" >&2; exit 1; }

mapfile -t requirements < <("$dir/bin/python" - <<'PY'
import tomllib

project = tomllib.load(open("pyproject.toml", "rb"))["project"]
extras = project["optional-dependencies"]
print("\n".join(project["dependencies"] + extras["dev"] + extras["lab"]))
PY
)
if ! "$dir/bin/python" -m pip install --quiet --disable-pip-version-check "${requirements[@]}"; then
  echo "venv: pip could not install ${requirements[*]}; without a network, put wheels where pip's find-links points" >&2
  exit 1
fi
touch "$dir/bin/.dev-tools"
