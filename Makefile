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
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: help test check deny tools lab-tools fmt lint doc unit oracle soak gen bench bench-fleet fuzz dist image release lab lab-enter lab-down

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

test: tools lab-tools fmt lint doc deny oracle unit ## Everything CI checks

check: fmt lint oracle ## For every day: format, lints, oracles, and the tests that need no other program
	$(CARGO) test --workspace --lib --bins --quiet
	$(CARGO) test --package xtask --tests --quiet

tools: ## Install what the tests use beyond Rust: ignition-validate, etcd, a real Kubernetes
	@scripts/tools

lab-tools: ## Make what the lab is made of: the root of its machines, and what runs in them
	@scripts/lab || { code=$$?; [ $$code -eq 3 ] && echo "lab: so there is no lab, and its tests say so"; [ $$code -eq 3 ]; }

fmt: ## Is the code formatted?
	$(CARGO) fmt --all -- --check

lint: ## Clippy, with warnings as errors
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings

doc: ## Do the documentation comments build?
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet

deny: ## Licences, banned crates, sources and known vulnerabilities of all dependencies
	@scripts/deny

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

gen: ## Write the generated files: deploy
	$(CARGO) run --quiet --package xtask -- gen

bench: dist ## Measure rendering, status, choosing nodes, serving, simulating and applying
	$(CARGO) bench --package mco-core --package mco-server --package mco-sim --package mco-daemon

bench-fleet: dist ## Roll out to 1,000 nodes on a real kube-apiserver, with the binary that is shipped
	$(CARGO) build --release --package mco-testkit --bin fleet
	$(TARGET)/release/fleet $(TARGET)/dist/mco $(or $(NODES),1000) instant
	$(TARGET)/release/fleet $(TARGET)/dist/mco $(or $(NODES),1000) drain

fuzz: ## Fuzz the reader for a minute; needs cargo-fuzz and a nightly toolchain
	cd fuzz && cargo +nightly fuzz run read -- -max_total_time=60

dist: ## Build the small, fast binary that is shipped; on x86-64 laid out by what its processes use
	$(CARGO) build --profile dist --package mco
ifeq ($(shell uname -m),x86_64)
	rm -rf $(TARGET)/layout && mkdir -p $(TARGET)/layout
	$(CARGO) run --quiet --package xtask -- layout $(TARGET)/dist/mco $(TARGET)/layout $(TARGET)/layout.txt
	MCO_LAYOUT=$(abspath $(TARGET)/layout.txt) $(CARGO) build --profile dist --package mco
endif

image: dist ## Write our container image, an OCI archive, of the binary that is shipped
	$(CARGO) run --quiet --package xtask -- image $(TARGET)/dist/mco $(TARGET)/mco-image.tar
	@ls -l $(TARGET)/mco-image.tar

# The files that a maintainer publishes; RELEASE.md says how.
release: image ## Write the files of a release: binary, image, manifests, bill of materials, checksums
	rm -rf $(TARGET)/release-files && mkdir -p $(TARGET)/release-files
	version=$$($(CARGO) run --quiet --package xtask -- version); arch=$$(uname -m); \
	cp $(TARGET)/dist/mco $(TARGET)/release-files/mco-$$version-linux-$$arch; \
	cp $(TARGET)/mco-image.tar $(TARGET)/release-files/mco-$$version-linux-$$arch.image.tar
	$(CARGO) run --quiet --package xtask -- release $(TARGET)/release-files
	@ls -l $(TARGET)/release-files

lab: lab-tools ## Start a real Kubernetes of three machines here, with our image in them
	$(CARGO) build --package mco --package mco-testkit --bin mco --bin lab
	@$(TARGET)/debug/lab up $(abspath $(TARGET))/debug/mco

lab-enter: ## A shell in a machine of the lab: make lab-enter MACHINE=m1
	@$(TARGET)/debug/lab enter $(or $(MACHINE),m1)

lab-down: ## End the lab; nothing of it is left
	@$(TARGET)/debug/lab down
