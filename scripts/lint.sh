#!/usr/bin/env bash
# Check style in the active environment: no conflict markers, ruff, its formatter, shellcheck, hadolint, zizmor, codespell,
# and mypy. Runs offline.
set -euo pipefail

cd "$(dirname "$0")/.."
echo "== conflict markers"
if git grep -nE '^(<{7}|>{7}) '; then exit 1; fi
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
