"""What certified skipping leaves out on a trained model: ``python -m benchmarks.skipping --path …``.

For every layer and head, at several lengths: the window that the certificate gives, and the share
of 128 × 128 blocks of the causal triangle that lie outside of it. ``--path`` is a checkpoint of an
ALiBi model and ``--data`` the folder it was trained on; the valid split is read. Beside it the same
model as initialised, because trained queries and keys are larger.
"""

from __future__ import annotations

import time
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor

from alibi_fairseq.attention.skipping import certify
from alibi_fairseq.errors import BadInput
from alibi_fairseq.evaluation.checkpoint import load_checkpoint
from alibi_fairseq.evaluation.data import load_dictionary, load_split
from alibi_fairseq.models import self_attention
from alibi_fairseq.positions.alibi import LinearBias

from . import common

BLOCK = 128


def main() -> None:
    parser = common.parser(__doc__, "skipping")
    parser.add_argument("--path", type=Path, required=True, help="checkpoint of an ALiBi model")
    parser.add_argument("--data", type=Path, required=True, help="fairseq's data folder")
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 3072, 8192])
    args = parser.parse_args()
    common.prepare(args)
    began, cells = time.time(), []
    for length in args.lengths:
        layers, bias = capture(args.path, args.data, "valid", length)
        if not isinstance(bias, LinearBias):
            raise BadInput(f"{args.path} is not an ALiBi model, so nothing can be skipped.")
        for layer, (q, k, _) in enumerate(layers):
            cells += cells_of_layer(q, k, bias, layer, "trained")
        shares = [cell["skipped_share"] for cell in cells if cell["length"] == length]
        print(f"{length:6d} tokens: {sum(shares) / len(shares):.1%} of all blocks are skipped")
    q, k = (torch.randn(1, 8, max(args.lengths), 64) * 0.5**0.5 for _ in range(2))
    cells += cells_of_layer(q, k, LinearBias(8), 0, "random")
    common.save(args, "skipping", cells, began)


def capture(path: Path, data: Path, subset: str, length: int) -> tuple[list, object]:
    """Run a checkpoint over the first tokens of a split.

    Args:
        path: a checkpoint of this project's models.
        data: fairseq's binary data folder.
        length: number of tokens; the model may have been trained on fewer.

    Returns:
        One (q, k, v) per layer, each (1, H, T, D) with rotations applied; and the bias of the
        method.
    """
    dictionary = load_dictionary(data)
    loaded = load_checkpoint(path, data, dictionary, torch.device("cpu"))
    inputs = torch.from_numpy(load_split(data, subset, dictionary).inputs(length))[:length]
    layers: list[tuple[Tensor, Tensor, Tensor]] = []
    biases = []
    attend = self_attention.attend

    def recording(q, k, v, mask, **options):
        layers.append((q.detach(), k.detach(), v.detach()))
        biases.append(mask.bias)
        return attend(q, k, v, mask, **options)

    with mock.patch.object(self_attention, "attend", recording), torch.no_grad():
        loaded.decoder.extract_features(inputs[None].long())
    return layers, biases[0]


def cells_of_layer(q, k, bias: LinearBias, layer: int, weights: str) -> list[dict]:
    """One cell per head."""
    certificate = certify(q, k, bias.slopes(q.device))
    length = q.shape[2]
    return [
        {
            "name": "certified skipping",
            "baseline": None,
            "ratio": None,
            "weights": weights,
            "length": length,
            "layer": layer,
            "head": head,
            "slope": slope,
            "rise": round(rise, 3),
            "window": int(window),
            "skipped_share": round(skipped_share(int(window), length), 4),
        }
        for head, (slope, rise, window) in enumerate(
            zip(
                bias.slopes(q.device).tolist(),
                certificate.rise.amax(dim=0).tolist(),
                certificate.windows.amax(dim=0).tolist(),
                strict=True,
            )
        )
    ]


def skipped_share(window: int, length: int) -> float:
    """Share of the blocks of the causal triangle that no query reaches with its window."""
    rows = -(-length // BLOCK)
    skipped = sum(max(0, row * BLOCK - window) // BLOCK for row in range(rows))
    return skipped / (rows * (rows + 1) / 2)


if __name__ == "__main__":
    main()
