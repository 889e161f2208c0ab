#!/usr/bin/env bash
# Turn the Toronto BookCorpus, or any other books, into fairseq's binary data; --help says more.
set -euo pipefail

# shellcheck source=data-prep/run.sh
source "$(dirname "$0")/../run.sh"
prepare bookcorpus "$@"
