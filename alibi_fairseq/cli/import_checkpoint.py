"""``alibi-fairseq import-checkpoint``: convert a released checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from ..checkpoints import read_checkpoint
from ..checkpoints.released import Import, import_released, read_dictionary
from ..errors import BadInput


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="IN.pt", help="checkpoint of the authors' release")
    parser.add_argument("--dict", required=True, help="its training dictionary")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="load the result with fairseq and compare every tensor with the file's",
    )


def run(args: argparse.Namespace) -> None:
    dictionary = read_dictionary(args.dict)
    imported = import_released(read_checkpoint(args.checkpoint), dictionary, args.checkpoint)
    path = imported.save(args.out, args.dict)
    print(f"Wrote {path} and dict.txt beside it.")
    if args.verify:
        verify(imported, path)


def verify(imported: Import, path: Path) -> None:
    """Load the written file as fairseq-eval-lm does and print what it holds.

    Raises:
        BadInput: a tensor did not arrive as it was.
    """
    from fairseq import checkpoint_utils

    (model,), cfg, _ = checkpoint_utils.load_model_ensemble_and_task(
        [str(path)], arg_overrides={"data": str(path.parent)}
    )
    arrived, used = model.state_dict(), imported.state["model"]
    for name, weights in used.items():
        if not torch.equal(arrived[name], weights.to(arrived[name].dtype)):
            raise BadInput(f"{name} changed on the way into {path}; remove the file and try again.")
    total = len(used) + len(imported.dropped)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    left = f"; nothing reads {', '.join(imported.dropped)}" if imported.dropped else ""
    print(f"parameters  {parameters:,}")
    print(f"L           {cfg.model.train_length}, position method {cfg.model.position_method}")
    print(f"tensors     {len(used)} of the file's {total} used, all equal{left}")
