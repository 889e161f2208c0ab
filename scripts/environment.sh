# shellcheck shell=bash
# Sourced by the other scripts. Makes .venv with the pinned packages and this project when there is
# none, or when what it was made from has changed, and puts it first on the PATH.
#
#   ensure_environment [EXTRA]     EXTRA is an extra of setup.py, such as "test"

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

fail() {
  echo "error: $1" >&2
  exit 2
}

# Python 3.12 first: fairseq has a binary wheel for it and must be compiled for the others.
find_python() {
  local candidate candidates=(python3.12 python3.11 python3 python3.13)
  [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
  for candidate in "${candidates[@]}"; do
    if command -v "$candidate" > /dev/null &&
      "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2> /dev/null; then
      echo "$candidate"
      return
    fi
  done
  fail "${PYTHON:-no command of the PATH} is not Python 3.10, 3.11, 3.12 or 3.13 with the venv module; install one or set PYTHON=/path/to/python3.12."
}

ensure_environment() {
  local extra="${1:-}" wanted stamp
  wanted="$(cat "$root"/{setup.py,constraints.txt,scripts/install.sh} | cksum)"
  for stamp in "$root/.venv/installed-test" "$root/.venv/installed-$extra"; do
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
      export PATH="$root/.venv/bin:$PATH"
      return
    fi
  done
  if [ ! -x "$root/.venv/bin/python" ]; then
    local python
    python="$(find_python)"
    echo "Making .venv with $("$python" --version) …"
    "$python" -m venv "$root/.venv" || fail "$python could not make a virtual environment."
  fi
  echo "Installing the pinned packages into .venv (about two minutes, once) …"
  PYTHON="$root/.venv/bin/python" "$root/scripts/install.sh" ${extra:+"$extra"} || exit
  echo "$wanted" > "$root/.venv/installed-$extra"
  export PATH="$root/.venv/bin:$PATH"
}

# The Python that is active if it can train (a cluster's own environment), otherwise .venv.
ensure_training_environment() {
  if ! python -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ("torch", "fairseq"))))' 2> /dev/null; then
    ensure_environment
  fi
  export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
}
