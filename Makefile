# Everything runs in .venv, made on first use. `make demo` and `make test` are all a newcomer needs.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow lint format bench docs clean

help: ## List the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(STAMP) ## Create .venv and install everything

# torch first and by itself: the constraint keeps every later requirement on the same build.
$(STAMP): pyproject.toml constraints.txt
	@echo "Setting up .venv ..."
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@echo "Compiling bytecode (imports are much faster after it) ..."
	@$(BIN)/python -m compileall -q .venv/lib src > /dev/null 2>&1 || true
	@touch $(STAMP)

demo: $(STAMP) ## Train on the bundled graph, evaluate, and answer questions
	@BIN=$(BIN) bash scripts/demo.sh

test: $(STAMP) ## Lint, type-check and run the tests
	@echo "ruff, mypy, pytest"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2

test-slow: $(STAMP) ## Run the slow tests: peers and whole benchmarks
	$(BIN)/pip install --quiet --constraint constraints.txt '.[peers]'
	$(BIN)/pytest -m slow

lint: $(STAMP) ## Only lint and type-check
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

format: $(STAMP) ## Format the code
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: $(STAMP) ## Measure speed against yardsticks on this machine (needs EKGN_DATA)
	$(BIN)/python benchmarks/speed.py

clean: ## Remove the environment and caches
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache build dist
