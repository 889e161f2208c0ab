#!/usr/bin/env bash
# CC100+RoBERTa: ALiBi trained at L = 512
# The training of alibi-512.yaml, which explains each value.
#
# configs/cc100-roberta/alibi-512.sh DATA_BIN --save-dir FOLDER [FLAGS]
# FLAGS are options of fairseq-train and override the ones below.
set -euo pipefail
plugin="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../alibi_fairseq" && pwd)"

exec fairseq-train --user-dir "$plugin" \
    --seed 1 --fp16 --memory-efficient-fp16 \
    --task language_modeling --sample-break-mode none --tokens-per-sample 512 \
    --arch alibi_lm_1b3 --decoder-layers 25 --decoder-embed-dim 2048 \
    --decoder-ffn-embed-dim 8192 --decoder-attention-heads 16 --activation-fn relu \
    --decoder-normalize-before --share-decoder-input-output-embed --dropout 0.0 \
    --attention-dropout 0.0 --position-method alibi \
    --criterion cross_entropy \
    --skip-invalid-size-inputs-valid-test --required-batch-size-multiple 1 --num-workers 0 \
    --max-tokens 2048 \
    --lr 0.0002 --clip-norm 1.0 --max-update 50000 --update-freq 8 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-08 --weight-decay 0.1 \
    --lr-scheduler polynomial_decay --warmup-updates 500 --total-num-update 50000.0 \
    --no-epoch-checkpoints --save-interval-updates 500 --keep-interval-updates 1 \
    --ddp-backend legacy_ddp --distributed-world-size 128 \
    "$@"
