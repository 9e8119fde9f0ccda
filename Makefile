# make run:      set up, then measure the quickstart experiment in the lab and report it
# make test:     set up, then everything that a change must pass
# make test-all: the long tests too
# make unit:     unit tests only: no root, nothing beyond Python
# make lab:      tests with real namespaces, packets and DDS on this machine
# make cluster:  tests with local nodes and real Kubernetes clusters
# make lint:     ruff, import layers, types
# make setup:    what the others share; leaves a working .venv/bin/k8sdds

VENV := .venv
BUILD := build/native
PYTHON := $(VENV)/bin/python
PYTEST := $(PYTHON) -m pytest -m "not long"
LAB_TESTS := tests/lab tests/perftest tests/supervisor tests/security tests/connext tests/vm
CLUSTER_TESTS := tests/nodes tests/bundle tests/deploy tests/cluster

.PHONY: run test test-all unit lab cluster lint setup prepare prepare-tests native clean

run: setup
	@$(VENV)/bin/k8sdds run quickstart

test: prepare-tests setup lint
	@$(PYTEST)

test-all: prepare-tests setup lint
	@$(PYTHON) -m pytest

unit: $(VENV)/.test-ready
	@$(PYTEST) tests/unit

lab: prepare-tests setup $(VENV)/.test-ready
	@$(PYTEST) $(LAB_TESTS)

cluster: prepare-tests setup $(VENV)/.test-ready
	@$(PYTEST) $(CLUSTER_TESTS)

lint: $(VENV)/.test-ready
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/lint-imports --no-logo > build/lint-imports.log || { cat build/lint-imports.log; exit 1; }
	@$(VENV)/bin/mypy --no-error-summary

setup: prepare $(VENV)/.ready native

prepare:
	@scripts/prepare run

prepare-tests:
	@scripts/prepare test

# The system's Python where there is one: the lab's packages belong to it.
$(VENV)/.ready: setup.py constraints.txt | build
	@echo "Setting up Python packages in $(VENV)"
	@$$(command -v /usr/bin/python3 || command -v python3) -m venv $(VENV)
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.test-ready: $(VENV)/.ready
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[test]"
	@touch $@

build:
	@mkdir -p $@

native: $(VENV)/.ready
	@scripts/build-native $(BUILD) $(VENV)

clean:
	rm -rf build $(VENV)
