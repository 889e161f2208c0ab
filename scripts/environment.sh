# shellcheck shell=bash
# Functions for the other scripts that find or create their Python environment.
#
#   ensure_environment [EXTRA]     EXTRA is an extra of setup.py, such as "test"

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

fail() {
  echo "error: $1" >&2
  exit 2
}

# Print a checksum of the files that determine an environment. scripts/install.sh writes it, and the
# extras, to the file alibi-fairseq-installed of the environment.
installed_from() {
  cat "$root"/{setup.py,constraints.txt,scripts/install.sh} | cksum
}

# Return 0 if an environment is up to date and holds an extra.
#
#   is_installed ENVIRONMENT [EXTRA]
is_installed() {
  local stamp="$1/alibi-fairseq-installed"
  [ -f "$stamp" ] && [ "$(head -n 1 "$stamp")" = "$(installed_from)" ] || return 1
  [ -z "${2:-}" ] || grep --quiet --line-regexp --fixed-strings "$2" "$stamp"
}

# Print a suitable Python. 3.12 comes first: only for it does fairseq have a binary wheel.
find_python() {
  local candidate candidates=(python3.12 python3.11 python3 python3.13 python3.10)
  [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
  for candidate in "${candidates[@]}"; do
    if command -v "$candidate" > /dev/null &&
      "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2> /dev/null; then
      echo "$candidate"
      return
    fi
  done
  fail "found no Python 3.10, 3.11, 3.12, or 3.13 with the venv module in ${PYTHON:-the PATH}. Install one or set PYTHON=/path/to/python3.12."
}

# Put .venv first in the PATH. Create or update it if it is missing or out of date.
ensure_environment() {
  local extra="${1:-}"
  if ! is_ready "$extra"; then
    # One process at a time: jobs that start together share .venv.
    (
      if command -v flock > /dev/null; then
        flock --nonblock 9 || { echo "Waiting for another installation into .venv."; flock 9; }
      fi
      is_ready "$extra" || complete_environment "$extra"
    ) 9> "$root/.venv.lock" || exit
  fi
  export PATH="$root/.venv/bin:$PATH"
}

# Return 0 if .venv is up to date, holds an extra, and its Python runs: the Python that it links to
# may have been removed.
is_ready() {
  is_installed "$root/.venv" "${1:-}" && "$root/.venv/bin/python" -c "" 2> /dev/null
}

# Create .venv or complete an interrupted creation, and install.
complete_environment() {
  local extra="${1:-}" own="$root/.venv/bin/python" python
  if [ ! -e "$own" ]; then # missing, or a link to a Python that was removed
    python="$(find_python)" || exit
    echo "Creating .venv with $("$python" --version)."
    "$python" -m venv --clear "$root/.venv" || fail "$python could not create a virtual environment."
  elif ! "$own" -c ""; then
    # Perhaps its libraries are only missing here (module load).
    fail "$own does not start. Make it start, or delete .venv."
  elif ! "$own" -m pip --version > /dev/null 2>&1; then
    # Without --clear, since packages may be there already.
    "$own" -m venv "$root/.venv" || fail "$own could not add pip to .venv. Delete .venv."
  fi
  PYTHON="$own" "$root/scripts/install.sh" ${extra:+"$extra"} || exit
}

# Return 0 if a Python has the modules that every command imports, and the given ones.
#
#   has_modules PYTHON [MODULE …]
has_modules() {
  "$1" -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))' \
    fairseq numpy psutil pydantic torch tqdm "${@:2}" 2> /dev/null
}

# Keep the active Python if it has the modules (a cluster's own environment). Otherwise use .venv,
# with an extra.
#
#   ensure_training_environment [EXTRA MODULE …]
ensure_training_environment() {
  local extra="${1:-}"
  if ! has_modules python "${@:2}"; then
    ensure_environment "$extra"
  fi
  export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
}
