# Every developer command. `make help` lists them; continuous integration calls only these.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Without bytecode every start of a process compiles all it imports anew, which takes longer than to start it.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-compile
ARGS ?=

.PHONY: help demo up test check types house fault bench promises format lock clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Version managers leave programs on the PATH that exist and fail: each candidate is really run.
$(BIN)/python:
	@usable='import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 12))'; found=; \
	for version in 3.13 3.12 3.14 ''; do \
	  for candidate in python$${version:-3} "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$version*/bin/python3; do \
	    if [[ -z $$found ]] && "$$candidate" -c "$$usable" >/dev/null 2>&1; then found=$$candidate; fi; \
	  done; \
	done; \
	if [[ -z $$found ]]; then \
	  echo "No Python of 3.12 or newer with venv was found on the PATH or under $${PYENV_ROOT:-$$HOME/.pyenv}/versions." >&2; \
	  echo "Install one, for instance with: apt-get install python3 python3-venv, or: pyenv install 3.13" >&2; \
	  exit 1; \
	fi; \
	echo "using $$("$$found" --version) ($$found)"; \
	"$$found" -m venv --clear $(VENV)

$(STAMP): requirements.lock pyproject.toml | $(BIN)/python
	@echo "installing into $(VENV)"
	@$(PIP) --require-hashes --requirement requirements.lock
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP) ## Install everything and run two Missions while parts are killed
	@$(BIN)/weavehold demo $(ARGS)

up: $(STAMP) ## Run the whole stack until Ctrl-C
	@$(BIN)/weavehold up $(ARGS)

# Of three tests at once one waits for a process, a lease or a timeout: two cores stay busy.
test: $(STAMP) ## Run the tests against real PostgreSQL and NATS
	@$(BIN)/pytest -m "not fault" -n 3 --ignore tests/architecture $(ARGS)

fault: $(STAMP) ## Run the long tests that kill and cut
	@$(BIN)/pytest -m fault $(ARGS)

check: $(STAMP) ## Lint, format, types, import directions, the house's own rules
	@$(MAKE) --jobs=2 types house

# The types take as long as all the rest: both at once.
types: $(STAMP)
	@$(BIN)/mypy

house: $(STAMP)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports
	@$(BIN)/pytest -q tests/architecture

bench: $(STAMP) ## Measure, each figure as a ratio to a bare baseline
	@$(BIN)/weavehold bench $(ARGS)

promises: $(STAMP) ## List what Weavehold keeps and the tests that prove it
	@$(BIN)/python -m tests.promises $(ARGS)

format: $(STAMP) ## Format the code
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

lock: $(STAMP) ## Resolve the dependencies of pyproject.toml anew
	@rm -f requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --all-extras --prerelease if-necessary-or-explicit \
	  --generate-hashes --no-header --no-annotate --output-file requirements.lock pyproject.toml

clean: ## Remove everything that was installed or generated; .weavehold (data and keys) stays
	@rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
