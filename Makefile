# Two commands do everything: `make run` and `make test`. Each sets up what is missing first.
.PHONY: run test test-slow lint types fuzz bench setup setup-test clean
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

test: $(VENV)/.test
	$(BIN)/pytest -m "not slow"

test-slow: $(VENV)/.test
	$(BIN)/pytest -m slow

fuzz: $(VENV)/.test
	$(BIN)/python -m compat_tests.fuzz.run --seconds 600

clean:
	rm -rf $(VENV) .tools build *.egg-info
