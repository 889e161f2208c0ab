#!/usr/bin/env bash
# WikiText-103: ALiBi trained at L = 512
# Written by python -m alibi_fairseq.recipes; change it there.
#
# Paper     Table 5, validation perplexity: 19.73 at 512, 18.81 at 1024, 18.50 at 1536, 18.48 at
#           2048, 18.40 at 3072. Also in Table 6, Table 7, Table 2, Table 15, Figure 8.
# Batch     8 GPUs × 18 sequences × 512 tokens = 73,728 tokens per update
# Length    286,000 updates × 73,728 = 21,086,208,000 tokens ÷ 103,227,021 (training split, line
#           ends counted) = 204.3 epochs
# Hardware  8 × V100 32 GB; the paper does not say how many: 8 gives its 205 epochs.
# Cost      21,086,208,000 tokens ÷ 28,304 tokens/s of one V100 (Figure 7) = 207 V100 hours, 26 h on
#           8
# Size      246,933,504 parameters with a dictionary of 267,744 entries (fairseq's four special
#           symbols counted)
# GPUs      1: +run_config=1_gpu; 32 GPUs cannot keep 73,728 tokens per update: its 144 sequences of
#           512 tokens cannot be dealt out evenly; use 16, 18, 24 or 36. Any other number:
#           scripts/train.sh --gpus N.
#
# configs/wikitext-103/alibi-512.sh DATA_BIN --save-dir FOLDER    (further flags win)
set -euo pipefail
plugin="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../alibi_fairseq" && pwd)"

exec fairseq-train --user-dir "$plugin" \
    --seed 1 --fp16 \
    --task language_modeling --sample-break-mode none --tokens-per-sample 512 \
    --arch alibi_lm_wiki103 --position-method alibi \
    --criterion adaptive_loss \
    --skip-invalid-size-inputs-valid-test --required-batch-size-multiple 1 --num-workers 0 \
    --max-tokens 9216 \
    --lr 1.0 --clip-norm 0.1 --stop-min-lr 1e-09 --max-update 286000 --update-freq 1 \
    --optimizer nag \
    --lr-scheduler cosine --warmup-updates 16000 --warmup-init-lr 1e-07 --min-lr 0.0001 \
    --lr-period-updates 270000 --t-mult 2.0 --lr-shrink 0.75 \
    --no-epoch-checkpoints \
    --ddp-backend legacy_ddp --distributed-world-size 8 \
    "$@"
