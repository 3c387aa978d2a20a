# Two commands do everything: `make run` and `make test`. Each sets up what is missing first.
.PHONY: help lock run docs test test-slow test-nodes test-newest test-pypy lint types fuzz sanitize bench bench-plot bench-report setup setup-test setup-all tools compat-report clean
.DEFAULT_GOAL := help
SHELL := /bin/bash
PY ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install -q --disable-pip-version-check

help:
	@echo "make run         serve on 127.0.0.1:9092 (ARGS='--listen :19092' for options of barnabas serve)"
	@echo "make test        run the tests; make test MARKS=\"not slow\" the long ones of CI too, make test-slow all"
	@echo "make test-nodes  the tests of all clients with brokers of three nodes"
	@echo "make test-newest the private doors, the wire and the broker under the newest releases of all libraries"
	@echo "make test-pypy   the broker under PyPy: its own tests, and those of clients (PYPY=pypy3 names the program)"
	@echo "make lint types  ruff, and mypy --strict"
	@echo "make docs        the docs as a site: build/docs/index.html"
	@echo "make fuzz        ten minutes of hostile bytes (SECONDS=30 for less)"
	@echo "make sanitize    the tests of the C modules under ASan and UBSan"
	@echo "make bench       barnabas beside Apache Kafka (ROUNDS=1 for a quick look, ROWS=all for the giant rows)"
	@echo "make bench-plot bench-report  plots and table of its JSON"
	@echo "make setup-all   install all extras: spark, zookeeper, binlog, influx, http, s3, security, shell, docs, test"

# make run ARGS="--listen :19092" starts it with options.
run: $(VENV)/.base
	$(BIN)/barnabas serve $(ARGS)

# pip itself would speak of the packages that it cannot find for an older Python.
$(VENV)/bin/python:
	@$(PY) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "barnabas needs Python 3.11 or newer, and \
	$(PY) is %d.%d: make run PY=python3.11" % sys.version_info[:2])'
	$(PY) -m venv $(VENV)

# --require-hashes: exactly the locked files, nothing resolved anew.
$(VENV)/.base: lock/base.txt pyproject.toml $(wildcard wire/_*.[ch] streams/*/_*.c) | $(VENV)/bin/python
	$(PIP) --require-hashes -r lock/base.txt
	$(PIP) --no-deps -e .
	@touch $@

$(VENV)/.test: lock/test.txt $(VENV)/.base
	$(PIP) --require-hashes -r lock/test.txt
	@touch $@

$(VENV)/.all: lock/all.txt $(VENV)/.base
	$(PIP) --require-hashes -r lock/all.txt
	@touch $@

setup: $(VENV)/.base
setup-test: $(VENV)/.test
setup-all: $(VENV)/.all tools $(VENV)/.archive

# Spark starts in half the time with it; where there is no Java, it is tried again the next time.
$(VENV)/.archive: lock/test.txt | $(VENV)/.test
	@$(BIN)/python -m barnabas.streams.archive 2>/dev/null
	@if [ -f $(VENV)/barnabas-spark.jsa ]; then touch $@; fi

# lock/test.txt has the spark extra too, which the tests of streams need; `make run` does without.
# The clients that are not Python packages: kcat, kafkajs, Kafka's jars. Tests of a tool that cannot be installed are skipped with the reason.
tools: $(VENV)/.test
	@$(BIN)/python -m compat_tests.setup_tools

# Four at a time, as most of a test's time is waiting; the tests of a file stay together, as they share a broker.
PARALLEL ?= -n 4 --dist loadfile --no-loadscope-reorder

# Which tests: CI runs the long ones too (`make test MARKS="not slow"`).
MARKS ?= not slow and not long

test: $(VENV)/.test tools $(VENV)/.archive
	$(BIN)/pytest -m "$(MARKS)" $(PARALLEL)

# Brokers of three nodes instead of one, for every folder whose tests start a broker: all but sanitize and site. A test that
# presupposes one node has the mark `one_node` with the reason.
NODES_TESTS := $(addprefix compat_tests/,kcat kafka_python aiokafka confluent kafkajs java admin transactions crash compaction \
	security acls fetching quotas pipelining hoarders lies monitoring cli nodes query_topics streams console examples ecosystem \
	offsets history binlog doors damage fuzz kafka_directory upgrade packaging docs kafka_python_suite)
test-nodes: $(VENV)/.test tools $(VENV)/.archive
	BARNABAS_TEST_PROCESSES=3 $(BIN)/pytest -m "$(MARKS)" $(PARALLEL) $(NODES_TESTS)

# This lane writes to a disk. The other lanes write to memory if enough is free (conftest.py).
test-slow: $(VENV)/.test tools $(VENV)/.archive
	PYTEST_DEBUG_TEMPROOT=$${TMPDIR:-/tmp} $(BIN)/pytest -m "" --hypothesis-profile full

# What the lock hides: does the next release of a library shut a private door (docs/decisions/0020-private-doors.md)?
NEWEST := build/newest
test-newest: tools
	$(PY) -m venv $(NEWEST)
	$(NEWEST)/bin/pip install -q --disable-pip-version-check --upgrade --upgrade-strategy eager -e '.[spark,test]'
	$(NEWEST)/bin/pip list --disable-pip-version-check
	$(NEWEST)/bin/pytest -m door
	$(NEWEST)/bin/pytest -m "not slow and not door" $(PARALLEL) wire broker

# The broker under PyPy (docs/decisions/0074-on-pypy.md). Its own tests run under PyPy, with what of their libraries there is
# for it; those of clients run under CPython as always, and start brokers under PyPy.
PYPY ?= pypy3
ON_PYPY := build/pypy
PYPY_TESTS := $(addprefix compat_tests/,kcat kafka_python aiokafka confluent kafkajs java admin transactions crash compaction \
	nodes history lies hoarders quotas pipelining fetching fuzz doors damage)
test-pypy: $(VENV)/.test tools
	@$(PYPY) -c 'import sys; sys.exit(None if sys.implementation.name == "pypy" and sys.version_info >= (3, 11) else 1)' || \
	  { echo "make test-pypy needs PyPy with Python 3.11 or newer: PYPY=the program (docs/install.md)" >&2; exit 1; }
	$(PYPY) -m venv $(ON_PYPY)
	$(ON_PYPY)/bin/pip install -q --disable-pip-version-check -e '.[http]' kazoo pytest pytest-timeout pytest-trio hypothesis
	$(ON_PYPY)/bin/python -m pytest -m "$(MARKS)" wire storage groupcoord broker
	BARNABAS_TEST_PYTHON=$(CURDIR)/$(ON_PYPY)/bin/python $(BIN)/pytest -m "$(MARKS)" $(PARALLEL) $(PYPY_TESTS)

# Run the scenarios of all clients and write their results to docs/compatibility.md.
compat-report: $(VENV)/.test tools
	$(BIN)/pytest compat_tests -m "not slow" --compat-report

# The docs as a site that opens from its files; a warning ends it.
docs: $(VENV)/.docs
	$(BIN)/sphinx-build -q -W --keep-going -d build/doctrees docs build/docs
	@echo "build/docs/index.html"

$(VENV)/.docs: lock/docs.txt $(VENV)/.base
	$(PIP) --require-hashes -r lock/docs.txt
	@touch $@

# Renew the locks after a change of pyproject.toml; what is pinned stays, unless UPGRADE=--upgrade.
LOCK := uv pip compile -q pyproject.toml --universal --generate-hashes --no-header --no-annotate $(UPGRADE)
lock:
	$(LOCK) -o lock/base.txt
	$(LOCK) --extra spark --extra zookeeper --extra binlog --extra influx --extra http --extra s3 --extra security --extra shell --extra docs --extra test -o lock/test.txt
	$(LOCK) --extra http --extra security -o lock/server.txt
	$(LOCK) --extra http --extra security --extra spark --extra s3 --extra zookeeper -o lock/spark.txt
	$(LOCK) --extra docs -o lock/docs.txt
	$(LOCK) --extra bench -o lock/bench.txt
	$(LOCK) --extra spark --extra zookeeper --extra binlog --extra influx --extra http --extra s3 --extra security --extra shell --extra docs --extra test --extra bench -o lock/all.txt

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

fuzz: $(VENV)/.test
	$(BIN)/python -m compat_tests.fuzz.run --seconds $(or $(SECONDS),600)

# The C modules, built for AddressSanitizer and UndefinedBehaviorSanitizer, under their tests.
sanitize: $(VENV)/.test
	$(BIN)/python -m compat_tests.sanitize

# The clients of the benchmark, and the floor under end to end; without a C compiler the clients' twins in Python serve.
build/%: bench/%.c bench/client.h
	@mkdir -p build
	@if command -v $(CC) >/dev/null; then $(CC) -std=c11 -O2 -Wall -Wextra -o $@ $< -pthread -ldl; \
	else echo "no C compiler ($(CC)): without $(notdir $@)"; fi

bench: tools build/load build/end_to_end build/relay
	$(BIN)/python -m bench.run --rounds $(or $(ROUNDS),3) --rows $(or $(ROWS),main) --json $(or $(JSON),build/bench.json)

$(VENV)/.bench: lock/bench.txt $(VENV)/.test
	$(PIP) --require-hashes -r lock/bench.txt
	@touch $@

# Plots from the JSON of one run or several (JSON="a.json b.json").
bench-plot: $(VENV)/.bench
	$(BIN)/python -m bench.plot $(or $(JSON),build/bench.json) --out docs/plots

# The table of one run or several, in Markdown.
bench-report: $(VENV)/.test
	@$(BIN)/python -m bench.report $(or $(JSON),build/bench.json)

clean:
	rm -rf $(VENV) .tools build *.egg-info
