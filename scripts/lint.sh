#!/usr/bin/env bash
# Check style in the active environment: ruff, its formatter, shellcheck, hadolint, zizmor, codespell,
# and mypy. Runs offline.
set -euo pipefail

cd "$(dirname "$0")/.."
echo "== ruff"
ruff check .
ruff format --check .
echo "== shellcheck"
git ls-files '*.sh' '*.sbatch' '.ci/run' | xargs shellcheck
echo "== hadolint"
hadolint Dockerfile
echo "== zizmor"
zizmor --offline --quiet .github
echo "== codespell"
git ls-files -z | xargs -0 codespell
echo "== mypy"
mypy
