#!/usr/bin/env bash
# Installs a Rust toolchain below .rust/ when this machine has none that is new enough. The installer is Rust's own
# rustup, fetched by the package `puccinialin` (which maturin bootstraps with too); .rust/bin then has the programs.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# Whether the first cargo of PATH (.rust/bin leads it) works and is new enough.
new_enough() {
  local have
  have=$(cargo --version 2>/dev/null | cut -d' ' -f2) || return 1
  [ "$(printf '%s\n' "$wanted" "$have" | sort -V | head -n1)" = "$wanted" ]
}

export PATH=$PWD/.rust/bin:$PATH
new_enough && exit 0
if [ ! -x .rust/bin/cargo ] && [ -x "$HOME/.cargo/bin/cargo" ] && PATH=$HOME/.cargo/bin:$PATH new_enough; then
  say "cargo is in $HOME/.cargo/bin, which is not on PATH; add it and run this again"
  exit 1
fi

say "installing a Rust toolchain into .rust (this machine has none of $wanted or newer)"
mkdir -p .rust
log=.rust/install.log
if ! {
  python3 -m venv .rust/venv &&
    .rust/venv/bin/python -m pip install --quiet --disable-pip-version-check puccinialin &&
    .rust/venv/bin/python -m puccinialin --location .rust --info-json .rust/env.json &&
    RUSTUP_HOME=$PWD/.rust/rustup CARGO_HOME=$PWD/.rust/cargo \
      .rust/cargo/bin/rustup component add --toolchain stable clippy rustfmt
} >"$log" 2>&1; then
  say "Rust could not be installed: $(tail -n 1 "$log") (all of it: $log)"
  say "Install rustup (Rust's installer; $wanted or newer is needed) by hand, then run this again"
  exit 1
fi
# The programs themselves, which need none of rustup's variables.
ln -sfn "$(cd .rust/rustup/toolchains/stable-*/bin && pwd)" .rust/bin
new_enough || { say "the Rust that was installed is older than $wanted; remove .rust and install rustup by hand"; exit 1; }
