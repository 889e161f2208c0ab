#!/usr/bin/env bash
# Train a recipe of configs/ on this machine, or on one node of several.
#
#   scripts/train.sh [--gpus N] wikitext-103/alibi-512 data/wikitext-103/data-bin --save-dir runs/alibi-512
#   scripts/train.sh --cpu 2 …                       two processes on the CPU
#   scripts/train.sh --nnodes 2 --gpus 16 --rdzv-endpoint node1:29500 …     the same command on each node
#
# The recipe's tokens per update are kept on any number of GPUs. Numbers that cannot keep them are
# rejected with a list of those that can. Further options of fairseq-train override the recipe. Rerun
# the same command to resume. SIGTERM, SIGUSR1, and Ctrl-C save a checkpoint and exit with code 75.
# See docs/cluster.md for SLURM and for failures.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "$0")/environment.sh"
# shellcheck disable=SC2119  # without an extra
ensure_training_environment
exec python -m alibi_fairseq launch "$@"
