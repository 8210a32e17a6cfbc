#!/usr/bin/env bash
# Prepares a Colab machine: the packages that the helpers need, in the ranges of pyproject.toml, the base model and the
# package. Colab's own Jupyter (ipykernel, ipython and the rest) stays as it is: with another one its pages stop working.
#
#   !git clone --depth 1 ADDRESS_OF_THE_REPOSITORY attattr && bash attattr/.binder/colab.sh
#
# Then restart the session once (menu Runtime), so that the new packages are read.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
mapfile -t packages < <("$PYTHON" - <<'PY'
import re
import tomllib

OWN = {"ipykernel", "ipython", "jupyter_client", "jupyterlab", "nbclient", "nbconvert", "nbformat", "papermill"}
with open("pyproject.toml", "rb") as file:
    for line in tomllib.load(file)["project"]["dependencies"]:
        if re.match(r"[\w.-]+", line)[0].lower() not in OWN:
            print(line)
PY
)
"$PYTHON" -m pip install --quiet "${packages[@]}"
make weights PYTHON="$PYTHON"
echo 'ready: restart the session (menu Runtime), then run a notebook'
