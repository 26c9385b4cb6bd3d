# What a person types here. `make` alone prints the list.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STACK := .stack
TESTS ?= $(wildcard tests/unit tests/contracts tests/integration tests/e2e tests/chaos)
# Three at a time on two cores: tests wait for each other's processes more than they compute.
WORKERS ?= 3
PYTEST_ARGS ?=
# The virtual environment is ours, whoever runs make.
export PIP_ROOT_USER_ACTION := ignore
# An index that does not answer for a moment is no reason to fail.
export PIP_DEFAULT_TIMEOUT := 60
export PIP_RETRIES := 9

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Each stamp stands for a set of extras, and is made anew when the requirements change.
RUN_STAMP := $(VENV)/.installed-run
DEV_STAMP := $(VENV)/.installed-dev
BENCH_STAMP := $(VENV)/.installed-bench
$(RUN_STAMP): EXTRAS := client,services,model,mcp
$(DEV_STAMP): EXTRAS := client,services,model,local,mcp,dev,docker,kubernetes,stack
$(BENCH_STAMP): EXTRAS := client,services,model,local,mcp,dev,docker,kubernetes,stack,bench

# The lock: two makes in one clone take turns, and the second finds the work done.
$(RUN_STAMP) $(DEV_STAMP) $(BENCH_STAMP): pyproject.toml constraints.txt
	@mkdir -p $(VENV)
	@exec 9> $(VENV)/.lock; flock 9; \
	if [ $@ -nt pyproject.toml ] && [ $@ -nt constraints.txt ]; then exit 0; fi; \
	if [ ! -x $(VENV)/bin/pip ]; then \
		$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
			|| { echo "$(PYTHON) is too old: 3.11 or newer is needed, e.g. make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }; \
		echo "making $(VENV)"; \
		$(PYTHON) -m venv $(VENV); \
	fi; \
	echo "installing longstride[$(EXTRAS)] into $(VENV) (the first time this takes minutes)"; \
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'; \
	touch $@

.PHONY: install venv
install: $(DEV_STAMP) ## Make .venv with everything that development and tests need
venv: install

.PHONY: system-packages
system-packages: $(DEV_STAMP) ## Install RabbitMQ and bubblewrap with apt where they are missing (as root)
	@$(PY) -m infra.native install

.PHONY: demo
demo: $(RUN_STAMP) ## Run three real tasks on the embedded stack: nothing needed but Python
	@$(VENV)/bin/longstride demo

.PHONY: up
up: system-packages ## Start RabbitMQ, PostgreSQL and S3 as native processes in .stack
	@$(PY) -m infra.native up --folder $(STACK) --detach

.PHONY: down
down: ## Stop them; their data stays in .stack
	@if [ -x $(PY) ]; then $(PY) -m infra.native down --folder $(STACK); fi

.PHONY: test
test: system-packages ## Run all tests but the GPU's on a throw-away stack, e.g. make test TESTS=tests/unit PYTEST_ARGS=-x
	@echo "testing $(TESTS)"
	@$(PY) -m infra.native run -- $(PY) -m pytest -n $(WORKERS) --dist worksteal $(TESTS) $(PYTEST_ARGS)

.PHONY: lint
lint: $(DEV_STAMP) ## Check style, types and the direction of imports
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy -p infra.native
	$(VENV)/bin/lint-imports

.PHONY: bench
bench: $(BENCH_STAMP) system-packages ## Measure step overhead beside DBOS and LangGraph on a throw-away stack
	@$(PY) -m infra.native run -- $(PY) -m tests.benchmarks

.PHONY: compose-test
compose-test: system-packages ## Bring the compose stack up for real and run integration and e2e tests against it
	@bash infra/compose/test.sh

.PHONY: clean
clean: down ## Remove .venv, caches and the stack's data
	rm -rf $(VENV) $(STACK) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
