# Everything a bare machine with Python, pip, make and gcc needs. `make demo` and `make test` do all the set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRA := dev
CONSTRAINTS := constraints.txt
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS)

.PHONY: demo test test-all test-portable test-release check docs bench scale clean

demo: $(VENV)/.cli
	$(BIN)/adaptive-ot demo --output demo

# A worker needs more than a gigabyte of memory.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal

test: $(VENV)/.$(EXTRA) $(VENV)/.browser
	$(PYTEST)

test-all: $(VENV)/.dev $(VENV)/.browser
	$(PYTEST) -m "" --hypothesis-profile full

# SETTINGS="oldest elsewhere" for some of them.
test-portable: $(VENV)/.dev
	$(BIN)/python tests/portable.py $(SETTINGS)

# The wheel and the sdist in empty environments. SETTINGS="3.12" for one version of Python.
test-release: $(VENV)/.dev
	$(BIN)/python tests/release.py $(SETTINGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

# The site, in the folder site; warnings are errors.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "Open site/index.html by way of: $(BIN)/python -m http.server --directory site"

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/rivals.py
	$(BIN)/python benchmarks/entropic.py
	$(BIN)/python benchmarks/batch.py
	$(BIN)/python benchmarks/path.py

scale: $(VENV)/.cli
	$(BIN)/python benchmarks/scale.py

$(VENV)/.venv:
	$(PYTHON) -m venv $(VENV)
	touch $@

# One stamp for every extra, renewed when the dependencies change.
$(VENV)/.%: $(VENV)/.venv pyproject.toml $(CONSTRAINTS)
	$(PIP) --editable ".[$*]"
	touch $@

# Reports are tested in Chromium. Where none can be installed, these tests are skipped.
APT := $(shell test "$$(id -u)" = 0 || echo sudo -n) env DEBIAN_FRONTEND=noninteractive apt-get -qq
$(VENV)/.browser: $(VENV)/.venv
	@command -v chromedriver > /dev/null \
	|| { $(APT) update && $(APT) install --yes --no-install-recommends chromium chromium-driver; } > /dev/null 2>&1 \
	|| echo "There is no Chromium, and none could be installed: tests in a browser are skipped."
	@touch $@

clean:
	rm -rf $(VENV) build demo site
