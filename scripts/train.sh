#!/usr/bin/env bash
# Train a recipe of configs/ on this machine, or as one node of several.
#
#   scripts/train.sh [--gpus N] wikitext-103/alibi-512 data-bin/wikitext-103 --save-dir runs/alibi-512
#   scripts/train.sh --cpu 2 …                       two processes on the CPU
#   scripts/train.sh --nnodes 4 --gpus 32 --rdzv-endpoint node1:29500 …     the same command on each node
#
# Any number of GPUs keeps the recipe's tokens per update, or is refused with those that can. Flags of
# fairseq-train may follow and override the recipe. The same command resumes; SIGTERM, SIGUSR1 and
# Ctrl-C save first, and the exit code is then 75. See docs/cluster.md for SLURM and for failures.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "$0")/environment.sh"
# shellcheck disable=SC2119  # without an extra
ensure_training_environment
exec python -m alibi_fairseq launch "$@"
