#!/usr/bin/env bash
# Shuffle, shard, and tokenize any amount of text for fairseq; --help says what can be chosen.
set -euo pipefail

# shellcheck source=data-prep/run.sh
source "$(dirname "$0")/../run.sh"
prepare cc100-roberta "$@"
