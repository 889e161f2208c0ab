#!/usr/bin/env bash
# Toronto BookCorpus: ALiBi trained at L = 3072
# The training of alibi-3072.yaml, which explains each value.
#
# configs/bookcorpus/alibi-3072.sh DATA_BIN --save-dir FOLDER [FLAGS]
# FLAGS are options of fairseq-train and override the ones below.
set -euo pipefail
plugin="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../alibi_fairseq" && pwd)"

exec fairseq-train --user-dir "$plugin" \
    --seed 1 --fp16 \
    --task language_modeling --sample-break-mode none --tokens-per-sample 3072 \
    --arch alibi_lm_bookcorpus --decoder-layers 16 --decoder-embed-dim 1024 \
    --decoder-ffn-embed-dim 4096 --decoder-attention-heads 8 --dropout 0.3 \
    --attention-dropout 0.1 --activation-dropout 0.1 --position-method alibi \
    --criterion cross_entropy \
    --skip-invalid-size-inputs-valid-test --required-batch-size-multiple 1 --num-workers 0 \
    --max-tokens 3072 \
    --lr 1.0 --clip-norm 0.1 --stop-min-lr 1e-09 --max-update 560000 --update-freq 3 \
    --optimizer nag \
    --lr-scheduler cosine --warmup-updates 16000 --warmup-init-lr 1e-07 --min-lr 0.0001 \
    --lr-period-updates 544000 --t-mult 2.0 --lr-shrink 0.75 \
    --no-epoch-checkpoints --save-interval-updates 2000 --keep-interval-updates 1 \
    --ddp-backend legacy_ddp --distributed-world-size 8 \
    "$@"
