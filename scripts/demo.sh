#!/usr/bin/env bash
# Train two small language models on 64 tokens, test them on up to 1,024, and show which one copes.
# Sets everything up by itself, and downloads no text: the models read the documentation of Python.
# Run it again to go on after Ctrl-C. Options are those of `alibi-fairseq compare`, besides
#
#   --quick     a short run that shows every step, and trains too little to tell methods apart
set -euo pipefail

# shellcheck source=scripts/environment.sh
source "$(dirname "$0")/environment.sh"
ensure_environment
cd "$root"
out=runs/demo
# 500 updates of 4,096 tokens are more than three passes over the 0.6M tokens of the text.
options=(--updates 500 --eval-lengths "64,128,256,512,1024" --vocab-size 2000)
for argument; do
  shift
  if [ "$argument" = --quick ]; then
    out=runs/demo-quick
    options=(--updates 60 --tokens-per-update 2048 --eval-lengths "64,256,1024" --vocab-size 1000)
  else
    set -- "$@" "$argument"
  fi
done
text="$out/python-documentation.txt"
[ -f "$text" ] || python scripts/python_documentation.py "$text"
set -- compare "$text" --methods alibi,sinusoidal --train-lengths 64 --lr 0.002 "${options[@]}" \
  --title "Small models trained on 64 tokens" --out "$out" "$@"
python -c 'import shlex, sys; print(shlex.join(sys.argv[1:]))' alibi-fairseq "$@"
echo "The numbers will be perplexities: how many tokens a model hesitates between, so lower is better."
exec python -m alibi_fairseq "$@"
