#!/usr/bin/env bash
# Train the models of the short demo with other versions of Python, each in a new environment
# of a copy of this clone, as the README says. .ci/run does it with Python 3.10.
#
#   scripts/test_pythons.sh [VERSION …]     default: 3.10 3.11 3.12 3.13
#
# A version is skipped if this machine lacks it. An environment takes some minutes and up to 6 GB
# (3 GB to download), by the PyTorch build, and is deleted at the end.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "$0")/environment.sh"
cd "$root"

if [[ "${1:-}" == -* ]]; then
  sed -n '2,8s/^# \{0,1\}//p' "$0"
  exit 0
fi

# Print the Python of a version: that of the PATH, or one that pyenv has installed.
python_of() {
  local candidate
  for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])' "$1" 2> /dev/null; then
      echo "$candidate"
      return
    fi
  done
}

[ $# -gt 0 ] || set -- 3.10 3.11 3.12 3.13
for version; do
  python="$(python_of "$version")"
  if [ -z "$python" ]; then
    echo "== Python $version: skipped, since this machine does not have it"
    continue
  fi
  echo "== $("$python" --version)"
  copy="runs/pythons/$version"
  rm -rf "$copy"
  mkdir -p "$copy"
  git ls-files -z | tar --create --null --files-from - | tar --extract --directory "$copy"
  PYTHON="$python" "$copy/scripts/demo.sh" --quick
  rm -rf "$copy"
done
