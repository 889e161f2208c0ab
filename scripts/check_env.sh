#!/usr/bin/env bash
# Report what is installed, what is wrong with it and how to fix it. Looks at the Python of .venv if
# there is one, otherwise at the one on the PATH; changes nothing.
set -euo pipefail

root="$(cd "$(dirname "$0")/.." && pwd)"
python="$root/.venv/bin/python"
if [ ! -x "$python" ]; then
  python="$(command -v python3 || command -v python)" || {
    echo "error: no Python was found; install Python 3.11." >&2
    exit 2
  }
fi
exec "$python" "$root/alibi_fairseq/cli/check_env.py"
