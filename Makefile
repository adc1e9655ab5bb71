# Four commands are all there is to know: demo, test, check, bench. Each prepares what it needs.
# One build tree serves the demo and the tests: the same profile, and the fail points that the tests need. The demo
# builds the programs alone.

CARGO ?= cargo
CARGO_TARGET_DIR ?= target
FEATURES := --features failpoints
DEMO_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help prepare build demo test check bench torture

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

prepare: ## install the Debian packages that are missing (root or sudo)
	@scripts/prepare

build: ## the programs, as the demo uses them
	@$(CARGO) build --workspace --bins $(FEATURES)

demo: prepare build ## the whole system on loopback under .headwater/ (DEMO_ARGS=--once ends after the tour)
	@exec "$(CARGO_TARGET_DIR)/debug/headwater" demo $(DEMO_ARGS)

test: ## all tests, on real servers
	@scripts/prepare lego pebble
	@$(CARGO) test --workspace $(FEATURES)
	@python3 edge/runtime/tests/run.py

check: ## format, lints, documentation, dependencies, generated files
	@scripts/check

bench: ## the table of docs/BENCHMARKS.md (BENCH=full or BENCH=name,…)
	@scripts/prepare wrk
	@$(CARGO) build --release --package headwater-edge
	@$(CARGO) bench --bench table

torture: prepare ## the long campaigns of faults
	@HEADWATER_TORTURE=1 $(CARGO) test --workspace $(FEATURES) -- --nocapture torture
