# make run:       set up, then measure the quickstart experiment in the lab and report it
# make test:      set up, then everything that a change must pass
# make test-all:  the long tests too
# make unit:      unit tests only: no root, nothing beyond Python
# make lab:       tests with real namespaces, packets and DDS on this machine
# make cluster:   tests with local nodes and real Kubernetes clusters
# make test-data: download the data that the authors of studies published, for tests that need it
# make lint:      ruff, import layers, types
# make docs:      the generated pages of docs/, then the site in build/site
# make vega:      the libraries of the report's interactive figure, from their npm packages; needs Node.js
# make deb:       Debian packages for the release of this machine, in build/deb
# make wheel:     wheels with the native programs, in build/wheel; ARCH=arm64: for another architecture
# make setup:     what the others share; leaves a working .venv/bin/k8sdds

VENV := .venv
PYTHON := $(VENV)/bin/python
TESTS := $(PYTHON) scripts/test.py
# The system's Python where there is one: the lab's packages belong to it.
SYSTEM_PYTHON := $$(command -v /usr/bin/python3 || command -v python3)

# What must be installed before `k8sdds setup` can install everything else.
BOOTSTRAP := python3 python3-venv
# Waits while another program changes packages.
APT := -q=2 -o DPkg::Lock::Timeout=600
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: run test test-all unit lab cluster lint docs vega deb wheel test-data setup setup-tests prepared programs bootstrap clean

# stdout has only what to do next, which is done here.
run: prepared
	@$(VENV)/bin/k8sdds setup --yes --for lab >/dev/null
	@$(VENV)/bin/k8sdds run quickstart

test: setup-tests
	@$(TESTS) lint unit lab-parallel lab deploy cluster

test-all: setup-tests
	@$(TESTS) --long lint unit lab-parallel lab deploy cluster

test-data: $(VENV)/.test-ready
	@$(PYTHON) -m tests.published_data

unit: $(VENV)/.test-ready
	@$(TESTS) unit

lab: setup-tests
	@$(TESTS) lab-parallel lab

cluster: setup-tests
	@$(TESTS) deploy cluster

vega:
	@cd scripts/vega && npm ci --no-audit --no-fund --silent && node bundle.mjs ../../k8sdds/report/templates/vega.js

lint: $(VENV)/.test-ready | build
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/ruff format --check --quiet .
	@$(VENV)/bin/lint-imports --no-logo > build/lint-imports.log || { cat build/lint-imports.log; exit 1; }
	@$(VENV)/bin/mypy --no-error-summary

docs: $(VENV)/.docs-ready | build
	@$(PYTHON) scripts/reference.py
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet --strict

deb:
	@scripts/build-deb build/deb

wheel: $(VENV)/.ready
	@$(PYTHON) scripts/build_wheel.py build/wheel $(ARCH)

setup: prepared
	@$(VENV)/bin/k8sdds setup --yes --for deploy

setup-tests: $(VENV)/.test-ready
	@$(VENV)/bin/k8sdds setup --yes --for tests >/dev/null

# The compilers and pip work at the same time.
prepared:
	@$(MAKE) --no-print-directory --jobs=2 $(VENV)/.ready programs

# `k8sdds setup` builds what failed here, such as because packages are missing, and reports why.
programs: | bootstrap
	@echo "Building the native programs in build"
	@$(SYSTEM_PYTHON) -m k8sdds.system.native_build

bootstrap:
	@command -v apt-get >/dev/null || exit 0; \
	installed=$$(dpkg-query --show --showformat '$${db:Status-Status}\n' $(BOOTSTRAP) 2>/dev/null | grep -cx installed); \
	[ "$$installed" -eq $(words $(BOOTSTRAP)) ] || { \
	    echo "Installing packages: $(BOOTSTRAP)"; \
	    $(AS_ROOT) apt-get $(APT) update; \
	    $(AS_ROOT) env DEBIAN_FRONTEND=noninteractive apt-get $(APT) install -y --no-install-recommends \
	        $(BOOTSTRAP) >/dev/null; }

$(VENV)/.ready: pyproject.toml setup.py constraints.txt | build bootstrap
	@echo "Setting up Python packages in $(VENV)"
	@$(SYSTEM_PYTHON) -m venv $(VENV)
	@# Python compiles the modules that are used when they are first imported.
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --editable ".[all]"
	@touch $@

$(VENV)/.test-ready: $(VENV)/.ready
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[all,test]"
	@touch $@

$(VENV)/.docs-ready: $(VENV)/.ready
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[all,docs]"
	@touch $@

build:
	@mkdir -p $@

clean:
	rm -rf build $(VENV)
