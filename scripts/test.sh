#!/usr/bin/env bash
# Lint and test everything; sets up what it needs by itself. Arguments go to pytest.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "$0")/environment.sh"
ensure_environment test
cd "$root"

./scripts/lint.sh
echo "== pytest"
# Many small models: processes with one thread each keep every core busy. One more than there are
# cores, since many tests wait for a process of their own. (nproc obeys OMP_NUM_THREADS.)
processes=$(($(env -u OMP_NUM_THREADS nproc) + 1))
export OMP_NUM_THREADS=1
python -m pytest --numprocesses "$processes" --dist worksteal "$@"
