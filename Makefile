# Every target sets up what it needs. PYTHON=/path/to/python chooses the interpreter (3.11 to 3.13).
.DEFAULT_GOAL := help
.PHONY: help setup demo test bench lint fmt cases lock clean

VENV := .venv
BIN := $(VENV)/bin
# One stamp per PYTHON, so that asking for another interpreter sets up again.
STAMP := $(VENV)/.installed-$(if $(PYTHON),$(subst /,_,$(PYTHON)),default)
# More arguments for pytest, for instance PYTEST_ARGS="-k ledger".
PYTEST_ARGS ?=
UV ?= uv

help:  ## show the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements.lock pyproject.toml scripts/setup.sh
	@PYTHON="$(PYTHON)" scripts/setup.sh $@

setup: $(STAMP)  ## create .venv with the locked dependencies

demo: setup  ## engine, gateway and load at three times capacity, with and without admission
	@$(BIN)/tokenweir demo

test: lint  ## all checks: lint, types, layers, tests, coverage of the core
	@$(BIN)/python -m pytest --cov --cov-report=term $(PYTEST_ARGS)

bench: setup  ## what a decision and a simulation cost, beside the targets
	@$(BIN)/python -m bench.decision
	@$(BIN)/python -m bench.simulation

lint: setup  ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

fmt: setup  ## format, and fix what can be fixed safely
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

cases: setup  ## the conformance cases with test and outcome
	@$(BIN)/python -m pytest --cases -q $(PYTEST_ARGS)

lock:  ## compile requirements.lock anew (needs uv; UV=/path/to/uv)
	UV_PYTHON_DOWNLOADS=never UV_CUSTOM_COMPILE_COMMAND="make lock" $(UV) pip compile pyproject.toml \
		--all-extras --group dev --universal --python-version 3.11 --generate-hashes \
		--no-strip-extras --no-emit-index-url --quiet --upgrade -o requirements.lock
	@! grep -n '://' requirements.lock

clean:  ## remove the environment and what tools leave behind
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis \
		.coverage htmlcov
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
