#!/usr/bin/env bash
# Reproduce a table or figure of the paper: prepare the corpus, train all runs, evaluate, report.
#
#   scripts/reproduce.sh table5 --corpus wikitext-103=wikitext-103-v1.zip
#   scripts/reproduce.sh all --dry-run                  print every command
#   scripts/reproduce.sh table5 --scale smoke …         test every step on the CPU with tiny models
#   scripts/reproduce.sh study --corpus wikipedia=wikitext-103-v1.zip
#                                                       study of small models (studies/README.md)
#
# Rerun the same command to resume. SIGTERM, SIGUSR1, and Ctrl-C save a checkpoint and exit with code
# 75. --help lists the options, and docs/reproduce.md the tables.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "$0")/environment.sh"
if [ "${1:-}" = study ]; then
  ensure_training_environment study matplotlib sacremoses sentencepiece scipy statsmodels
  cd "$root"
  exec python -m studies "${@:2}"
fi
ensure_training_environment "" matplotlib sacremoses sentencepiece
exec python -m alibi_fairseq reproduce "$@"
