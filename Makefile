# Two commands do everything: `make lab` and `make test`. Both make .venv when it is absent or stale.
#   PYTHON=python3.12     another interpreter (3.11 or later)
#   ENGINES=embedded      or yours, containers; the default takes the first that can serve
#   NO_BROWSER=1          do not open a browser: print JupyterLab's address and stay (DETACH=1: and return)
PYTHON ?= python3
ENGINES ?= auto
BIN := .venv/bin
# a copied or moved checkout has a .venv that points elsewhere: the stamp holds the folder that it was made in
STAMP := $(shell cat .venv/made-in 2>/dev/null)
ifneq ($(STAMP),$(CURDIR))
FORCE_SETUP := stale
endif

export FEEDLAB_ENGINES = $(ENGINES)

.PHONY: lab check test soak bench setup clean help stale
.DEFAULT_GOAL := help

help:  ## what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:[^#]*## /\t/' | expand -t 12

setup: .venv/made-in  ## the virtual environment alone

.venv/made-in: pyproject.toml constraints.txt $(FORCE_SETUP)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "feedlab needs Python 3.11 or later; name one: make lab PYTHON=python3.12"; exit 2; }
	@echo "setting up .venv (a minute or two the first time) ..."
	@$(PYTHON) -m venv --clear .venv || \
	  { echo "this Python cannot make a virtual environment; on Debian: apt-get install python3-venv"; exit 2; }
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -c constraints.txt -e '.[test]'
	@echo '$(CURDIR)' > .venv/made-in

lab: .venv/made-in  ## set up, start the engines, run the demo, open JupyterLab
	@$(BIN)/feedlab lab $(if $(NO_BROWSER),--no-browser) $(if $(DETACH),--detach)

check: .venv/made-in  ## names, unit tests and core's doctests: a minute, no engine
	@$(BIN)/ruff check --select F --exclude notebooks .
	@$(BIN)/python -m pytest -q feedlab/core tests/unit $(ARGS)

test: .venv/made-in  ## every test, on real engines
	@$(BIN)/python -m pytest -q --durations=15 --nbval-lax --nbval-current-env --nbval-cell-timeout=60 --ignore=notebooks/learner feedlab tests notebooks $(ARGS)

soak: .venv/made-in  ## the long ones: many rounds of kills, 10^5 histories of the protocol's model
	@$(BIN)/feedlab up
	@$(BIN)/python tests/contract/model.py 100000
	@$(BIN)/python -m feedlab.verify.kill_rounds --rounds 50

bench: .venv/made-in  ## every station beside what one would use instead: ratios, about five minutes
	@$(BIN)/feedlab up
	@$(BIN)/feedlab bench $(ARGS)

clean: ## stop the engines, remove their data and .venv
	-@$(BIN)/feedlab down --wipe
	rm -rf .venv .feedlab
