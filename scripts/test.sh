#!/usr/bin/env bash
# Run lint and all tests that are not slow, and install the environment if needed. Arguments are passed
# to pytest instead, such as `tests/evaluation` or `-m slow`.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "$0")/environment.sh"
ensure_environment test
cd "$root"
[ $# -gt 0 ] || set -- -m "not slow"

./scripts/lint.sh
echo "== pytest"
# The models are small, so processes with one thread each keep every core busy. (nproc obeys
# OMP_NUM_THREADS.)
processes=$(env -u OMP_NUM_THREADS nproc)
export OMP_NUM_THREADS=1
python -m pytest --numprocesses "$processes" --dist worksteal "$@"
