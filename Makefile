# Two commands for a fresh machine that has Python 3.11 with venv, and make:
#   make demo   decides a 1,024-GPU epoch, proves it, verifies it and sums it up
#   make test   passes all tests, with at least 90 % branch coverage
# Both set everything up in .venv first. `make help` lists the rest.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
JOBS   ?= 3
BIN    := $(VENV)/bin
LOCK   := .ci/requirements.lock
READY  := $(VENV)/.ready
DEMO   := build/demo
WHEEL  := build/wheel
SITE   := build/docs
ENGINES_AGREE := tests/engines/test_brute_force.py tests/milp/test_agreement.py

# Tests start hundreds of commands and several workers: all of them would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test fuzz soak lint format types floors docs pictures wheel bench-smoke ci lock clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: $(READY)  ## create .venv with the pinned packages and this checkout in it

$(BIN)/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11"'
	$(PYTHON) -m venv $(VENV)

$(READY): $(LOCK) pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(LOCK)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY)  ## decide, verify and explain a 1,024-GPU epoch
	@mkdir -p $(DEMO)
	@printf '\n== A cluster of 1,024 GPUs, with a week of history and demand of 2.5 times its size\n\n'
	$(BIN)/allocator generate snapshot --gpus 1024 --seed 1 > $(DEMO)/snapshot.json
	@printf '\n== One epoch: who starts, who stops, and the proof that nothing better exists\n\n'
	$(BIN)/allocator solve $(DEMO)/snapshot.json --out $(DEMO)/decision.json -v
	@printf '\n== The independent verifier, which knows only snapshot and decision\n\n'
	$(BIN)/allocator verify $(DEMO)/snapshot.json $(DEMO)/decision.json
	@printf '\n== The whole epoch explained\n\n'
	$(BIN)/allocator explain $(DEMO)/snapshot.json $(DEMO)/decision.json
	@printf '\n== In a few sentences\n\n'
	@$(BIN)/python docs/examples/summary.py $(DEMO)/snapshot.json $(DEMO)/decision.json
	@printf '\nSnapshot and decision are in $(DEMO). Ask about one workload or one allocation:\n\n'
	@echo "  $(BIN)/allocator explain $(DEMO)/snapshot.json $(DEMO)/decision.json WORKLOAD"
	@echo "  $(BIN)/allocator explain $(DEMO)/snapshot.json $(DEMO)/decision.json --allocation ID"

test: $(READY)  ## all tests, with branch coverage of at least 90 %
	@rm -f .coverage .coverage.*
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -q --cov --cov-report=term

fuzz: $(READY)  ## 10,000 tiny epochs by all engines and brute force, and CP-SAT against MILP on all families
	ALLOCATOR_FUZZ=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -q -m fuzz $(ENGINES_AGREE)

soak: $(READY)  ## all long random runs, for two hours or more
	ALLOCATOR_FUZZ=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -q -m fuzz

lint: $(READY)  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY)  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY)  ## mypy, strict
	$(BIN)/mypy

floors: $(READY)  ## imports point down only
	$(BIN)/lint-imports

docs: $(READY)  ## build the documentation site, without warnings, in build/docs
	$(BIN)/sphinx-build -q -W --keep-going -b html -d build/doctrees docs $(SITE)
	@echo "The site is in $(SITE)/index.html"

pictures: $(READY)  ## draw the pictures of the documentation anew
	$(BIN)/python -m docs._pictures

wheel: $(READY)  ## build the wheel and use it from a foreign folder
	.ci/wheel $(BIN)/python $(WHEEL)

bench-smoke: $(READY)  ## the benchmarks, small and short
	$(BIN)/python -m benchmarks --smoke

ci:  ## everything that has to pass before a change goes in
	.ci/run

lock:  ## pin the newest releases of all packages anew
	.ci/lock $(PYTHON) $(LOCK)

clean:  ## remove what was built, but not .venv
	rm -rf build dist .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
