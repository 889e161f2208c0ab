# shellcheck shell=bash
# Sourced by the prepare.sh of each corpus: runs `alibi-fairseq prepare` from this checkout with the
# Python at hand when it has what is needed (an offline cluster node), otherwise with .venv.

# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/environment.sh"

prepare() {
  local python="${PYTHON:-python3}"
  if [ ! -x "$root/.venv/bin/python" ] && has_modules "$python" sacremoses sentencepiece; then
    export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
  else
    ensure_environment
    python=python
  fi
  exec "$python" -m alibi_fairseq prepare "$@"
}
