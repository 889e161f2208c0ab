#!/usr/bin/env bash
# Toronto BookCorpus: ALiBi trained at L = 512
# Written by python -m alibi_fairseq.recipes; change it there.
#
# Paper     Table 8, validation perplexity: 14.29 at 512, 13.64 at 1024, 13.55 at 3072. Also in
#           Table 9, Table 10.
# Batch     8 GPUs × 18 sequences × 512 tokens = 73,728 tokens per update
# Length    560,000 updates × 73,728 = 41,287,680,000 tokens ÷ 700,000,000 (the paper's 'about 700M
#           tokens' (A.3)) = 59.0 epochs
# Hardware  8 × V100 32 GB; the paper does not say how many: 8 as on WikiText-103.
# Cost      41,287,680,000 tokens ÷ 28,304 tokens/s of one V100 (Figure 7) = 405 V100 hours, 51 h on
#           8
# Size      231,235,584 parameters with a dictionary of 29,000 entries (fairseq's four special
#           symbols counted)
# GPUs      1: +run_config=1_gpu; 32 GPUs cannot keep 73,728 tokens per update: its 144 sequences of
#           512 tokens cannot be dealt out evenly; use 16, 18, 24 or 36. Any other number:
#           scripts/train.sh --gpus N.
# Note      The cost is that of WikiText-103's model, whose output layer is another; the paper gives
#           no speed on books.
# Note      The paper's tables print 247M parameters for this model. Its body has 201.5M and 29,000
#           tied word pieces add 29.7M; untied they would add 59.4M (260.9M). We tie, as the paper's
#           text says.
#
# configs/bookcorpus/alibi-512.sh DATA_BIN --save-dir FOLDER    (further flags win)
set -euo pipefail
plugin="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../alibi_fairseq" && pwd)"

exec fairseq-train --user-dir "$plugin" \
    --seed 1 --fp16 \
    --task language_modeling --sample-break-mode none --tokens-per-sample 512 \
    --arch alibi_lm_bookcorpus --position-method alibi \
    --criterion cross_entropy \
    --skip-invalid-size-inputs-valid-test --required-batch-size-multiple 1 --num-workers 0 \
    --max-tokens 9216 \
    --lr 1.0 --clip-norm 0.1 --stop-min-lr 1e-09 --max-update 560000 --update-freq 1 \
    --optimizer nag \
    --lr-scheduler cosine --warmup-updates 16000 --warmup-init-lr 1e-07 --min-lr 0.0001 \
    --lr-period-updates 544000 --t-mult 2.0 --lr-shrink 0.75 \
    --no-epoch-checkpoints --save-interval-updates 2000 --keep-interval-updates 1 \
    --ddp-backend legacy_ddp --distributed-world-size 8 \
    "$@"
