#!/usr/bin/env bash
# Prove on a GPU what can be proven nowhere else, in the minutes that there are.
#
#   scripts/gpu_check.sh [--minutes M] [--out DIR] [--parts PART …] [--rehearse]
#
# Needs a Python with PyTorch (python3, or PYTHON=/path/to/it) and no network: what is missing is
# installed from wheels-py3.* in this clone (scripts/bundle_wheels.sh). The folder DIR (default
# runs/gpu-check) gets a JSON file per part and summary.txt, eight files at most; the log is DIR.log.
set -euo pipefail

root="$(cd "$(dirname "$0")/.." && pwd)"
cd "$root"
python="${PYTHON:-python3}"

if ! "$python" -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ("torch", "fairseq", "pytest"))))'; then
  bundle="$("$python" -c 'import sys; print("wheels-py%d.%d" % sys.version_info[:2])')"
  if [ ! -d "$bundle" ]; then
    echo "gpu_check.sh: error: $python lacks fairseq, PyTorch or pytest, and there is no $bundle here to" \
      "install them from; make it with scripts/bundle_wheels.sh where there is a network." >&2
    exit 2
  fi
  PYTHON="$python" bash "$bundle/install_offline.sh"
fi
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m benchmarks.gpu_check "$@"
