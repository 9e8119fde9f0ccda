# make run:      set up, then measure the quickstart experiment in the lab and report it
# make test:     set up, then all tests that fit every run
# make test-all: the long versions too
# make setup:    what they share; leaves a working .venv/bin/k8sdds

VENV := .venv
BUILD := build/native
PYTHON := $(VENV)/bin/python

.PHONY: run test test-all setup prepare prepare-tests native lint clean

run: setup
	@$(VENV)/bin/k8sdds run quickstart

test: prepare-tests setup $(VENV)/.test-ready lint
	@$(PYTHON) -m pytest -m "not long"

test-all: prepare-tests setup $(VENV)/.test-ready lint
	@$(PYTHON) -m pytest

setup: prepare $(VENV)/.ready native

prepare:
	@scripts/prepare run

prepare-tests:
	@scripts/prepare test

# The system's Python, since that is what the packages above belong to.
$(VENV)/.ready: setup.py constraints.txt | prepare
	@echo "Setting up Python packages in $(VENV)"
	@/usr/bin/python3 -m venv $(VENV)
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.test-ready: $(VENV)/.ready
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[test]"
	@touch $@

native: $(VENV)/.ready
	@scripts/build-native $(BUILD) $(VENV)

lint: $(VENV)/.test-ready
	@$(VENV)/bin/ruff check --quiet .

clean:
	rm -rf build $(VENV)
