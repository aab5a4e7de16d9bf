# Everything a bare machine with Python, pip, make and gcc needs. `make demo` and `make test` do all the set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test check bench scale clean

demo: $(VENV)/.cli
	$(BIN)/adaptive-ot demo --output demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

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
$(VENV)/.%: $(VENV)/.venv pyproject.toml constraints.txt
	$(PIP) --editable ".[$*]"
	touch $@

clean:
	rm -rf $(VENV) demo
