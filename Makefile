# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALLED = $(VENV)/.installed

.PHONY: env demo test test-all check generate dist bench clean

env: $(INSTALLED)

$(INSTALLED): pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable '.[dev]'
	touch $@

demo: env
	$(BIN)/python examples/demo.py

test: env
	$(BIN)/python -m pytest -n auto --dist loadfile -m 'not large'

test-all: env
	$(BIN)/python -m pytest -n auto --dist loadfile

check: env
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/support/prose.py
	$(BIN)/python -m onnxreg.schema.formats.json_schema --check
	$(BIN)/python -m onnxreg.cli.reference --check

generate: env
	$(BIN)/python -m onnxreg.schema.formats.json_schema
	$(BIN)/python -m onnxreg.cli.reference

dist: env
	$(BIN)/python .ci/dist.py dist

bench: env
	PYTHONPATH=tests:examples $(BIN)/python -m benchmarks.run $(GROUPS)

clean:
	rm -rf $(VENV) .cache build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
