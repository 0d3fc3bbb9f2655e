# Makes the virtual environment that demo and test run in; sourced by them, does nothing when ready.
# Usage: . scripts/environment.sh EXTRAS   (for example: . scripts/environment.sh render,plot)
# SHOAL_PYTHON names the Python to use; SHOAL_VENV where the environment lies (.venv), which belongs to
# one clone alone: it is installed as editable, so another clone that names it takes it over.

# Tests start hundreds of processes: without what Python keeps each would compile all modules anew.
unset PYTHONDONTWRITEBYTECODE

shoal_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
shoal_venv=${SHOAL_VENV:-$shoal_root/.venv}
shoal_extras=$1

find_python() {
  local candidate
  for candidate in ${SHOAL_PYTHON:-python3.13 python3.12 python3.11 python3 python}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  echo "error: no Python 3.11 or newer found: install one, or name it with SHOAL_PYTHON" >&2
  return 1
}

# What is installed depends on these files and the extras: a change installs anew.
shoal_stamp=$(cat "$shoal_root/pyproject.toml" "$shoal_root/constraints.txt" | cksum | tr -d ' ')
shoal_ready=$shoal_venv/.shoal-$shoal_extras-$shoal_stamp
# `pip install .` put a copy here: it would run in the place of this clone's files, and what Numba kept
# beside it would still be found before them once pip has taken it away.
shoal_copies=$(ls -d "$shoal_venv"/lib/python3*/site-packages/{protocol,worker,coordinator} 2>/dev/null || true)
if [ -n "$shoal_copies" ]; then
  rm -f "$shoal_venv/.shoal-"*
fi
if [ ! -e "$shoal_ready" ]; then
  shoal_python=$(find_python) || exit 1
  echo "making the environment in $shoal_venv with $shoal_python (once; a few minutes)" >&2
  [ -x "$shoal_venv/bin/python" ] || "$shoal_python" -m venv "$shoal_venv" || exit 1
  if [ -n "$shoal_copies" ]; then
    "$shoal_venv/bin/python" -m pip uninstall --quiet --yes shoal
    rm -rf "$shoal_venv"/lib/python3*/site-packages/{protocol,worker,coordinator}
  fi
  "$shoal_venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    -c "$shoal_root/constraints.txt" -e "$shoal_root[$shoal_extras]" || {
    echo "error: the packages could not be installed: see the lines above, then run this again" >&2
    exit 1
  }
  # Kernels are compiled once and cached; a run of one update goes through all of them.
  shoal_warm=$(mktemp -d)
  echo "compiling kernels (once; under a minute)" >&2
  "$shoal_venv/bin/shoal" demo CartPole-v1 --workers 1 --updates 1 --run-dir "$shoal_warm/run" \
    >"$shoal_warm/log" 2>&1 || {
    cat "$shoal_warm/log" >&2
    exit 1
  }
  rm -rf "$shoal_warm"
  rm -f "$shoal_venv/.shoal-$shoal_extras-"*
  touch "$shoal_ready"
fi
