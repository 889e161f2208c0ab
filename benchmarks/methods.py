"""Table 1 and Figures 2 and 7 of the paper: ``python -m benchmarks.methods``.

Measures training speed, evaluation speed, and peak memory of every position method at L = 512,
1024, and 3072. They are given as ratios to our sinusoidal model in the same run, next to the
paper's ratios (one V100). As in the paper, attention dropout is 0.1 and an update at L = 3072 takes
one pass per sequence. Weights are random. On a GPU, the weights, gradients, and Adam states of all
methods take about 47 GB together, plus the activations of one model. Figure 7 has eight lengths:

    python -m benchmarks.methods --methods alibi sinusoidal \\
        --lengths 64 128 256 512 1024 1536 2048 3072
"""

from __future__ import annotations

from collections.abc import Iterator

from alibi_fairseq.positions import METHODS

from . import common, models
from .paper_ratios import BASELINE, paper_ratios

DROPOUT = 0.1


def main() -> None:
    common.run(
        __doc__,
        "methods",
        measure,
        lengths={
            "type": int,
            "nargs": "+",
            "default": [512, 1024, 3072],
            "help": "training lengths in tokens (default: 512 1024 3072)",
        },
        methods={
            "nargs": "+",
            "choices": list(METHODS),
            "default": list(METHODS),
            "metavar": "METHOD",
            "help": f"position methods to compare with {BASELINE} (default: all)",
        },
    )


def measure(args) -> Iterator[dict]:
    """Yield one result record per length and method."""
    methods = dict.fromkeys([*args.methods, BASELINE])
    paper = paper_ratios()
    shape = models.default_shape()
    for length in args.lengths:
        passes = shape.paper_passes(length)
        steps = models.build_training_steps(
            {name: models.StepConfig(name, shape, length, DROPOUT, passes) for name in methods}
        )
        training = models.compare_steps(
            steps,
            args.rounds,
            "table 1",
            BASELINE,
            phase="train",
            train_length=length,
            attention_dropout=DROPOUT,
            passes=passes,
        )
        evaluation = common.compare(
            {name: models.make_evaluation_step(step) for name, step in steps.items()},
            args.rounds,
            "table 1",
            BASELINE,
            shape.batch(length) * length,
            phase="evaluate",
            length=length,
        )
        for record, evaluation_record in zip(training, evaluation):
            name = record.pop("variant")
            record["position_method"] = name
            record["evaluation_ratio"] = evaluation_record["ratio"]
            record["evaluation_tokens_per_second"] = evaluation_record["tokens_per_second"]
            record.update(paper.get((name, length), {}))
            yield record


if __name__ == "__main__":
    main()
