# Two commands do everything: `make demo` and `make test`. Each target installs what it needs.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
WORKERS ?= 2
ARGS ?=
N ?= 100
CHAOS_MINUTES ?= 60
CHAOS_SEED ?=
CHAOS_SPOKES ?= 4
REPLICAS ?= 1
INPUTS ?= 1000000
REPOSITORY ?=
IMAGE ?= knfleet
TO ?= dist

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: install
install: $(READY) ## make the virtual environment in .venv

$(READY): requirements/bootstrap.txt requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; name it with: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { \
	  echo "python3 cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	@$(BIN)/uv pip sync -q --python $(BIN)/python --require-hashes requirements/bootstrap.txt requirements/dev.txt
	@$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: demo
demo: $(READY) ## show the product on real clusters on this machine (ARGS=--keep leaves it running)
	@$(BIN)/knfleet demo $(ARGS)

RUN := $(BIN)/python -m tests.support.run

.PHONY: test
test: check ground chromium ## run the checks and the tests that every change must pass (about ten minutes)
	$(RUN) -m "not full and not soak" -n $(WORKERS) --dist loadgroup $(ARGS)

.PHONY: unit
unit: $(READY) ## run the unit tests alone (PYTHON=python3.13 make unit: with another Python, in a new .venv)
	$(RUN) -m "not full and not soak" -n $(WORKERS) --dist loadgroup tests/unit $(ARGS)

.PHONY: test-full
test-full: $(READY) ground chromium ## run the tests that take longer: documentation pages, chart, Knative Operator, many kills
	$(RUN) -m full -n $(WORKERS) --dist loadgroup $(ARGS)

.PHONY: soak
soak: $(READY) ground ## run the tests that need a quiet machine, then chaos and scale (hours)
	$(RUN) -m soak -n 0 $(ARGS)
	HYPOTHESIS_PROFILE=random $(BIN)/pytest -q -n $(WORKERS) -m "not full" tests/unit
	@$(MAKE) chaos chaos-works chaos-fleet scale

.PHONY: e2e
e2e: $(READY) ground ## install Knative from a hub on a spoke: dev clusters, or yours by KUBECONFIG and SPOKE_HOST_KUBECONFIG
	$(BIN)/pytest -v tests/e2e $(ARGS)

.PHONY: faults
faults: $(READY) ground ## kill the operator at 90 other moments each time (KNFLEET_TEST_SEED=7: at the same)
	KNFLEET_TEST_KILLS=90 KNFLEET_TEST_SEED=$${KNFLEET_TEST_SEED:-$$RANDOM} \
	  $(BIN)/pytest -n $(WORKERS) --dist loadgroup tests/fleet/test_knative_kills.py $(ARGS)

.PHONY: chaos
chaos: $(READY) ground ## random faults on a hub and 4 spokes, an hour long (CHAOS_MINUTES=10 CHAOS_SEED=7: shorter, again)
	@$(BIN)/python -m tests.chaos.run --minutes $(CHAOS_MINUTES) --spokes $(CHAOS_SPOKES) --seed "$(CHAOS_SEED)"

.PHONY: chaos-works
chaos-works: $(READY) ground ## random faults on a hub and 3 agents while works change, 5 minutes long (CHAOS_SEED=7: again)
	@$(BIN)/python -m tests.chaos.works.run --seed "$(CHAOS_SEED)"

.PHONY: chaos-fleet
chaos-fleet: $(READY) ground ## random faults on tunnels, drivers, placements, add-ons and Knative fleets too, 5 minutes long
	@$(BIN)/python -m tests.chaos.fleet.run --seed "$(CHAOS_SEED)"

.PHONY: peers
peers: $(READY) ground ## compare all samples with the Knative Operator, and record what was compared
	KNFLEET_PEERS=all $(BIN)/pytest -s tests/peers $(ARGS)

.PHONY: peers-ocm
peers-ocm: $(READY) ground ## run hub and agents together with those of Open Cluster Management
	$(BIN)/pytest -v -n 0 tests/peers/test_ocm_*.py $(ARGS)

.PHONY: serve
serve: $(READY) ground ## build Knative's programs, install them on a cluster that runs them, and ask a function (needs root)
	@$(BIN)/uv pip install -q --python $(BIN)/python --require-hashes -r requirements/serve.txt
	$(BIN)/pytest -v -s -n 0 tests/serve $(ARGS)

.PHONY: fuzz
fuzz: $(READY) ## give each reader of foreign input a million random inputs (INPUTS=10000: fewer)
	@$(BIN)/uv pip install -q --python $(BIN)/python --require-hashes -r requirements/fuzz.txt
	@$(BIN)/python -m tests.fuzz.run --inputs $(INPUTS) $(ARGS)

.PHONY: check
check: $(READY) ## lint, types, layers
	@$(BIN)/ruff format --check --quiet . || { echo "run: make fmt" >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/pyright --warnings
	@$(BIN)/lint-imports --no-logo 2>&1 | tail -n 4; exit $${PIPESTATUS[0]}

.PHONY: fmt
fmt: $(READY) ## format and fix what can be fixed
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

.PHONY: ground
ground: $(READY) ## find or build etcd, kube-apiserver, kube-controller-manager, kubectl
	@$(BIN)/knfleet dev binaries --quiet

.PHONY: chromium
chromium: ## find the browser that tests look at the dashboard with, or install it
	@command -v chromium chromium-browser google-chrome >/dev/null && exit 0; \
	  if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	    apt-get install -y -q --no-install-recommends chromium >/dev/null 2>&1 \
	      || { apt-get update -q >/dev/null && apt-get install -y -q --no-install-recommends chromium >/dev/null; }; \
	  else \
	    echo "no chromium on the PATH; install it, on Debian by: sudo apt-get install chromium" >&2; exit 1; \
	  fi

.PHONY: chart
chart: $(READY) ## write the generated files of the Helm chart again
	@$(BIN)/python -m knfleet.install.chart charts/knfleet

.PHONY: docs
docs: $(READY) reasons ## write the generated pages of the documentation again
	@$(BIN)/python -m knfleet.cli.reference docs/commands.md

.PHONY: reasons
reasons: $(READY) ## write docs/reasons.md again
	@$(BIN)/python -m knfleet.view.reasons.catalog docs/reasons.md

.PHONY: rights
rights: $(READY) ## write again which rights the hub gets on joined clusters, from the release files
	@$(BIN)/python -m knfleet.operator.spoke_access.packaged src/knfleet/operator/spoke_access/knative_rights.json

.PHONY: release
release: $(READY) ## make the files of a release in dist, from the tag of HEAD (REPOSITORY=https://… IMAGE=…)
	@REPOSITORY="$(REPOSITORY)" IMAGE="$(IMAGE)" $(BIN)/python -m tools.release --to $(TO) $(ARGS)

.PHONY: site
site: $(READY) ## build the site of the documentation below site/
	@$(BIN)/zensical build --strict

.PHONY: recording
recording: $(READY) ground ## type commands on real clusters and draw what they print, for the README
	@$(BIN)/python -m tools.recording docs/images

.PHONY: bench
bench: $(READY) ground ## measure beside the Knative Operator and a bare client; writes docs/benchmarks (more than an hour)
	@$(BIN)/python -m bench.suite $(ARGS)

.PHONY: bench-client
bench-client: $(READY) ground ## measure the client: CPU per apply, list and watch
	@$(BIN)/knfleet dev up --quiet --name bench
	@KUBECONFIG="$$($(BIN)/knfleet dev kubeconfig --name bench)" $(BIN)/python -m bench.client $(ARGS); \
	  code=$$?; $(BIN)/knfleet dev down --name bench >/dev/null; exit $$code

.PHONY: bench-knative
bench-knative: $(READY) ground ## measure the operator beside the Knative Operator, turn by turn
	@$(BIN)/python -m bench.knative $(ARGS)

.PHONY: bench-works
bench-works: $(READY) ground ## measure the delivery of works beside Open Cluster Management (half an hour)
	@$(BIN)/python -m bench.fleet.works $(ARGS)

.PHONY: bench-placements
bench-placements: $(READY) ground ## measure clusters and Placements of a hub beside Open Cluster Management (ten minutes)
	@$(BIN)/python -m bench.fleet.placements $(ARGS)

.PHONY: bench-timeline
bench-timeline: $(READY) ground ## show every kind of request of an installation, and who uses how much CPU
	@$(BIN)/python -m bench.knative.timeline --floor $(ARGS)

.PHONY: scale
scale: $(READY) ground ## one operator and N fake spokes: install, restart, change, flap, idle (N=1000: half an hour)
	@$(BIN)/python -m bench.scale --spokes $(N) --replicas $(REPLICAS) $(ARGS)

.PHONY: bench-fleets
bench-fleets: $(READY) ground ## measure changes by a KnativeFleet in waves beside changes by hand (N=1000: an hour)
	@$(BIN)/python -m bench.fleets --spokes $(N) $(ARGS)

.PHONY: requirements
requirements: $(READY) ## pin the newest dependencies again
	@set -e; compile="$(BIN)/uv pip compile -q -U --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-emit-index-url --no-emit-find-links"; \
	$$compile pyproject.toml --extra grpc -o requirements/runtime.txt; \
	$$compile pyproject.toml --extra grpc requirements/dev.in -c requirements/runtime.txt -o requirements/dev.txt; \
	$$compile requirements/bootstrap.in -o requirements/bootstrap.txt; \
	$$compile requirements/serve.in -o requirements/serve.txt; \
	$$compile requirements/fuzz.in -o requirements/fuzz.txt

.PHONY: clean
clean: ## remove what the other targets made in this tree
	rm -rf .venv .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist site .cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
