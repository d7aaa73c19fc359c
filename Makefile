# `make evidence` and `make test` work on a fresh machine with Python 3.11 and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT ?= out/migration-2023q3

.PHONY: evidence test quick lint clean

$(VENV)/core.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	touch $@

$(VENV)/all.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[live,cluster,trend,dev]'
	touch $@ $(VENV)/core.stamp

evidence: $(VENV)/core.stamp
	$(BIN)/zerolayer evidence migration-2023q3 -o $(OUT) --force

test: $(VENV)/all.stamp
	$(BIN)/python -m pytest

quick: $(VENV)/all.stamp
	$(BIN)/python -m pytest -m "not slow"

lint: $(VENV)/all.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) out build *.egg-info
