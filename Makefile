# The only entry point; CI calls the same targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: test
test: ## Everything CI checks
	cargo test --workspace
