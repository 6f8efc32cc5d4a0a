# Everything starts here: `make up` runs paddock, `make test` proves it. Both set up what they need.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# The set-up is done again when a lock file changed, and not otherwise.
READY  := $(VENV)/.ready-$(shell cat requirements/dev.lock pyproject.toml | cksum | cut -d' ' -f1)
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help setup up test test-slow test-all test-chaos sim lint fmt screenshots docs contract cluster test-cluster cluster-down chart-test image release-plan release-notes release bench lock clean

help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv with all that running, testing and measuring need

$(READY): requirements/dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("paddock needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Choose another with: make PYTHON=python3.12 ...")'
	@echo "setup: installing the locked dependencies into $(VENV) (once; about a minute)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# The lock names every dependency. Without --no-deps, pip resolves extras such as psycopg[pool] anew and refuses a newer release.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@rm -f $(VENV)/.ready-* && touch $@
	@echo "setup: done"

up: setup ## Run paddock on this machine, with its own PostgreSQL (ARGS="--help" for its options)
	@exec $(BIN)/paddock up $(ARGS)

test: setup ## Run the tests, in some five minutes (ARGS="-k name" to choose)
	@$(BIN)/python -m pytest -n 4 --dist worksteal -m "not slow" $(ARGS)

test-slow: setup ## Run those that start, kill or starve whole servers, a browser, a fuzzer
	@$(BIN)/python -m pytest -n 3 --dist worksteal -m slow --ignore tests/cluster $(ARGS)

test-all: export PADDOCK_TEST_EVERY_POSTGRES = 1
test-all: test test-slow ## Both, with the store on every PostgreSQL of this machine

test-chaos: export PADDOCK_TEST_CHAOS = 1
test-chaos: setup ## Break everything there is to break in `paddock up`, for some three minutes
	@$(BIN)/python -m pytest tests/http/test_chaos.py $(ARGS)

sim: setup ## Prove the promises on many seeds of the simulator (ARGS="--seeds 0..19")
	@$(BIN)/paddock sim run $(or $(ARGS),--seeds 0..199)

lint: setup ## Check style, types and layers
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

fmt: setup ## Format the code and fix what can be fixed
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

screenshots: export PADDOCK_REQUIRE_BROWSER = 1
screenshots: setup ## Picture the dashboard in a browser, into build/screenshots (ARGS=folder for another)
	@PADDOCK_SCREENSHOTS=$(or $(ARGS),build/screenshots) $(BIN)/python -m pytest tests/dashboard/test_screenshots.py

docs: setup ## Write the parts of docs/ that come from the code
	@$(BIN)/python -m paddock.docs

contract: ## Fetch GitHub's own description and webhook examples (npm); the tests use them where they are
	@npm ci --prefix tests/contract --no-audit --no-fund --loglevel=error

cluster: setup ## Start a real Kubernetes on this machine (the first time it is built, some 20 minutes)
	@$(BIN)/python -m tools.cluster up $(ARGS)

test-cluster: export PADDOCK_REQUIRE_CLUSTER = 1
test-cluster: setup ## Run the tests that need it
	@$(BIN)/python -m pytest tests/cluster $(ARGS)

cluster-down: setup ## Stop it
	@$(BIN)/python -m tools.cluster down $(ARGS)

chart-test: export PADDOCK_REQUIRE_HELM = 1
chart-test: export PADDOCK_REQUIRE_PROMTOOL = 1
chart-test: setup ## Check the chart, its policies and alerts; on the cluster too, where one runs
	@$(BIN)/python -m tools.cluster build helm
	@$(BIN)/python -m pytest tests/deploy tests/cluster/test_chart_objects.py $(ARGS)

image: setup ## Make the image from Debian's packages, without a registry: dist/paddock.tar
	@mkdir -p dist && $(BIN)/python -m tools.image build dist/paddock.tar $(ARGS)

release-plan: setup ## Say what would be released, and why (ARGS="--json" for programs)
	@$(BIN)/python -m tools.release plan $(ARGS)

release-notes: setup ## Write the changelogs of what would be released
	@$(BIN)/python -m tools.release notes

release: setup ## Write its versions, pins and changelogs, to be committed and tagged
	@$(BIN)/python -m tools.release apply

bench: setup ## Measure beside peers (ARGS="claims --quick")
	@$(BIN)/python -m bench $(ARGS)

lock: setup ## Resolve the dependencies anew and write the lock files
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links --upgrade pyproject.toml -o requirements/run.lock
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links --upgrade pyproject.toml --group dev --group bench -o requirements/dev.lock
	@! grep -n '://' requirements/*.lock

clean: ## Remove what make made
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
