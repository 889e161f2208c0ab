#!/usr/bin/env bash
# Lint and test everything; sets up what it needs by itself. Arguments go to pytest.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "$0")/environment.sh"
ensure_environment test
cd "$root"

./scripts/lint.sh
echo "== pytest"
# Many small models: one process per core with one thread each keeps every core busy.
export OMP_NUM_THREADS=1
python -m pytest --numprocesses auto "$@"
