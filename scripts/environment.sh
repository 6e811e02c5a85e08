# Sourced by the other scripts, with the name of an extra: uses the active virtual environment or makes
# .venv, and installs this tree with that extra unless it is installed already.
# With TRANSFORMERS=5.25.0 it makes and uses .venv-transformers-5.25.0, which holds that version.
extra="$1"

environment=""
if [ -n "${TRANSFORMERS:-}" ]; then
    environment=".venv-transformers-$TRANSFORMERS"
elif [ -z "${VIRTUAL_ENV:-}" ] && [ -z "${CONDA_PREFIX:-}" ]; then
    environment=".venv"
fi
if [ -n "$environment" ]; then
    if [ ! -x "$environment/bin/python" ]; then
        "${PYTHON:-python3}" -m venv "$environment"
    fi
    source "$environment/bin/activate"
fi

if ! python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "Python 3.11 or newer is needed, this is $(python --version): set PYTHON to a newer one" >&2
    exit 1
fi

# `pip install .` in the same environment replaces the tree by a copy.
imports_tree() {
    python -P -c 'import os, sys
from importlib.util import find_spec
found = find_spec("vanilla_transformer")
sys.exit(found is None or not os.path.samefile(os.path.dirname(found.origin), "vanilla_transformer"))'
}

stamp="$(python -c 'import sys; print(sys.prefix)')/.vanilla_transformer_$extra"
if ! cmp -s pyproject.toml "$stamp" || ! imports_tree; then
    echo "Installing the package with its extra '$extra' into $(dirname "$stamp"), which takes some minutes ..."
    if ! python -c 'import torch' 2>/dev/null; then
        # Without a GPU the CPU build is enough and gigabytes smaller. A mirror may have it; torch's own index has.
        cpu_index=https://download.pytorch.org/whl/cpu
        command -v nvidia-smi >/dev/null ||
            python -m pip install --quiet 'torch==2.13.0+cpu' 2>/dev/null ||
            python -m pip install --quiet 'torch==2.13.0' --index-url "$cpu_index" 2>/dev/null || true
        # With a GPU, or where neither was to be had; otherwise nothing is left to do.
        python -m pip install --quiet 'torch==2.13.0'
    fi
    python -m pip install --quiet --editable ".[$extra]"
    if [ -n "${TRANSFORMERS:-}" ]; then
        # In a call of its own: a version outside the range of pyproject.toml can be tried too.
        python -m pip install --quiet "transformers==$TRANSFORMERS"
    fi
    cp pyproject.toml "$stamp"
fi
