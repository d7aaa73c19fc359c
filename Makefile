# `make evidence` and `make test` work on a fresh machine with Python 3.11 and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT ?= out/migration-2023q3

.PHONY: evidence test quick lint gate clean

$(VENV)/core.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	touch $@

$(VENV)/all.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[live,cluster,trend,fit,dev]'
	touch $@ $(VENV)/core.stamp

evidence: $(VENV)/core.stamp
	# 0 safe, 1 not safe, 3 not enough evidence: each a finding, and the report is written.
	$(BIN)/zerolayer evidence migration-2023q3 -o $(OUT) --force || test $$? -eq 1 -o $$? -eq 3

test: $(VENV)/all.stamp
	$(BIN)/python -m pytest -n auto --dist loadfile

quick: $(VENV)/all.stamp
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not slow"

lint: $(VENV)/all.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Exact tiers always. Wall clock against the last commit on main: inconclusive is allowed, a base
# that cannot be measured (4, e.g. the first commit) too; a regression must show twice to fail.
gate: $(VENV)/all.stamp
	$(BIN)/zerolayer gate --tier 0,1
	for try in 1 2; do \
	  $(BIN)/zerolayer gate --tier 2 --inconclusive pass && exit 0; code=$$?; \
	  test $$code -eq 4 && exit 0; \
	done; exit $$code

clean:
	rm -rf $(VENV) out build *.egg-info
