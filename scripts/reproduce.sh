#!/usr/bin/env bash
# Make a table or figure of the paper: prepare the text, train every run it needs, evaluate, report.
#
#   scripts/reproduce.sh table5 --corpus wikitext-103=wikitext-103-v1.zip
#   scripts/reproduce.sh all --dry-run                  every command
#   scripts/reproduce.sh table5 --scale smoke …         the whole chain on the CPU, tiny
#   scripts/reproduce.sh study --corpus wikipedia=wikitext-103-v1.zip
#                                                       small models (studies/small_models/protocol.md)
#
# Rerun the same command to resume; SIGTERM, SIGUSR1 and Ctrl-C save first, and the
# exit code is then 75. --help says what can be chosen, docs/experiments.md what each table takes.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "$0")/environment.sh"
if [ "${1:-}" = study ]; then
  ensure_training_environment study scipy statsmodels
  cd "$root"
  exec python -m studies.small_models "${@:2}"
fi
ensure_training_environment
exec python -m alibi_fairseq reproduce "$@"
