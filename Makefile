# Everything runs in .venv, made on first use. `make demo` and `make test` are all a newcomer needs.
PYTHON ?= python3
BIN := .venv/bin
RUNTIME := .venv/.runtime
DEV := .venv/.dev

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-machines torture lint format bench clean

help: ## List the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

setup: $(DEV) ## Create .venv and install everything

# torch first and by itself: the constraint keeps every later requirement on the same build.
$(RUNTIME): pyproject.toml constraints.txt
	@echo "Setting up .venv ..."
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	@$(BIN)/python -m compileall -q src
	@touch $(RUNTIME)

$(DEV): $(RUNTIME)
	@echo "Adding what the tests need ..."
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(DEV)

demo: $(RUNTIME) ## Train on the bundled graph, evaluate, and answer questions
	@BIN=$(BIN) bash scripts/demo.sh

test: $(DEV) ## Lint, type-check and run the tests
	@echo "ruff, mypy, pytest"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2

test-slow: $(DEV) ## Run the slow tests: peers and whole benchmarks
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[peers]'
	$(BIN)/pytest -m slow

test-machines: $(DEV) ## Run the numerical tests as other processors and thread counts would
	$(BIN)/python scripts/test_machines.py -n 2

torture: $(DEV) ## Faults against everything that writes, for MINUTES (20): results/reliability.json
	$(BIN)/python -m tests.torture --minutes $(or $(MINUTES),20)

lint: $(DEV) ## Only lint and type-check
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

format: $(DEV) ## Format the code
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: $(DEV) ## Measure speed against yardsticks on this machine (needs EKGN_DATA)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[peers]'
	$(BIN)/python benchmarks/speed.py

clean: ## Remove the environment and caches
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache build dist
