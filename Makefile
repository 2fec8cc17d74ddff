# Everything a fresh machine needs is Python 3.11 or newer, make and a C++ compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
BENCH_ARGS ?=
JOBS ?= 6
RESULTS ?= benchmarks/results/latest.json
LADDER ?= benchmarks/results/ablation.json
WORKERS ?= 2
GRAPHS ?= 10000
JAX_TESTS ?=
JAX_TESTS_ARGS ?=

# The demo needs the package alone; on a machine with an NVIDIA driver also JAX for CUDA.
comma := ,
CUDA := $(if $(shell command -v nvidia-smi 2>/dev/null),cuda13)
EXTRAS ?= test,clients,jaxtests,dev$(addprefix $(comma),$(CUDA))

PACKAGE := $(VENV)/.stamp
STAMP := $(VENV)/.stamp-$(subst $(comma),-,$(EXTRAS))

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow lint format check-people screenshots docs gpu-test bench pages figures fuzz limits faults jax-tests clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(PACKAGE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fusionstitch needs Python 3.11 or newer: run make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.$(if $(CUDA),[$(CUDA)])'
	@touch $@

$(STAMP): $(PACKAGE)
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	@touch $@

setup: $(STAMP) ## build the virtual environment in .venv, with all that tests need

demo: $(PACKAGE) ## stitch the paper's Figure 1 (report and reasons) and a training step (report)
	$(BIN)/fusionstitch report examples/figure1.py:original
	$(BIN)/fusionstitch explain examples/figure1.py:original
	$(BIN)/fusionstitch report examples/transformer.py:train_step

test: lint ## ruff, mypy and pytest, without a GPU and without the slow tests
	JAX_PLATFORMS=cpu $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --ignore tests/people -m "not slow" $(PYTEST_ARGS)

test-slow: $(STAMP) ## the slow tests: leaks, all examples, grown programs, kernels compiled for GPUs
	JAX_PLATFORMS=cpu $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --ignore tests/people -m slow $(PYTEST_ARGS)

lint: $(STAMP) ## ruff and mypy only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## let ruff rewrite the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

PEOPLE := $(VENV)/.people
$(PEOPLE): $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[people]'
	@touch $@

check-people: $(PEOPLE) ## the tests of pages, documentation, notebooks, packages and recipes (pages need chromium and chromium-driver)
	JAX_PLATFORMS=cpu $(BIN)/python -m pytest -q -m people -rs -n $(WORKERS) --dist loadfile --durations=30 $(PYTEST_ARGS) tests/people

PAGES ?= build/pages
screenshots: $(PEOPLE) ## take the pictures of docs/figures that show reports, of pages from a GPU in PAGES
	test -d $(PAGES) || JAX_PLATFORMS=cpu $(BIN)/python -m benchmarks.screenshots write $(PAGES)
	JAX_PLATFORMS=cpu $(BIN)/python -m benchmarks.screenshots take $(PAGES)

docs: $(PEOPLE) ## build the documentation site into build/site
	JAX_PLATFORMS=cpu $(BIN)/python -m sphinx -T -W -n -b html docs build/site

gpu-test: $(STAMP) ## the tests that need an NVIDIA GPU
	JAX_PLATFORMS=cuda,cpu $(BIN)/python -m pytest -q -m gpu $(PYTEST_ARGS)

bench: $(STAMP) ## measure everything against XLA (needs an NVIDIA GPU), and write the pages
	-$(BIN)/python -m benchmarks --jobs $(JOBS) --json $(RESULTS) $(or $(BENCH_ARGS),--suite all)
	$(if $(BENCH_ARGS),,$(MAKE) pages)

pages: $(STAMP) ## write README.md's tables, docs/benchmarks.md, docs/paper.md and docs/figures from the results
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	-$(BIN)/python -m benchmarks.ablation --suite paper --jobs $(JOBS) --json $(LADDER)
	$(BIN)/python -m benchmarks.tables $(RESULTS) $(if $(BEFORE),--before $(BEFORE)) docs/benchmarks.md
	$(BIN)/python -m benchmarks.published README.md docs/benchmarks.md docs/compare.md
	$(BIN)/python -m benchmarks.paper $(RESULTS) $(LADDER) > docs/paper.md
	$(BIN)/python -m benchmarks.plots $(RESULTS)

figures: $(STAMP) ## draw the figures and write the tables of docs/how and docs/architecture.md, from the plans of today
	JAX_PLATFORMS=cpu $(BIN)/python -m benchmarks.figures

fuzz: $(STAMP) ## GRAPHS grown graphs a test, and the other property tests with many more examples
	FUSIONSTITCH_FUZZ=$(GRAPHS) JAX_PLATFORMS=cpu $(BIN)/python -m pytest -q -n $(WORKERS) --hypothesis-profile=fuzz $(PYTEST_ARGS)

limits: $(STAMP) ## write docs/limits.md from the cases of tests/coverage
	JAX_PLATFORMS=cpu $(BIN)/python -m tests.coverage.limits

faults: $(STAMP) ## the fault tests, with a minute of processes on one cache and many more mutants
	JAX_PLATFORMS=cpu FAULTS_KILLS=120 FAULTS_MUTANTS=400 \
	  $(BIN)/python -m pytest -q -s tests/faults $(PYTEST_ARGS)

jax-tests: $(STAMP) ## JAX's own tests under fs.jit; JAX_TESTS=DIR holds them, without it: where to get them
	$(BIN)/python -m tests.jax_tests $(JAX_TESTS) --workers $(WORKERS) $(JAX_TESTS_ARGS)

clean: ## remove the environment and everything built
	rm -rf $(VENV) build dist fusionstitch/runtime/launchers *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
