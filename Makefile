# Development tasks. Each target installs what it needs: a new machine needs python3 (3.11 or newer) and make only.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready
DOCS_READY = $(VENV)/.docs-ready
JOBS ?= 2
MINUTES ?= 10

.PHONY: demo help test soak lint types bench docs clean

# Convert a trained network, check that both runtimes agree, and measure its accuracy in each.
demo: $(READY)
	@mkdir -p build
	$(BIN)/onnx2tfl examples/digits.onnx -o build/digits.tflite --check
	$(BIN)/python examples/demo.py build/digits.tflite

# This list.
help:
	@awk -F: '/^# /{text = text substr($$0, 2)} /^[a-z]+:/{printf "make %-6s%s\n", $$1, text; text = ""} /^$$/{text = ""}' Makefile

# All tests, in two processes (JOBS=2).
test: $(READY)
	$(BIN)/python -m pytest -q -n $(JOBS)

# Random graphs, quantized ones, damaged files, then wrong models for the check, for MINUTES=10 each; continues where the last one stopped (build/soak-*.json).
soak: $(READY)
	@mkdir -p build
	status=0; for kind in graphs quantized mutants damages; do \
	  $(BIN)/python tools/soak.py $$kind --minutes $(MINUTES) --resume build/soak-$$kind.json || status=1; \
	done; exit $$status

# Lint and format.
lint: $(READY)
	$(BIN)/ruff check --output-format concise .
	$(BIN)/ruff format --check .

# mypy --strict on the package.
types: $(READY)
	$(BIN)/python tools/typecheck.py

# Time, memory and latency, compared with their limits, written to docs/benchmarks.md; needs 1.5 GB for a while.
bench: $(READY)
	$(BIN)/python tools/bench.py --page docs/benchmarks.md
	$(BIN)/python tools/bench_report.py

# The documentation: the pages made from the code (docs/ops.md, docs/command-line.md), then the site in build/docs.
docs: $(DOCS_READY)
	$(BIN)/python tools/docs.py

# Remove what the other targets wrote, except .venv.
clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,lint]'
	@touch $(READY)

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $(DOCS_READY)
