# Everything a person or CI does here. `make help` lists it.
VENV ?= .venv
BIN := $(VENV)/bin
# The first Python that is new enough; `make PYTHON=... run` says another.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.DEFAULT_GOAL := help
.PHONY: help run test test-fast test-frameworks fuzz lint format schemas bench soak selftest picture lock clean

help: ## what can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | \
		while IFS='|' read -r name text; do printf '  make %-16s %s\n' "$$name" "$$text"; done

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: apt-get install python3 python3-venv"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make a virtual environment: apt-get install python3-venv"; exit 1; }

$(VENV)/.installed: requirements.lock pyproject.toml | $(BIN)/python
	$(PIP) -r requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.installed-dev: requirements-dev.lock $(VENV)/.installed
	$(PIP) -r requirements-dev.lock
	@touch $@

run: $(VENV)/.installed ## run the embedded suite: does an uneven tensor-parallel split train the same model?
	@$(BIN)/parity run embedded/tensor-parallel

# The parser of the charts in a report: one file of the npm package, in a version near that of GitHub's own pages. The
# test of charts goes without where there is no npm, and says so.
MERMAID := 11.4.1
$(VENV)/mermaid-$(MERMAID).js: | $(BIN)/python
	@rm -rf $(VENV)/npm && mkdir $(VENV)/npm && cd $(VENV)/npm && npm pack --silent mermaid@$(MERMAID) >/dev/null && \
		tar -xzf mermaid-$(MERMAID).tgz package/dist/mermaid.min.js
	@mv $(VENV)/npm/package/dist/mermaid.min.js $@ && rm -rf $(VENV)/npm

test: $(VENV)/.installed-dev $(if $(shell command -v npm),$(VENV)/mermaid-$(MERMAID).js) ## every test, with real ranks
	@$(BIN)/pytest --numprocesses 2

test-fast: $(VENV)/.installed-dev ## the tests that start no ranks
	@$(BIN)/pytest --numprocesses 2 -m "not slow"

# Each framework has a virtual environment of its own, unless its requirements begin with `# venv: other`.
FRAMEWORKS ?= $(patsubst parity/recipes/%/requirements.txt,%,$(wildcard parity/recipes/*/requirements.txt))
FRAMEWORK_VENVS := .venv-frameworks
framework_venv = $(FRAMEWORK_VENVS)/$(or $(shell sed -n '1s/^\# venv: //p' parity/recipes/$(1)/requirements.txt),$(1))
framework_pip = $(call framework_venv,$(1))/bin/python -m pip --disable-pip-version-check install --quiet
# What this project needs beside torch, which is the framework's.
define RUNTIME
import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))
print(*project["build-system"]["requires"], sep="\n")
print(*(one for one in project["project"]["dependencies"] if not one.startswith("torch")), sep="\n")
endef
export RUNTIME

.SECONDEXPANSION:
$(FRAMEWORK_VENVS)/%.installed: parity/recipes/%/requirements.txt $$(wildcard parity/recipes/$$*/requirements-no-deps.txt) pyproject.toml | $(BIN)/python
	@echo "installing $* in $(call framework_venv,$*)"
	@test -x $(call framework_venv,$*)/bin/python || $(BIN)/python -m venv $(call framework_venv,$*)
	@$(call framework_pip,$*) --requirement parity/recipes/$*/requirements.txt
	@no_deps=parity/recipes/$*/requirements-no-deps.txt; \
		test ! -f $$no_deps || $(call framework_pip,$*) --no-deps --requirement $$no_deps
	@$(BIN)/python -c "$$RUNTIME" | $(call framework_pip,$*) --requirement /dev/stdin
	@$(call framework_pip,$*) --no-deps --no-build-isolation --editable .
	@touch $@

test-frameworks: $(VENV)/.installed-dev $$(patsubst %,$(FRAMEWORK_VENVS)/%.installed,$$(FRAMEWORKS)) ## install FRAMEWORKS="deepspeed ...", or all, and run their recipes
	@PARITY_FRAMEWORKS="$(FRAMEWORKS)" $(BIN)/pytest tests/frameworks

MINUTES ?= 30
fuzz: $(VENV)/.installed-dev ## mutate logs of every format for MINUTES=30, and read them: curves or one line, or it shows what
	@$(BIN)/python -m tests.fuzz $(MINUTES)

lint: $(VENV)/.installed-dev ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(VENV)/.installed-dev ## let ruff mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

schemas: $(VENV)/.installed ## write the JSON schemas from the models
	@$(BIN)/python -m parity.schemas

bench: $(VENV)/.installed-dev ## how fast, as ratios in one run
	@$(BIN)/python -m tests.bench

RUNS ?= 30
soak: $(VENV)/.installed-dev ## kill a random rank in each of RUNS=30 runs on a busy machine: named, nothing left, nothing lost?
	@$(BIN)/python -m tests.soak $(RUNS)

selftest: $(VENV)/.installed ## which faults are caught, in fp32 and in bf16; writes docs/selftest
	@for dtype in fp32 bf16; do \
		$(BIN)/parity selftest --dtype $$dtype --out parity-selftest/$$dtype || test $$dtype = bf16 || exit 1; \
		mkdir -p docs/selftest && cp parity-selftest/$$dtype/selftest.json docs/selftest/$$dtype.json && \
		cp parity-selftest/$$dtype/selftest.md docs/selftest/$$dtype.md; done

picture: $(VENV)/.installed-dev ## draw the pictures in the README, the first from parity-out
	@$(BIN)/python -m tests.picture parity-out/result.json docs/report.svg
	@$(BIN)/parity run embedded/tensor-parallel-cut-by-rows --out parity-out.cut >/dev/null || test $$? = 1
	@$(BIN)/python -m tests.picture parity-out.cut/result.json docs/report.png
	@$(BIN)/python -m tests.picture parity-out.cut/report.md docs/comment.png

lock: ## pin what pyproject.toml asks for, in a new environment
	@rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	@.venv-lock/bin/python -m pip install --quiet torch==2.13.0 setuptools . && \
		.venv-lock/bin/python -m pip freeze --all --exclude parity-action --exclude pip | sed 's/^torch==.*/torch==2.13.0/' > requirements.lock
	@.venv-lock/bin/python -m pip install --quiet -c requirements.lock '.[dev]' && \
		.venv-lock/bin/python -m pip freeze --all --exclude parity-action --exclude pip | sed 's/^torch==.*/torch==2.13.0/' | \
		grep -vxFf requirements.lock > requirements-dev.lock
	@rm -rf .venv-lock build

clean: ## remove the virtual environment and what runs left
	@rm -rf $(VENV) $(FRAMEWORK_VENVS) parity-out parity-out.* parity-selftest build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
