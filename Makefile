# Everything starts here: `make up` runs paddock, `make test` proves it. Both set up what they need.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# The set-up is done again when a lock file changed, and not otherwise.
READY  := $(VENV)/.ready-$(shell cat requirements/dev.lock pyproject.toml | cksum | cut -d' ' -f1)
LOCK   := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate \
          --no-emit-index-url --no-emit-find-links --upgrade
# Environments beside .venv, each from the lock file of its name.
VENVS  := build/venvs
# What `make test-lowest` and `make test-pythons` run: the tests that use other packages most.
QUICK  := tests/store/test_database.py tests/store/test_matching.py tests/store/test_reading.py \
          $(addprefix tests/http/test_,api.py dispatch.py forged_tokens.py github_client.py listener.py pods.py receiver.py terminal.py) \
          $(addprefix tests/unit/test_,commands.py github_settings.py kube_crd.py kube_pods.py settings.py webhooks.py)
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help setup up test test-slow test-all test-chaos test-lowest test-pythons sim mutants fuzz lint hooks commits audit fmt screenshots docs site contract cluster test-cluster cluster-down chart-test runner image release-plan release-notes release bench lock clean

help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv with all that running, testing and measuring need

$(READY): requirements/dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("paddock needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Choose another with: make PYTHON=python3.12 ...")'
	@echo "setup: installing the locked dependencies into $(VENV) (once; about a minute)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# The lock names every dependency. Without --no-deps, pip resolves extras such as psycopg[pool] again and refuses a newer release.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@rm -f $(VENV)/.ready-* && touch $@
	@echo "setup: done"

$(VENVS)/%/.ready: requirements/%.lock $(READY)
	@echo "setup: installing requirements/$*.lock into $(@D)"
	@rm -rf $(@D) && $(BIN)/python -m venv --without-pip $(@D)
	@$(BIN)/uv pip install --quiet --python $(@D)/bin/python --only-binary :all: --require-hashes --no-deps -r $<
	@touch $@

up: setup ## Run paddock on this machine, with its own PostgreSQL (ARGS="--help" for its options)
	@exec $(BIN)/paddock up $(ARGS)

test: setup ## Run the tests, in some four minutes (ARGS="-k name" to choose)
	@$(BIN)/python -m pytest -n 4 --dist worksteal -m "not slow" $(ARGS)

test-slow: setup ## Run those that start, kill or starve whole servers, a browser, a fuzzer
	@$(BIN)/python -m pytest -n 3 --dist worksteal -m slow --ignore tests/cluster $(ARGS)

test-all: export PADDOCK_TEST_EVERY_POSTGRES = 1
test-all: test test-slow ## Both, with the store on every PostgreSQL of this machine

test-chaos: export PADDOCK_TEST_CHAOS = 1
test-chaos: setup ## Break everything there is to break in `paddock up`, for some three minutes
	@$(BIN)/python -m pytest tests/http/test_chaos.py $(ARGS)

test-lowest: $(VENVS)/lowest/.ready ## Run quick tests with the lowest versions that pyproject.toml allows
	@$(BIN)/uv pip install --quiet --python $(<D)/bin/python --no-deps --no-build-isolation --editable .
	@$(<D)/bin/python -m pytest -q -n 4 --dist worksteal -m "not slow" $(or $(ARGS),$(QUICK))

quick:
	@echo $(QUICK)

test-pythons: setup ## Run the same tests on every other Python that pyproject.toml lists
	@$(BIN)/python -m tools.pythons | while read -r version python; do \
	  $(MAKE) test VENV=$(VENVS)/python$$version PYTHON=$$python ARGS="$(or $(ARGS),$(QUICK))" || exit; done

sim: setup ## Prove the promises on many seeds of the simulator (ARGS="--seeds 0..19")
	@$(BIN)/python -m simulator run $(or $(ARGS),--seeds 0..199)

mutants: setup ## Remove one guard of the product at a time; the simulator must notice (ARGS="--large")
	@$(BIN)/python -m simulator mutants $(ARGS)

fuzz: export PADDOCK_FUZZ_SECONDS = $(or $(SECONDS),20)
fuzz: export PADDOCK_FUZZ_SEED = $(SEED)
fuzz: setup ## Send what no author meant to write, 20 s for each kind of input (SECONDS=60 SEED=7)
	@$(BIN)/python -m pytest tests/fuzz -q -p no:cacheprovider --tb=short --show-capture=no \
	  --timeout $$(($(or $(SECONDS),20) + 600)) $(ARGS)

lint: setup ## Check style, types, layers and declared dependencies
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/deptry src

hooks: setup ## Install git hooks that check style and commit messages (optional)
	@$(BIN)/pre-commit install

commits: setup ## Check the messages of all commits since they are conventional
	@$(BIN)/python -m tools.commits history

audit: $(VENVS)/audit/.ready ## Look for known vulnerabilities of the dependencies (asks a service on the network)
	@$(BIN)/python -m tools.audit $(<D)/bin/pip-audit

fmt: setup ## Format the code and fix what can be fixed
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

screenshots: export PADDOCK_REQUIRE_BROWSER = 1
screenshots: setup ## Picture the dashboard in a browser, into build/screenshots (ARGS=folder for another)
	@PADDOCK_SCREENSHOTS=$(or $(ARGS),build/screenshots) $(BIN)/python -m pytest tests/dashboard/test_screenshots.py

docs: setup ## Write the parts of docs/ that come from the code
	@$(BIN)/python -m tools.docs

site: $(VENVS)/site/.ready ## Make a site of the pages, in build/site; a link that leads nowhere fails it
	@rm -rf build/site
	@$(<D)/bin/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going --nitpicky \
	  --conf-dir tools/site --doctree-dir build/doctrees . build/site
	@echo "site: build/site/index.html"

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

runner: setup ## Build github-act-runner, a runner program that is not ours, for tests (once, a minute or two)
	@$(BIN)/python -m tools.cluster build github-act-runner

image: setup ## Make the image from Debian's packages, without a registry: dist/paddock.tar
	@mkdir -p dist && $(BIN)/python -m tools.image build dist/paddock.tar $(ARGS)

release-plan: setup ## Say what would be released, and why (ARGS="--json" for programs)
	@$(BIN)/python -m tools.release plan $(ARGS)

release-notes: setup ## Show the section of the changelog that a release would write
	@$(BIN)/python -m tools.release notes

release: setup ## Write its versions, pins and changelog, to be committed and tagged
	@$(BIN)/python -m tools.release apply

bench: setup ## Measure beside peers (ARGS="claims --quick")
	@$(BIN)/python -m bench $(ARGS)

lock: setup ## Resolve the dependencies again and write the lock files
	@$(LOCK) pyproject.toml -o requirements/run.lock
	@$(LOCK) pyproject.toml --extra embedded --group dev --group bench -o requirements/dev.lock
	@$(LOCK) pyproject.toml --extra embedded --group test --resolution lowest-direct -o requirements/lowest.lock
	@$(LOCK) --group site -o requirements/site.lock
	@$(LOCK) --group audit -o requirements/audit.lock
	@! grep -n '://' requirements/*.lock

clean: ## Remove what make made
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
