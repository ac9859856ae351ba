# Two commands do everything on a fresh machine: `make demo` and `make test`.
#
#   make test        the suite, in about four minutes on two idle cores
#   make test-quick  the documents and the heart of the registry: no model, in one minute
#   make test-more   what is slow and needs only PyPI and npm: other servers, deep searches, stories, kill -9
#   make test-all    everything, also what needs Debian packages, other environments or 33 GiB of disk
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALLED = $(VENV)/.installed

.PHONY: env demo test test-quick test-more test-all check generate dist bench bench-quick clean

env: $(INSTALLED)

# To compile all packages takes a minute of processor time, most of it for modules that nothing imports.
define install
$(PYTHON) -m venv $(VENV)
$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt --editable '.[$(EXTRAS)]'
@du -sh $(VENV)
touch $@
endef

# The demo needs what a user of `reg export` needs, little more than half of what the tests need.
$(VENV)/.demo: EXTRAS = export,evaluate,run
$(INSTALLED): EXTRAS = dev
$(VENV)/.demo: pyproject.toml setup.py constraints.txt
	$(install)

# Compiled here, once: the workers of the tests start together, and each would compile these for itself.
$(INSTALLED): pyproject.toml setup.py constraints.txt
	$(install)
	$(BIN)/python -c 'import onnxruntime.quantization, onnxscript, peft'

demo: $(VENV)/.demo
	$(BIN)/python examples/demo.py

# What a test starts again and again is compiled once. Each core has a worker, so none needs more threads.
unexport PYTHONDONTWRITEBYTECODE
test test-quick test-more test-all: export OMP_NUM_THREADS ?= 1
QUICK = tests/schema $(addprefix tests/registry/,log search transfer test_promote.py test_repair.py test_rollouts.py)
PYTEST = $(BIN)/python -m pytest -n auto --dist worksteal --durations=10

test: env
	$(PYTEST) -m 'not large and not more'

test-quick: env
	$(PYTEST) -m 'not large and not more' $(QUICK)

test-more: env
	$(PYTEST) -m 'more and not large' --hypothesis-profile=more

test-all: env
	$(PYTEST) -rs --hypothesis-profile=full

check: env
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/support/prose.py
	$(BIN)/python tests/support/budgets.py
	$(BIN)/python -m onnxreg.cli.reference --check

generate: env
	$(BIN)/python -m onnxreg.cli.reference
	PYTHONPATH=tests $(BIN)/python tests/support/tasks/table.py --page

dist: env
	$(BIN)/python .ci/dist.py dist

bench: env
	PYTHONPATH=tests:examples $(BIN)/python -m benchmarks.run $(GROUPS)

bench-quick:
	$(MAKE) bench GROUPS=quick

clean:
	rm -rf $(VENV) .cache build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
