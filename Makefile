# make train     from a fresh checkout to a trained policy, its table and its picture
# make test      pytest                     make lint    style, types and layers
# make format    mend the style             make bench   every benchmark; results stay as files
# make clean     remove what the above made, but no trained policy
#
# Settings, for example  make train VENV=~/envs/hetsched TORCH_INDEX=https://download.pytorch.org/whl/cpu
# That index has torch without CUDA, 200 MB instead of 3 GB, for a computer without an NVIDIA GPU.

VENV        ?= .venv
PYTHON      ?= $(shell for p in python3.11 python3 python3.12 python3.13; do \
                 $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; \
               done)
TORCH       ?= torch==2.13.0
TORCH_INDEX ?=
PIP_FLAGS   ?=
SCENARIO    ?= gpu-cluster
RUN         ?= runs/$(SCENARIO)
TRAIN_FLAGS ?=
TEST_FLAGS  ?=
BENCHMARKS  ?= allocator

BIN       := $(VENV)/bin
INSTALLED := $(VENV)/.hetsched-installed
PIP        = $(BIN)/python -m pip install --disable-pip-version-check $(PIP_FLAGS)

.DELETE_ON_ERROR:
.PHONY: help install train evaluate test lint style layers types format bench clean

help:
	@sed -n '/^#/!q;s/^# \{0,1\}//p' Makefile

install: $(INSTALLED)

# The stamps make a second call install nothing. torch comes first and alone, so that the packages
# that need it find it there and do not fetch another build.
$(VENV)/.torch-installed:
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer found; install one, or name it with PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) "$(TORCH)"
	@touch $@

$(INSTALLED): $(VENV)/.torch-installed pyproject.toml
	$(PIP) -e ".[dev]"
	@touch $@

# A run that was interrupted goes on where it was.
train: $(INSTALLED)
	if [ -e $(RUN)/config.json ]; then set -- --resume; else set -- --scenario $(SCENARIO) $(TRAIN_FLAGS); fi; \
	  $(BIN)/python train.py --out $(RUN) "$$@"
	@$(MAKE) --no-print-directory evaluate

evaluate: $(INSTALLED)
	$(BIN)/python evaluate.py --scenario $(SCENARIO) --policy $(RUN)/best.safetensors --against all --count 400 --gantt $(RUN)/gantt

test: $(INSTALLED)
	$(BIN)/python -m pytest $(TEST_FLAGS)

lint: style layers types

style: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

layers: $(INSTALLED)
	$(BIN)/lint-imports --no-logo

types: $(INSTALLED) .mypy_cache/package/hetsched
	bin=$$(cd $(BIN) && pwd) && cd .mypy_cache/package && \
	  "$$bin/mypy" --config-file ../../pyproject.toml --cache-dir .. -p hetsched

# mypy does not see a package whose folder is named otherwise; a link of the right name shows it.
.mypy_cache/package/hetsched:
	@mkdir -p $(@D)
	@ln -sfn ../.. $@

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED)
	@set -e; for name in $(BENCHMARKS); do \
	  echo "== benchmarks/$$name.py"; $(BIN)/python benchmarks/$$name.py; \
	done

clean:
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
