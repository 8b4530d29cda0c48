# One command for each thing; the only need is Python 3.11 or newer (PYTHON=/path/to/python chooses one).

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUNS := $(VENV)/.runs
NODE_STAMP := sdk/node/node_modules/.package-lock.json
WORKERS ?= 4

# The first that was built with profile-guided optimization, or else the first: the services are as fast as their
# interpreter. It says of itself how it was built, but for those of distributions, which all build so.
PYTHONS := python3.13 python3.12 python3.11 python3 python /usr/bin/python3
FITS := import ensurepip, sys, sysconfig, venv; how = sysconfig.get_config_var('CONFIG_ARGS') or ''; \
  optimized = sys.prefix == '/usr' or '--enable-optimizations' in how; \
  sys.exit(sys.version_info < (3, 11) or sys.argv[1] == 'optimized' and not optimized)

# The tests start hundreds of processes: none compiles what another has compiled.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input --constraint constraints.txt

# Node is that of the machine, or else comes with the virtual environment.
NPM := $(BIN)/python -m tests.support.node npm

.DEFAULT_GOAL := help
.PHONY: help install demo dev test lint types node proto proto-check reference unit integration fuzz soak rolling bench bench-peers clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## Make the virtual environment (again only when a dependency has changed)

demo: $(RUNS) ## Watch an order workflow survive a kill -9
	@$(BIN)/runr demo

dev: $(RUNS) ## Run the whole engine on this machine until Ctrl-C
	@$(BIN)/runr dev

# Tests wait a good deal, so there are more workers than cores; the checks and the TypeScript SDK run beside them.
test: lint $(NODE_STAMP) ## Everything that CI checks: style, types, layers, protos, all tests, in WORKERS (4) processes, accidents last in 2
	@checks=$$(mktemp) && trap 'rm -f "$$checks"' EXIT; \
	  $(MAKE) --no-print-directory --keep-going types proto-check node >"$$checks" 2>&1 & checking=$$!; \
	  $(BIN)/python -m pytest --cache-clear -n $(WORKERS) --dist worksteal --ignore=tests/chaos; tested=$$?; \
	  $(BIN)/python -m pytest -n 2 --dist worksteal tests/chaos; accidents=$$?; \
	  wait $$checking; checked=$$?; cat "$$checks"; \
	  test $$tested -ne 0 || tested=$$accidents; \
	  if test $$tested -eq 1 && test $$accidents -le 1; then $(BIN)/python -m tests.support.once_more; tested=$$?; fi; \
	  test $$tested -eq 0 || echo "the tests have failed" >&2; \
	  test $$checked -eq 0 || echo "the types, the protos or the TypeScript SDK are wrong" >&2; \
	  exit $$((tested || checked))

lint: $(STAMP) ## Style of the Python code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## Types, strictly
	$(BIN)/mypy

node: $(NODE_STAMP) ## The TypeScript SDK: compile it, and its tests
	@$(NPM) test --silent

unit: $(STAMP) ## Only the tests without I/O
	$(BIN)/python -m pytest tests/unit sdk/python/tests

integration: $(STAMP) ## Only the tests with one real dependency
	$(BIN)/python -m pytest tests/integration

fuzz: $(STAMP) ## Random input to every route, method and parser for FUZZ_SECONDS (3600)
	FUZZ_SECONDS=$${FUZZ_SECONDS:-3600} $(BIN)/python -m pytest tests/fuzz

soak: $(STAMP) ## Random episodes for RUNR_SOAK_SECONDS (600), then RUNR_SOAK_RUNS (1000) in a storm, from RUNR_SOAK_SEED on
	RUNR_SOAK_SECONDS=$${RUNR_SOAK_SECONDS:-600} $(BIN)/python -m pytest tests/model -k soak -s
	RUNR_SOAK_RUNS=$${RUNR_SOAK_RUNS:-1000} $(BIN)/python -m pytest tests/chaos/test_two_replicas.py -s

rolling: $(STAMP) ## Replace all of two replicas each under RUNR_ROLLING_RATE (200) requests a second for RUNR_ROLLING_SECONDS (60)
	RUNR_ROLLING_SECONDS=$${RUNR_ROLLING_SECONDS:-60} $(BIN)/python -m pytest tests/chaos/test_rolling_restart.py -s

bench: $(STAMP) $(NODE_STAMP) ## Measure speed: docs/performance.md; OPTIONS="--only W1,W2 --runs 1" for less
	$(BIN)/python -m tests.bench $(OPTIONS)

bench-peers: $(STAMP) $(NODE_STAMP) ## The same beside Restate, DBOS and OpenWorkflow, which it installs below build/
	$(BIN)/python -m tests.bench --peers all $(OPTIONS)

proto: $(STAMP) ## Generate the code of the protos
	$(BIN)/python proto/generate.py

proto-check: $(STAMP) ## The generated code is that of the protos
	@out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && $(BIN)/python proto/generate.py "$$out" && \
	  diff -r --exclude=__pycache__ "$$out" proto/gen/python || \
	  { echo "proto/gen/python differs from proto/: run make proto" >&2; exit 1; }

reference: $(STAMP) ## Write the reference pages, from docstrings, protos and the declarations of routes and commands
	$(BIN)/python -m sdk.reference
	$(BIN)/python -m services.cli.command_page > docs/reference/command-line.md
	$(BIN)/python proto/reference.py
	$(BIN)/python -m services.cli.http_page

clean: ## Remove the environment and what tools have cached
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis sdk/node/node_modules sdk/node/build sdk/node/dist

$(STAMP): $(RUNS)
	@echo "installing what tests and checks need into $(VENV), this once"
	@$(PIP) --no-build-isolation -e proto -e '.[dev]' -e 'sdk/python[connect]'
	@touch $(STAMP)

# Whoever only wants to see it run need not wait for what tests and checks need.
$(RUNS): pyproject.toml proto/pyproject.toml sdk/python/pyproject.toml constraints.txt
	@test -x $(BIN)/python || { \
	  for built in optimized any; do \
	    for python in $(or $(PYTHON),$(PYTHONS)); do \
	      "$$python" -c "$(FITS)" "$$built" 2>/dev/null || continue; \
	      echo "making $(VENV) with $$("$$python" -c 'import sys; print(sys.executable)')"; \
	      exec "$$python" -m venv $(VENV); \
	    done; \
	  done; \
	  echo "no Python 3.11 or newer with venv was found; name one: make PYTHON=/path/to/python" >&2; exit 1; }
	@echo "installing the services, Postgres, NATS and the SDK into $(VENV), this once: it takes about a minute"
	@# The build backend comes from the constraints too, so builds run without isolation.
	@$(PIP) hatchling editables
	@$(PIP) --no-build-isolation -e proto -e '.[mcp]' -e 'sdk/python[connect]'
	@touch $(RUNS)

$(NODE_STAMP): sdk/node/package.json sdk/node/package-lock.json | $(STAMP)
	@$(NPM) ci --silent --no-audit --no-fund
	@touch $@
