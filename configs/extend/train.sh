#!/usr/bin/env bash
# Train a recipe of recipes.csv:
#
#   configs/extend/train.sh alibi-512-at-2048 data/wikitext-103/data-bin --finetune-from-model CHECKPOINT --save-dir runs/longer
#
# This is `alibi-fairseq train --recipe`: --gpus N trains on another number of GPUs, --dry-run prints the command of
# fairseq, and --help lists the options. Options of fairseq-train override the recipe.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "$0")/../../scripts/environment.sh"
[ $# -ge 1 ] || fail "The name of a recipe is missing. Pass one of configs/extend/recipes.csv."
# shellcheck disable=SC2119  # without an extra
ensure_training_environment
exec python -m alibi_fairseq train --recipe "extend/$1" "${@:2}"
