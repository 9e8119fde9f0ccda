# make run:       set up, then measure the quickstart experiment in the lab and report it
# make test:      set up, then everything that a change must pass
# make test-all:  the long tests too
# make unit:      unit tests only: no root, nothing beyond Python
# make lab:       tests with real namespaces, packets and DDS on this machine
# make cluster:   tests with local nodes and real Kubernetes clusters
# make test-data: download the data that the authors of the study published, for tests that need it
# make lint:      ruff, import layers, types
# make docs:      the generated pages of docs/, then the site in build/site
# make setup:     what the others share; leaves a working .venv/bin/k8sdds

VENV := .venv
BUILD := build/native
PYTHON := $(VENV)/bin/python
PYTEST := $(PYTHON) -m pytest
# Unit tests share nothing, so they run on all cores; the others share this machine's namespaces and cgroups.
UNIT := tests/unit --numprocesses auto
REAL := tests/lab tests/deploy tests/cluster
SHORT := -m "not long"
# What all parts of the tests skipped; the last part shows it.
SKIPPED := build/skipped.json

.PHONY: run test test-all unit lab cluster lint docs test-data setup prepare prepare-tests native clean

run: setup
	@$(VENV)/bin/k8sdds run quickstart

test: prepare-tests setup lint
	@rm -f $(SKIPPED)
	@$(PYTEST) $(UNIT) $(SHORT) --skipped $(SKIPPED)
	@$(PYTEST) $(REAL) $(SHORT) --skipped $(SKIPPED)

test-all: prepare-tests setup lint
	@rm -f $(SKIPPED)
	@$(PYTEST) $(UNIT) --skipped $(SKIPPED)
	@$(PYTEST) $(REAL) --skipped $(SKIPPED)

test-data: $(VENV)/.test-ready
	@$(PYTHON) -m tests.published_data

unit: $(VENV)/.test-ready
	@$(PYTEST) $(UNIT) $(SHORT)

lab: prepare-tests setup $(VENV)/.test-ready
	@$(PYTEST) tests/lab $(SHORT)

cluster: prepare-tests setup $(VENV)/.test-ready
	@$(PYTEST) tests/deploy tests/cluster $(SHORT)

lint: $(VENV)/.test-ready | build
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/lint-imports --no-logo > build/lint-imports.log || { cat build/lint-imports.log; exit 1; }
	@$(VENV)/bin/mypy --no-error-summary

docs: $(VENV)/.docs-ready | build
	@$(PYTHON) scripts/reference.py
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet --strict

setup: prepare $(VENV)/.ready native

prepare:
	@scripts/prepare run

prepare-tests:
	@scripts/prepare test

# The system's Python where there is one: the lab's packages belong to it.
$(VENV)/.ready: pyproject.toml setup.py constraints.txt | build
	@echo "Setting up Python packages in $(VENV)"
	@$$(command -v /usr/bin/python3 || command -v python3) -m venv $(VENV)
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.test-ready: $(VENV)/.ready
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[test]"
	@touch $@

$(VENV)/.docs-ready: $(VENV)/.ready
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[docs]"
	@touch $@

build:
	@mkdir -p $@

native: $(VENV)/.ready
	@scripts/build-native $(BUILD) $(VENV)

clean:
	rm -rf build $(VENV)
