#!/usr/bin/env bash
# Train two small language models at length 64 and evaluate them at lengths up to 1,024.
# Installs the environment if needed. The corpus is the documentation of Python, so that no text is
# downloaded. Rerun to resume after Ctrl-C. Options are passed to `alibi-fairseq compare`, except
#
#   --quick     run every step in a short time; the training is too short to distinguish methods
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "$0")/environment.sh"
ensure_environment
cd "$root"
out=runs/demo
# 500 updates of 4,096 tokens are more than three passes over the 0.6M tokens of the text.
options=(--updates 500 --lengths "64,128,256,512,1024" --vocab-size 2000)
for argument; do
  shift
  if [ "$argument" = --quick ]; then
    out=runs/demo-quick
    options=(--updates 60 --tokens-per-update 2048 --lengths "64,256,1024" --vocab-size 1000)
  else
    set -- "$@" "$argument"
  fi
done
text="$out/python-documentation.txt"
[ -f "$text" ] || python scripts/python_documentation.py "$text"
set -- compare "$text" --methods alibi,sinusoidal --train-lengths 64 --lr 0.002 "${options[@]}" \
  --title "Small models trained at L = 64" --out "$out" "$@"
python -c 'import shlex, sys; print(shlex.join(sys.argv[1:]))' alibi-fairseq "$@"
echo "The results are perplexities. Lower is better."
exec python -m alibi_fairseq "$@"
