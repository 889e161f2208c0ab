#!/usr/bin/env bash
# WikiText-103: ALiBi trained at L = 2048
# The training of alibi-2048-corrected.yaml, which explains each value.
#
# configs/wikitext-103/alibi-2048-corrected.sh DATA_BIN --save-dir FOLDER [FLAGS]
# FLAGS are options of fairseq-train and override the ones below.
set -euo pipefail
plugin="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../alibi_fairseq" && pwd)"

exec fairseq-train --user-dir "$plugin" \
    --seed 1 --fp16 \
    --task language_modeling --sample-break-mode none --tokens-per-sample 2048 \
    --arch alibi_lm_wiki103 --decoder-layers 16 --decoder-embed-dim 1024 \
    --decoder-ffn-embed-dim 4096 --decoder-attention-heads 8 --dropout 0.3 \
    --attention-dropout 0.1 --activation-dropout 0.1 --adaptive-input-cutoff 20000,60000 \
    --adaptive-softmax-cutoff 20000,60000 --adaptive-softmax-dropout 0.2 \
    --position-method alibi \
    --criterion adaptive_loss \
    --skip-invalid-size-inputs-valid-test --required-batch-size-multiple 1 --num-workers 0 \
    --max-tokens 6144 \
    --lr 1.0 --clip-norm 0.1 --stop-min-lr 1e-09 --max-update 286000 --update-freq 3 \
    --optimizer nag \
    --lr-scheduler cosine --warmup-updates 16000 --warmup-init-lr 1e-07 --min-lr 0.0001 \
    --lr-period-updates 270000 --t-mult 2.0 --lr-shrink 0.75 \
    --no-epoch-checkpoints \
    --ddp-backend legacy_ddp --distributed-world-size 4 \
    "$@"
