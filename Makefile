# Two commands do everything: `make run` and `make test`. Each sets up what is missing first.
.PHONY: run test test-slow lint types fuzz bench setup setup-test .tools clean
SHELL := /bin/bash
PY ?= python3
VENV := .venv
BIN := $(VENV)/bin

run: $(VENV)/.base
	$(BIN)/barnabas serve

$(VENV)/bin/python:
	$(PY) -m venv $(VENV)

# --require-hashes: exactly the locked files, nothing resolved anew.
$(VENV)/.base: lock/base.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r lock/base.txt
	$(BIN)/pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@

$(VENV)/.test: lock/test.txt $(VENV)/.base
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r lock/test.txt
	@touch $@

setup: $(VENV)/.base
setup-test: $(VENV)/.test

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

# The clients that are not Python packages: kcat, kafkajs, Apache Kafka's jars. What cannot be had is skipped by the tests.
.tools: $(VENV)/.test
	@$(BIN)/python -m compat_tests.setup_tools

test: $(VENV)/.test .tools
	$(BIN)/pytest -m "not slow"

# barnabas beside Apache Kafka, in one run; ROUNDS=1 for a quick look.
bench: .tools
	$(BIN)/python -m bench.run --rounds $(or $(ROUNDS),3) --json build/bench.json

clean:
	rm -rf $(VENV) .tools build *.egg-info
