"""The step around attention: ``python -m benchmarks.step [--quick]``.

Whole training steps of our ALiBi models with our chunked losses, with fairseq's Adam and with
``--optimizer fused_adam``, in turns in one process: the models of ``benchmarks.output_layer``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from fairseq.optim.adam import Adam

from . import common, models, output_layer

BASELINE = "adam"
VARIANTS: dict[str, Callable] = {
    BASELINE: Adam,
    "fused_adam": lambda parameters, lr: torch.optim.AdamW(parameters, lr, fused=True),
}


def main() -> None:
    parser = common.parser(__doc__, "step")
    parser.add_argument("--softmax", choices=["adaptive", "plain"], help="default: both models")
    args = parser.parse_args()
    common.prepare(args)
    began, cells = time.time(), []
    for shape in output_layer.shapes():
        if args.softmax in (None, output_layer.kind_of(shape)):
            cells += measure(args, shape)
    common.save(args, "step", cells, began)


def measure(args, shape: models.Shape) -> list[dict]:
    """One cell per variant."""
    where, length = common.device(), output_layer.LENGTH
    steps = {}
    for name, optimiser in VARIANTS.items():
        torch.manual_seed(1)
        model, dictionary = models.build("alibi", shape, length)
        model.to(where, common.precision(where))
        chunked = replace(shape, criterion=f"chunked_{shape.criterion}")
        steps[name] = models.training_step(model, dictionary, chunked, length, optimiser=optimiser)
    times = common.seconds_in_turns(steps, args.rounds, shape.name)
    cells, tokens = [], shape.batch(length) * length
    for name in VARIANTS:
        seconds = statistics.median(times[name])
        cells.append(
            {
                "name": f"training step, {name}",
                "variant": name,
                "model": shape.name,
                "weights": "random",
                "length": length,
                "batch": shape.batch(length),
                "rounds": args.rounds,
                "baseline": BASELINE,
                "ratio": round(common.ratio(times, name, BASELINE), 3),
                "seconds": round(seconds, 4),
                "tokens_per_second": round(tokens / seconds, 1),
            }
        )
        print(f"{shape.name}  {name:12s} {tokens / seconds:8.0f} tokens/s  "
              f"{cells[-1]['ratio']:.2f} x", flush=True)  # fmt: skip
    return cells


if __name__ == "__main__":
    main()
