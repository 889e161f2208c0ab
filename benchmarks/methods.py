"""The counterpart of Table 1, Figures 2 and 7 of the paper: ``python -m benchmarks.methods``.

Every position method at L = 512, 1024 and 3072: training speed, evaluation speed and peak memory,
as ratios to our own sinusoidal model in the same run, beside the paper's ratios (one V100). As in
the paper, attention dropout is 0.1 and an update at L = 3072 takes one pass per sequence; weights
are as initialised. Figure 7 has eight lengths:

    python -m benchmarks.methods --methods alibi sinusoidal \\
        --lengths 64 128 256 512 1024 1536 2048 3072
"""

from __future__ import annotations

import csv
import statistics
import time

from alibi_fairseq.positions import METHODS

from . import common, models
from .train import peak_memory, shape, stepper

BASELINE = "sinusoidal"
PAPER = common.RESULTS.parent / "paper" / "table01.csv"


def main() -> None:
    parser = common.parser(__doc__, "methods")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 3072])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--attention-dropout", type=float, default=0.1)
    args = parser.parse_args()
    if BASELINE not in args.methods:
        parser.error(f"--methods must include {BASELINE}, which the ratios are to")
    common.prepare(args)
    began, cells = time.time(), []
    for length in args.lengths:
        cells += measure(args, length)
    common.save(args, "methods", cells, began)


def paper_ratios() -> dict[tuple[str, int], dict[str, float]]:
    """Ratios to sinusoidal of the paper's Table 1, by method and length."""
    with PAPER.open(encoding="utf-8") as file:
        rows = {
            (row["position_method"], int(row["train_length"])): row for row in csv.DictReader(file)
        }
    columns = {
        "train_words_per_second": "paper_ratio",
        "eval_words_per_second": "paper_evaluation_ratio",
        "train_memory_gb": "paper_memory_ratio",
    }
    return {
        (method, length): {
            key: round(float(row[column]) / float(rows[BASELINE, length][column]), 3)
            for column, key in columns.items()
        }
        for (method, length), row in rows.items()
    }


def measure(args, length: int) -> list[dict]:
    """One cell per method."""
    dropout, passes = args.attention_dropout, shape().paper_passes(length)
    built = {name: stepper(name, length, dropout, passes) for name in args.methods}
    training = common.seconds_in_turns(
        {name: step for name, (_, step) in built.items()}, args.rounds, f"training at {length}"
    )
    dictionary = models.build(BASELINE, shape(), length)[1]
    evaluation = common.seconds_in_turns(
        {
            name: models.evaluation_step(model, dictionary, shape(), length)
            for name, (model, _) in built.items()
        },
        args.rounds,
        f"evaluation at {length}",
    )
    del built
    tokens = shape().batch(length) * length
    case = {"phase": "train", "model": shape().name, "weights": "random"}
    case |= {
        "train_length": length,
        "length": length,
        "attention_dropout": dropout,
        "passes": passes,
    }
    cells = common.cells_of(training, "table 1", BASELINE, tokens, **case)
    paper, memory = paper_ratios(), {}
    for name in args.methods:
        own = (name, length, dropout, passes)
        memory[name] = common.peak_memory_of(peak_memory, "benchmarks.train", *own)
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
