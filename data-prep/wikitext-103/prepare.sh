#!/usr/bin/env bash
# Download (or take) WikiText-103 and turn it into fairseq's binary data; --help says what can be chosen.
set -euo pipefail

# shellcheck source=data-prep/run.sh
source "$(dirname "$0")/../run.sh"
prepare wikitext-103 "$@"
