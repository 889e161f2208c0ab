#!/usr/bin/env bash
# Train two small language models on short text, test them on long text, and show which one copes.
# Sets everything up by itself; --help says what can be chosen. Run it again to go on after Ctrl-C.
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "$0")/environment.sh"
ensure_environment
cd "$root"
exec python -m alibi_fairseq demo "$@"
