# `make help` lists what there is. Everything lands in .venv, .rust, target and dist, nothing outside this folder
# but the system packages that scripts/setup.sh says it installs.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
RUST_ARGS := --workspace --exclude atoll-py --locked
PYTEST_ARGS ?=
WHEEL_ARGS ?= --release --locked --out dist
# The same interpreter for every build of the bindings, or cargo builds them again at each change of caller.
export PIP_QUIET := 1
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
# Where scripts/rust.sh puts a toolchain when the machine has none.
export PATH := $(CURDIR)/.rust/bin:$(PATH)
# One build at a time: two would race in the virtual environment.
LOCK := $(shell command -v flock >/dev/null 2>&1 && echo "flock .make.lock")

.PHONY: help setup build develop quickstart test test-rust test-python lint format wheel bench lab lab-full performance clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

setup: ## install what the build and the tests need and this machine lacks
	@scripts/setup.sh

$(BIN)/.dev-tools: pyproject.toml scripts/venv.sh
	@$(LOCK) scripts/venv.sh $(VENV)

build: setup $(BIN)/.dev-tools ## optimised build; leaves .venv/bin/atoll
	@$(LOCK) $(BIN)/maturin develop --release --locked --quiet
	@echo build >$(BIN)/.profile
	@echo "built $(BIN)/atoll (release)"

develop: setup $(BIN)/.dev-tools ## the same with the development profile, quicker to build
	@$(LOCK) $(BIN)/maturin develop --locked --quiet
	@echo develop >$(BIN)/.profile
	@echo "built $(BIN)/atoll (development profile)"

quickstart: build ## a tour on real input: import, fork, run, diff, apply, export
	@scripts/setup.sh quickstart
	@$(BIN)/python scripts/quickstart.py

test: test-rust test-python ## every test

test-rust: setup $(BIN)/.dev-tools
	@scripts/setup.sh test
	cargo test --no-fail-fast $(RUST_ARGS)

# The module is brought up to date in the profile that was built last: with `make build` before, the optimised one.
test-python:
	@$(MAKE) $$(cat $(BIN)/.profile 2>/dev/null || echo develop)
	@scripts/setup.sh test
	scripts/with_scratch_home.sh $(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(BIN)/.dev-tools ## rustfmt, clippy, ruff, mypy
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(BIN)/.dev-tools ## let rustfmt and ruff rewrite the code
	cargo fmt --all
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

wheel: setup $(BIN)/.dev-tools ## a wheel for this platform, in dist/
	@$(LOCK) $(BIN)/maturin build $(WHEEL_ARGS)

bench: build ## what the lab does not cover of docs/PERFORMANCE.md (takes long; see benchmarks/README.md)
	@$(BIN)/python -m benchmarks all

lab: build ## measure everything a little on this disk: records and one HTML report in runs/, in under half an hour
	@scripts/setup.sh lab
	@$(BIN)/python -m scripts.lab short --out runs/short

lab-full: build ## the figures of docs/PERFORMANCE.md; takes hours. REPO=DIR: whose history `history` keeps
	@scripts/setup.sh lab
	@$(BIN)/python -m scripts.lab full --out runs/full $(if $(REPO),--repo $(REPO))

performance: $(BIN)/.dev-tools ## docs/PERFORMANCE.md of the records of `make lab-full` and `make bench`
	@$(BIN)/python -m scripts.performance

clean: ## remove what was built
	rm -rf target dist .rust $(VENV) .make.lock .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find python -name '_native*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
