"""``alibi-fairseq import-hf``: convert a Hugging Face model to a checkpoint."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from ..errors import BadInput
from .export import MISSING


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="a BLOOM, OPT, XGLM or GPT-NeoX model on disk"
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder to write")


def run(args: argparse.Namespace) -> None:
    try:
        from ..huggingface.importing import import_folder
    except ImportError as error:
        if error.name in ("transformers", "safetensors"):
            raise BadInput(MISSING.format(error.name)) from error
        raise
    imported = import_folder(args.folder)
    imported.save(args.out)
    print(f"Wrote {args.out}/checkpoint_best.pt and {args.out}/dict.txt.")
    print(f"Largest difference of log-probabilities: {imported.difference:.1e}")
    if imported.unknown:
        unknown = ", ".join(imported.unknown)
        print(f"The model has no token for {unknown}; their embeddings are zero.")
    print("To train on, add to alibi-fairseq train:")
    model = f"--finetune-from-model {shlex.quote(str(args.out / 'checkpoint_best.pt'))}"
    print(f"  {model} --task language_modeling {shlex.join(imported.flags)}")
