# The only entry point; CI calls the same targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
CARGO ?= cargo
# Where the recordings of the reference are. A clone does not have them: the small corpus in
# crates/testkit is checked everywhere, and this folder only where it is.
MCO_ORACLE_DIR ?= ../shared/oracle
# How many fleets `make soak` simulates.
SEEDS ?= 200000

.PHONY: help test tools fmt lint doc unit oracle soak gen bench fuzz dist

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

test: tools fmt lint doc oracle unit ## Everything CI checks

tools: ## Install what the tests use beyond Rust: the real ignition-validate
	@scripts/tools

fmt: ## Is the code formatted?
	$(CARGO) fmt --all -- --check

lint: ## Clippy, with warnings as errors
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings

doc: ## Do the documentation comments build?
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet

unit: ## Every test of every crate
	@log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	echo "$(CARGO) test --workspace"; \
	$(CARGO) test --workspace --lib --bins --tests --quiet 2>&1 | tee "$$log"; \
	awk '/^test result:/ { passed += $$4; failed += $$6; skipped += $$8 } \
	     END { print "tests: " passed " passed, " failed " failed, " skipped " skipped" }' "$$log"

oracle: ## Compare us with every recording of the reference in $MCO_ORACLE_DIR
	$(CARGO) run --quiet --package mco-testkit --bin oracle -- "$(MCO_ORACLE_DIR)"

soak: ## Simulate $(SEEDS) fleets, many more than `make test` does
	MCO_SIM_SEEDS=$(SEEDS) $(CARGO) test --release --quiet --package mco-testkit --test it -- sim

gen: ## Write the generated files: deploy/crds
	$(CARGO) run --quiet --package xtask -- gen

bench: ## Measure rendering, choosing nodes, serving and simulating
	$(CARGO) bench --package mco-core --package mco-server --package mco-sim

fuzz: ## Fuzz the reader for a minute; needs cargo-fuzz and a nightly toolchain
	cd fuzz && cargo +nightly fuzz run read -- -max_total_time=60

dist: ## Build the small, fast binary that is shipped
	$(CARGO) build --profile dist --package mco
