#!/usr/bin/env bash
# Train a recipe of recipes.csv:
#
#   configs/bookcorpus/train.sh alibi-512 data/bookcorpus/data-bin --save-dir runs/books-alibi-512
#
# This is `alibi-fairseq train --recipe`: --gpus N trains on another number of GPUs, --dry-run prints the command of
# fairseq, and --help lists the options. Options of fairseq-train override the recipe.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "$0")/../../scripts/environment.sh"
[ $# -ge 1 ] || fail "The name of a recipe is missing. Pass one of configs/bookcorpus/recipes.csv."
# shellcheck disable=SC2119  # without an extra
ensure_training_environment
exec python -m alibi_fairseq train --recipe "bookcorpus/$1" "${@:2}"
