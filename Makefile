# Everything that a checkout can do. Paths are relative and quoted, and tools run as `python -m ...`: a checkout
# may lie under a path with spaces, which neither make's own functions nor the first lines of scripts survive.

.PHONY: demo cluster-demo test check types laws mutants campaign maven beyond browser bench docs lab format lock proto clean distclean environment
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

# Which Python makes the environment: `make PYTHON=python3.12 ...`; default: the first that serves.
PYTHON ?=

RUN := .venv/bin/python

# Where it is set, each of the hundreds of processes that the tests start compiles the whole package: half of its start.
unexport PYTHONDONTWRITEBYTECODE

# The quickstart notebook as a papermill job: real data through append, tiering, Iceberg, and read across.
demo: environment
	@$(RUN) -m tools.demo

# Two curated notebooks past one machine: an object store, REST catalogs, a Spark cluster, a server with TLS: docs/deploying.md.
# Parts that this machine does not have are fetched once. What it leaves (logs, objects, notebooks) is in cluster-demo/.
cluster-demo: environment
	@$(RUN) -m tools.cluster_demo

# Everything that must hold before a commit, the tests in four processes, file by file: on two cores three leave a quarter of them
# idle, for tests wait for servers and deadlines. They take up to 10 GB of memory together; in one: make test PYTEST="-n 0".
# Other options for pytest likewise: make test PYTEST="-k log -x". The laws of the architecture are part of the check.
# While one works, make test FAST=1: the unit tests that need no Spark and start no process, without the check.
FAST ?=
TESTS := $(if $(FAST),--fast tests/unit,--ignore tests/architecture tests)
test: $(if $(FAST),environment,check)
	@$(RUN) -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(PYTEST) $(TESTS)

# Types and laws take the same time, each one process.
check: environment
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(MAKE) --no-print-directory -j 2 types laws

types: environment
	@$(RUN) -m mypy

laws: environment
	@$(RUN) -m pytest -q tests/architecture

# The tests of the tests: every safety check is taken out once, and a test must turn red. Takes one to two hours.
mutants: environment
	@$(RUN) -m pytest -m campaign $(PYTEST) tests/mutants

# What takes minutes to hours: fuzzing, crash cycles, long random runs. The mutants have a target of their own. No traceback of
# tests that take long, before the longest may: written while threads run, it has ended the whole run with a segmentation fault.
campaign: environment
	@$(RUN) -m pytest -m "campaign and not beyond" -o faulthandler_timeout=7200 -s --ignore tests/mutants $(PYTEST) tests

# Compares with stock Spark and Iceberg's own runtime, fetched once (half a gigabyte) into .venv-maven, and with Polars, Daft and
# ClickHouse, into .venv-readers.
maven: environment
	@$(RUN) -m pytest -m maven $(PYTEST) tests

# The lake on other people's servers: MinIO (built by Go, or of the path), Nessie (245 MB from Maven Central), PostgreSQL (the
# machine's), and stock Spark with Iceberg's runtime, as `make maven` has it. What is fetched is said before the first test, and stays
# in the user's cache; which versions: tools/beyond/pinned_parts.py. No traceback of long tests, as of campaigns.
beyond: environment
	@$(RUN) -m pytest -m "beyond and not campaign" -o faulthandler_timeout=1200 $(PYTEST) tests/beyond

# Each notebook in a real JupyterLab in a headless browser: needs a Chromium on the path; playwright goes into .venv-browser.
browser: environment
	@$(RUN) -m pytest -m browser $(PYTEST) tests/notebooks

bench: environment
	@$(RUN) -m benchmarks

# The API reference, from the docstrings: build/docs/index.html. That its links and names are right is part of the check.
docs: environment
	@$(RUN) -m tools.api_reference build/docs
	@echo "build/docs/index.html"

lab: environment
	@$(RUN) -m fluss_lab.cli lab notebooks

format: environment
	@$(RUN) -m ruff check --fix-only --quiet .
	@$(RUN) -m ruff format .

# One lock for every platform and Python from 3.11, all extras, with hashes. Newer versions: make lock LOCKFLAGS=--upgrade
lock:
	@if command -v uv >/dev/null 2>&1; then uv=uv; \
	elif $(RUN) -m uv --version >/dev/null 2>&1; then uv='$(RUN) -m uv'; \
	else echo "lock: needs uv (pip install uv, or https://docs.astral.sh/uv)" >&2; exit 1; fi; \
	$$uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --all-extras \
		--generate-hashes --no-header $(LOCKFLAGS) --output-file requirements.lock

# The generated code is checked in; tests/architecture/test_proto.py regenerates and compares it.
proto: environment
	@$(RUN) -m grpc_tools.protoc -Iproto --python_out=fluss_lab/rpc --pyi_out=fluss_lab/rpc proto/fluss_api.proto

# What builds, tests and the demo leave behind; never a lab that somebody opened: it may hold their data.
clean:
	@rm -rf build dist demo cluster-demo .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log *.egg-info
	@find . -name '.venv*' -prune -o -type d -name __pycache__ -exec rm -rf {} +

# The environment too: the next target makes it again.
distclean: clean
	@rm -rf .venv .venv-maven .venv-readers .venv-browser

environment:
	@sh tools/environment.sh "$(PYTHON)"

help:
	@echo "make demo | cluster-demo | test | check | mutants | campaign | maven | beyond | browser | bench | docs | lab | format | lock | proto | clean | distclean    [PYTHON=python3.12]"
