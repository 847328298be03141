# Entry point of all builds and checks. CI calls the same targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
CARGO ?= cargo
# Folder of the reference's recordings. A clone does not contain them: the small corpus in
# crates/testkit is always checked, this folder only if it exists.
MCO_ORACLE_DIR ?= ../shared/oracle
# Number of fleets that `make soak` simulates.
SEEDS ?= 200000
# Number of random mixes of faults that `make soak` applies to a rollout, and the first seed.
MIXES ?= 10000
FIRST ?= 0
# Number of power cuts, and of states of a disk with a volatile cache, that `make soak` examines.
CUTS ?= 300
STATES ?= 6000
TARGET := $(or $(CARGO_TARGET_DIR),target)
# CI builds once, so that the state of incremental builds would cost time and half of the disk for nothing.
ifdef CI
export CARGO_INCREMENTAL := 0
endif

# Tests interrupt programs with SIGINT, which the processes of a background job ignore.
INTERRUPTIBLE := $(shell env --default-signal=INT true 2>/dev/null && echo env --default-signal=INT)

.PHONY: help test check deny tools lab-tools vm-tools ostree-tools fmt lint doc build-tests unit oracle soak gen bench bench-api bench-fleet fuzz dist image release lab lab-upgrade lab-enter lab-down

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

test: tools lab-tools vm-tools ostree-tools fmt lint doc deny oracle unit ## Run everything that CI checks

check: fmt lint oracle ## Run the quick checks: format, lints, oracles, and the tests that need no other program
	$(CARGO) test --workspace --lib --bins --quiet
	@$(TARGET)/debug/xtask test xtask

tools: ## Install the programs that the tests use beyond Rust: ignition-validate, etcd, a real Kubernetes
	@scripts/tools

lab-tools: ## Build the lab's prerequisites: the root file system of its machines, and Kubernetes
	@scripts/lab || { code=$$?; [ $$code -eq 3 ] && echo "lab: the tests of the lab are skipped"; [ $$code -eq 3 ]; }

vm-tools: ## Build the disks of the machines that have a kernel of their own
	@scripts/vm || { code=$$?; [ $$code -eq 3 ] && echo "vm: the tests of machines with their own kernel are skipped"; [ $$code -eq 3 ]; }

ostree-tools: ## Build the disk of the machine with ostree deployments, with its rpm-ostree and bootc
	@scripts/ostree || { code=$$?; [ $$code -eq 3 ] && echo "ostree: the tests of the machine with ostree deployments are skipped"; [ $$code -eq 3 ]; }

fmt: ## Check the format of the code
	$(CARGO) fmt --all -- --check

lint: ## Run Clippy with warnings as errors
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings

doc: ## Check that the documentation builds
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet

deny: ## Check licences, banned crates, sources and known vulnerabilities of all dependencies
	@scripts/deny

# `cargo run --package` would compile most dependencies again, because it selects their features for that package alone.
build-tests: ## Build all test programs, and the programs that the checks run
	$(CARGO) test --workspace --lib --bins --tests --no-run --quiet

unit: build-tests ## Run all tests of all crates
	@$(INTERRUPTIBLE) $(TARGET)/debug/xtask test

oracle: build-tests ## Compare mco with every recording of the reference in $MCO_ORACLE_DIR
	@$(TARGET)/debug/oracle "$(MCO_ORACLE_DIR)"

soak: ## Simulate $(SEEDS) fleets; roll out under every single fault and $(MIXES) random mixes; cut the power $(CUTS) times
	MCO_SIM_SEEDS=$(SEEDS) $(CARGO) test --release --quiet --package mco-testkit --test it -- sim
	MCO_CHAOS_ALL=1 MCO_CHAOS_SEEDS=$(MIXES) MCO_CHAOS_SEED=$(FIRST) \
		$(CARGO) test --release --quiet --package mco --test chaos -- --nocapture --test-threads 1
	MCO_VM_CUTS=$(CUTS) MCO_VM_BOOTS=$(CUTS) MCO_VM_STATES=$(STATES) MCO_VM_STATES_PER_CALL=100 \
		MCO_VM_SEED=$(FIRST) \
		$(CARGO) test --release --quiet --package mco --test vm -- --nocapture --test-threads 1

gen: ## Write the generated files in deploy/
	$(CARGO) run --quiet --package xtask -- gen

bench: bench-api ## Measure rendering, status, node selection, serving, simulating, applying, and the embedded API server
	$(CARGO) bench --package mco-core --package mco-server --package mco-sim --package mco-daemon

# The variable is that of the container image. NODES, PODS, WATCHERS and EVENTS make the benchmark smaller.
bench-api: dist ## Compare the embedded API server with a real kube-apiserver and etcd: throughput and memory
	$(CARGO) build --release --package mco-testkit --bin api
	MALLOC_TRIM_THRESHOLD_=131072 $(TARGET)/release/api $(TARGET)/dist/mco $(or $(NODES),5000) $(or $(PODS),20000) \
		$(or $(WATCHERS),200) $(or $(EVENTS),1000)

bench-fleet: dist ## Roll out to 1,000 nodes on a real kube-apiserver, with the release binary
	$(CARGO) build --release --package mco-testkit --bin fleet
	$(TARGET)/release/fleet $(TARGET)/dist/mco $(or $(NODES),1000) instant
	$(TARGET)/release/fleet $(TARGET)/dist/mco $(or $(NODES),1000) drain

fuzz: ## Fuzz the Ignition parser and the requests of both servers for a minute each; needs cargo-fuzz and a nightly toolchain
	for target in read request api_request api_body api_patch api_selector api_expression api_column; do \
		(cd fuzz && cargo +nightly fuzz run $$target -- -max_total_time=60 -max_len=131072) || exit 1; done

dist: ## Build the release binary; on x86-64 with a layout from the profile of its processes
	$(CARGO) build --profile dist --package mco
ifeq ($(shell uname -m),x86_64)
	rm -rf $(TARGET)/layout && mkdir -p $(TARGET)/layout
	$(CARGO) run --quiet --package xtask -- layout $(TARGET)/dist/mco $(TARGET)/layout $(TARGET)/layout.txt
	MCO_LAYOUT=$(abspath $(TARGET)/layout.txt) $(CARGO) build --profile dist --package mco
endif

image: dist ## Write the container image with the release binary, as an OCI archive
	$(CARGO) run --quiet --package xtask -- image $(TARGET)/dist/mco $(TARGET)/mco-image.tar
	@ls -l $(TARGET)/mco-image.tar

# The files that a maintainer publishes, as RELEASE.md describes.
release: image ## Write the files of a release: binary, image, manifests, bill of materials, checksums
	rm -rf $(TARGET)/release-files && mkdir -p $(TARGET)/release-files
	version=$$($(CARGO) run --quiet --package xtask -- version); arch=$$(uname -m); \
	cp $(TARGET)/dist/mco $(TARGET)/release-files/mco-$$version-linux-$$arch; \
	cp $(TARGET)/mco-image.tar $(TARGET)/release-files/mco-$$version-linux-$$arch.image.tar
	$(CARGO) run --quiet --package xtask -- release $(TARGET)/release-files
	@ls -l $(TARGET)/release-files

lab: lab-tools ## Start a lab: a real Kubernetes of three machines on this host, with the image of mco
	$(CARGO) build --package mco --package mco-testkit --bin mco --bin lab
	@$(TARGET)/debug/lab up $(abspath $(TARGET))/debug/mco

# The target folder is shared, so that only the crates of the workspace are compiled again.
lab-upgrade: lab-tools ## Upgrade mco from another commit to this one in the lab, mid-roll-out: make lab-upgrade FROM=COMMIT
	@test -n "$(FROM)" || { echo "lab-upgrade: name the commit: make lab-upgrade FROM=COMMIT" >&2; exit 2; }
	rm -rf $(TARGET)/previous && git worktree prune
	git worktree add --quiet --detach $(TARGET)/previous $(FROM)
	cd $(TARGET)/previous && CARGO_TARGET_DIR=$(abspath $(TARGET)) $(CARGO) build --package mco --bin mco
	cp $(TARGET)/debug/mco $(TARGET)/previous.mco && git worktree remove --force $(TARGET)/previous
	MCO_PREVIOUS=$(abspath $(TARGET))/previous.mco $(CARGO) test --package mco --test lab -- --nocapture upgrade

lab-enter: ## Open a shell in a machine of the lab: make lab-enter MACHINE=m1
	@$(TARGET)/debug/lab enter $(or $(MACHINE),m1)

lab-down: ## Stop the lab and remove it
	@$(TARGET)/debug/lab down
