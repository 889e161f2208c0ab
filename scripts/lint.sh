#!/usr/bin/env bash
# Check style, in the active environment: ruff, its formatter, shellcheck, hadolint and mypy.
set -euo pipefail

cd "$(dirname "$0")/.."
echo "== ruff"
ruff check .
ruff format --check .
echo "== shellcheck"
git ls-files '*.sh' '*.sbatch' '.ci/run' | xargs shellcheck
echo "== hadolint"
hadolint Dockerfile
echo "== mypy"
mypy
