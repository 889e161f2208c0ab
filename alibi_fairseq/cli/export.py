"""``alibi-fairseq export``: export a checkpoint to Hugging Face format."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import BadInput

MISSING = (
    "This needs Hugging Face transformers ({}); install it with "
    "pip install 'alibi-fairseq[huggingface]'."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--path", required=True, type=Path, metavar="CKPT", help="checkpoint to export"
    )
    parser.add_argument(
        "--data", required=True, type=Path, metavar="DATA", help="folder with its dict.txt"
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder to write")
    parser.add_argument(
        "--format", choices=["hf"], default="hf", help="hf: Hugging Face transformers"
    )
    parser.add_argument(
        "--dict", type=Path, metavar="FILE", help="training dictionary of the checkpoint"
    )
    parser.add_argument(
        "--sentencepiece-model", type=Path, metavar="FILE", help="sentencepiece model of the text"
    )
    parser.add_argument(
        "--gpt2-encoder-json", type=Path, metavar="FILE", help="encoder.json of GPT-2's BPE"
    )
    parser.add_argument(
        "--gpt2-vocab-bpe", type=Path, metavar="FILE", help="vocab.bpe of GPT-2's BPE"
    )
    parser.add_argument("--wordpiece-vocab", type=Path, metavar="FILE", help="vocab.txt of BERT")
    parser.add_argument(
        "--results",
        nargs="*",
        type=Path,
        default=[],
        metavar="FILE",
        help="results of alibi-fairseq eval to quote in the model card",
    )


def run(args: argparse.Namespace) -> None:
    try:
        from ..huggingface.export import export
    except ImportError as error:
        if error.name in ("transformers", "safetensors", "tokenizers"):
            raise BadInput(MISSING.format(error.name)) from error
        raise
    converted = export(args.path, args.data, args.out, args.dict, vars(args), args.results)
    print(f"Wrote {args.out} as {converted.architecture}. {converted.reason}")
    print(f"Largest difference of log-probabilities: {converted.difference:.1e}")
