"""The counterpart of Table 1, Figures 2 and 7 of the paper: ``python -m benchmarks.methods``.

Every position method at L = 512, 1024 and 3072: training speed, evaluation speed and peak memory,
as ratios to our own sinusoidal model in the same run, beside the paper's ratios (one V100). As in
the paper, attention dropout is 0.1 and an update at L = 3072 takes one pass per sequence; weights
are as initialised. Figure 7 has eight lengths:

    python -m benchmarks.methods --methods alibi sinusoidal \\
        --lengths 64 128 256 512 1024 1536 2048 3072
"""

from __future__ import annotations

from collections.abc import Iterator

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.paper import published
from alibi_fairseq.positions import METHODS

from . import common, models

BASELINE = "sinusoidal"
DROPOUT = 0.1


def main() -> None:
    common.run(
        __doc__,
        "methods",
        measure,
        lengths={"type": int, "nargs": "+", "default": [512, 1024, 3072]},
        methods={"nargs": "+", "default": list(METHODS)},
    )


def paper_ratios() -> dict[tuple[str, int], dict[str, float]]:
    """Ratios to sinusoidal of the paper's Table 1, by method and length."""
    rows = {(row["position_method"], row["train_length"]): row for row in published.rows("table01")}
    columns = {
        "train_words_per_second": "paper_ratio",
        "eval_words_per_second": "paper_evaluation_ratio",
        "train_memory_gb": "paper_memory_ratio",
    }
    return {
        (method, length): {
            key: round(row[column] / rows[BASELINE, length][column], 3)
            for column, key in columns.items()
        }
        for (method, length), row in rows.items()
    }


def measure(args) -> Iterator[dict]:
    """One cell per length and method."""
    if BASELINE not in args.methods:
        raise UserInputError(f"--methods must include {BASELINE}, which the ratios are to.")
    paper, shape = paper_ratios(), models.shape()
    for length in args.lengths:
        passes = shape.paper_passes(length)
        variants = {name: (name, shape, length, DROPOUT, passes) for name in args.methods}
        case = {"train_length": length, "attention_dropout": DROPOUT, "passes": passes}
        training = models.compare_steps(
            variants, args.rounds, "table 1", BASELINE, phase="train", **case
        )
        steps = {name: models.evaluation_step(name, shape, length) for name in args.methods}
        tokens = shape.batch(length) * length
        evaluation = common.compare(
            steps, args.rounds, "table 1", BASELINE, tokens, phase="evaluate", length=length
        )
        for cell, evaluated in zip(training, evaluation):
            name = cell["position_method"] = cell.pop("variant")
            cell["evaluation_ratio"] = evaluated["ratio"]
            cell["evaluation_tokens_per_second"] = evaluated["tokens_per_second"]
            yield cell | paper.get((name, length), {})


if __name__ == "__main__":
    main()
