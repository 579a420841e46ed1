# Development tasks. Each target installs what it needs: a new machine needs python3 (3.11 or newer) and make only.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready
JOBS ?= 2

.PHONY: demo test lint types bench docs clean

# Convert a trained network, check that both runtimes agree, and measure its accuracy in each.
demo: $(READY)
	@mkdir -p build
	$(BIN)/onnx2tfl examples/digits.onnx -o build/digits.tflite --check
	$(BIN)/python examples/demo.py build/digits.tflite

test: $(READY)
	$(BIN)/python -m pytest -q -n $(JOBS)

lint: $(READY)
	$(BIN)/ruff check --output-format concise .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/python tools/typecheck.py

# Time, memory and latency, compared with their limits; writes 1.5 GB to a temporary folder and removes it.
bench: $(READY)
	$(BIN)/python tools/bench.py
	$(BIN)/python tools/bench_report.py

# The coverage tables, from the mapping rules.
docs: $(READY)
	@mkdir -p docs
	$(BIN)/onnxtfl ops > docs/ops.md

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,lint]'
	@touch $(READY)
