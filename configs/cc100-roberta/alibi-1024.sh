#!/usr/bin/env bash
# CC100+RoBERTa: ALiBi trained at L = 1024
# Written by python -m alibi_fairseq.recipes; change it there.
#
# Paper     Table 12, validation perplexity: 9.16 at 1024, 8.92 at 2048. Also in Table 11, Figure 6.
# Batch     128 GPUs × 2 sequences × 1024 tokens × 8 passes = 2,097,152 tokens per update
# Length    50,000 updates × 2,097,152 = 104,857,600,000 tokens ÷ 104,857,600,000 ('one epoch'
#           (4.2): 461 GB at about 4.4 bytes per token) = 1.0 epochs
# Hardware  128 × V100 32 GB (section 4.2).
# Cost      5,900 V100 hours, 46 h on 128 (Table 12)
# Size      1,361,901,568 parameters with a dictionary of 50,264 entries (fairseq's four special
#           symbols counted)
# GPUs      1: +run_config=1_gpu; 8: +run_config=8_gpus; 32: +run_config=4x8_slurm. Any other
#           number: scripts/train.sh --gpus N.
# Note      Dropout is 0 (our choice: one epoch, no text is seen twice). The tokeniser is not
#           published; the parameters are counted for a byte-level BPE of about 50k entries.
# Note      Data: give the shards joined by ':' (data-bin/shard00:data-bin/shard01:…). fairseq then
#           takes each shard as an epoch; validation and checkpoints follow save_interval_updates as
#           well.
#
# configs/cc100-roberta/alibi-1024.sh DATA_BIN --save-dir FOLDER    (further flags win)
set -euo pipefail
plugin="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../alibi_fairseq" && pwd)"

exec fairseq-train --user-dir "$plugin" \
    --seed 1 --fp16 --memory-efficient-fp16 \
    --task language_modeling --sample-break-mode none --tokens-per-sample 1024 \
    --arch alibi_lm_1b3 --position-method alibi \
    --criterion cross_entropy \
    --skip-invalid-size-inputs-valid-test --required-batch-size-multiple 1 --num-workers 0 \
    --max-tokens 2048 \
    --lr 0.0002 --clip-norm 1.0 --max-update 50000 --update-freq 8 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-08 \
    --lr-scheduler polynomial_decay --warmup-updates 500 --total-num-update 50000.0 \
    --no-epoch-checkpoints --save-interval-updates 500 --keep-interval-updates 1 \
    --ddp-backend legacy_ddp --distributed-world-size 128 \
    "$@"
