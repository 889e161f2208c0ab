#!/usr/bin/env bash
# Run the tests and benchmarks that require a GPU, within a time limit.
#
#   scripts/gpu_check.sh [--minutes M] [--out FOLDER] [--parts PART …] [--rehearse]
#
# Requires Python (python3, or PYTHON=/path/to/it) with PyTorch, pytest, and pytest-timeout. It runs
# offline: fairseq and its requirements are installed from wheels-py3.* in this clone
# (scripts/bundle_wheels.sh) if they are missing. FOLDER (default: runs/gpu-check) holds one JSON
# file per part and summary.txt. The log is FOLDER.log.
set -euo pipefail

root="$(cd "$(dirname "$0")/.." && pwd)"
cd "$root"
python="${PYTHON:-python3}"

has_packages() {
  "$python" -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))' "$@"
}

if ! has_packages pytest pytest_timeout; then
  echo "gpu_check.sh: error: $python lacks pytest or pytest-timeout. Install both with pip." >&2
  exit 2
fi
if ! has_packages torch fairseq; then
  bundle="$("$python" -c 'import sys; print("wheels-py%d.%d" % sys.version_info[:2])')"
  if [ ! -d "$bundle" ]; then
    echo "gpu_check.sh: error: $python lacks fairseq or PyTorch, and $bundle is missing." \
      "Create it with scripts/bundle_wheels.sh on a machine with internet access." >&2
    exit 2
  fi
  PYTHON="$python" bash "$bundle/install_offline.sh"
fi
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m benchmarks.gpu_check "$@"
