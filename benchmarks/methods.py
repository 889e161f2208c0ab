"""The counterpart of Table 1, Figures 2 and 7 of the paper: ``python -m benchmarks.methods``.

Every position method at L = 512, 1024 and 3072: training speed, evaluation speed and peak memory,
as ratios to our own sinusoidal model in the same run, beside the paper's ratios (one V100). As in
the paper, attention dropout is 0.1 and an update at L = 3072 takes one pass per sequence; weights
are as initialised. Figure 7 has eight lengths:

    python -m benchmarks.methods --methods alibi sinusoidal \\
        --lengths 64 128 256 512 1024 1536 2048 3072
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from alibi_fairseq.errors import BadInput
from alibi_fairseq.paper import published
from alibi_fairseq.positions import METHODS

from . import common, models

BASELINE = "sinusoidal"


def main() -> None:
    parser = common.parser(__doc__, "methods")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 3072])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--attention-dropout", type=float, default=0.1)
    common.run(parser, "methods", measure)


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
    if BASELINE not in args.methods:
        raise BadInput(f"--methods must include {BASELINE}, which the ratios are to.")
    for length in args.lengths:
        yield from measure_at(args, length)


def measure_at(args, length: int) -> list[dict]:
    shape, dropout = models.shape(), args.attention_dropout
    passes = shape.paper_passes(length)
    built = {name: models.stepper(name, shape, length, dropout, passes) for name in args.methods}
    steps = {name: step for name, (_, step) in built.items()}
    training = common.seconds_in_turns(steps, args.rounds, f"training at {length}")
    dictionary = models.build(BASELINE, shape, length)[1]
    steps = {
        name: models.evaluation_step(model, dictionary, shape, length)
        for name, (model, _) in built.items()
    }
    evaluation = common.seconds_in_turns(steps, args.rounds, f"evaluation at {length}")
    del built, steps
    tokens = shape.batch(length) * length
    case = {"phase": "train", "model": shape.name, "weights": "random", "train_length": length}
    case |= {"length": length, "attention_dropout": dropout, "passes": passes}
    cells = common.cells_of(training, "table 1", BASELINE, tokens, **case)
    paper = paper_ratios()
    memory = {
        name: models.peak_memory(name, shape, length, dropout, passes) for name in args.methods
    }
    for cell in cells:
        name = cell["position_method"] = cell.pop("variant")
        seconds = statistics.median(evaluation[name])
        cell |= {
            "evaluation_ratio": round(common.ratio(evaluation, name, BASELINE), 3),
            "evaluation_tokens_per_second": round(tokens / seconds, 1),
            "peak_memory_mb": round(memory[name], 1),
            "memory_ratio": round(memory[name] / memory[BASELINE], 3),
            **paper.get((name, length), {}),
        }
    return cells


if __name__ == "__main__":
    main()
