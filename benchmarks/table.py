"""Write ``benchmarks/README.md`` from the JSON of all benchmarks: ``python -m benchmarks.table``."""

from __future__ import annotations

import sys
from pathlib import Path

from alibi_fairseq.errors import BadInput
from alibi_fairseq.files import atomic_write
from alibi_fairseq.results.schema import load_document

from .common import RESULTS

PAGE = Path(__file__).resolve().parent / "README.md"

HEAD = """# Benchmarks

<!-- written by `python -m benchmarks.table` from results/benchmarks/*.json: do not edit -->

| command | what it measures |
|---|---|
| `python -m benchmarks.train` | whole training steps beside stock fairseq and the authors' mask |
| `python -m benchmarks.attention` | attention alone, every backend beside torch's causal kernel |
| `python -m benchmarks.methods` | the paper's Table 1: all methods, training, evaluation, memory |
| `python -m benchmarks.output_layer` | training steps with our chunked losses beside fairseq's |
| `python -m benchmarks.step` | training steps with `--optimizer fused_adam` beside fairseq's |
| `python -m benchmarks.peers` | training steps beside Hugging Face's BLOOM and x-transformers |
| `python -m benchmarks.backends` | every backend on calls of many shapes |
| `python -m benchmarks.generate` | decoding with cached keys |
| `python -m benchmarks.evaluate` | our evaluator beside `fairseq-eval-lm` |
| `python -m benchmarks.skipping --path CHECKPOINT --data DATA_BIN` | what is skipped on trained weights |
| `python -m benchmarks.data_prep SOURCE …` | preparing gigabytes of text: time and memory ([results](../results/data-prep/cc100-roberta.md)) |
| `python -m benchmarks.profile` | where the time of a training step goes (`profiles/`) |
| `python -m benchmarks.suite` | all of them that need no checkpoint, then this page |

`--quick` takes fewer lengths and rounds. Variants run in turns (A B A B …); speeds are medians, and
ratios are medians over rounds of the ratio within a round, so that what else the machine does falls
on both sides. Read ratios, not seconds. "Random" weights are as initialised; "trained" ones are
larger, so less can be skipped; those measured here are of `./scripts/demo.sh --methods alibi` (3 layers
of width 128, trained at L = 64). Peak memory is that of one model in a process of its own.
"""

#: Heading and columns of each benchmark: (heading, key, format).
COLUMNS = {
    "train": (
        "Training steps",
        [
            ("model", "variant", "{}"),
            ("length", "length", "{}"),
            ("attention dropout", "attention_dropout", "{}"),
            ("weights", "weights", "{}"),
            ("tokens/s", "tokens_per_second", "{:.0f}"),
            ("× stock", "ratio", "{:.2f}"),
            ("× materialised", "ratio_to_materialised", "{:.2f}"),
            ("peak memory, MB", "peak_memory_mb", "{:.0f}"),
            ("share of matrix-product peak", "share_of_peak", "{:.0%}"),
        ],
    ),
    "attention": (
        "Attention alone, forward and backward",
        [
            ("variant", "variant", "{}"),
            ("length", "length", "{}"),
            ("weights", "weights", "{}"),
            ("ms", "milliseconds", "{:.1f}"),
            ("× causal kernel without bias", "ratio", "{:.2f}"),
            ("share of matrix-product peak", "share_of_peak", "{:.0%}"),
        ],
    ),
    "methods": (
        "The paper's Table 1: ratios to sinusoidal, ours and the paper's",
        [
            ("method", "position_method", "{}"),
            ("length", "length", "{}"),
            ("training", "ratio", "{:.2f}"),
            ("paper", "paper_ratio", "{:.2f}"),
            ("evaluation", "evaluation_ratio", "{:.2f}"),
            ("paper", "paper_evaluation_ratio", "{:.2f}"),
            ("memory", "memory_ratio", "{:.2f}"),
            ("paper", "paper_memory_ratio", "{:.2f}"),
            ("tokens/s, training", "tokens_per_second", "{:.0f}"),
            ("tokens/s, evaluation", "evaluation_tokens_per_second", "{:.0f}"),
        ],
    ),
    "output_layer": (
        "Training steps by criterion",
        [
            ("model", "model", "{}"),
            ("criterion", "variant", "{}"),
            ("tokens/s", "tokens_per_second", "{:.0f}"),
            ("× fairseq's", "ratio", "{:.2f}"),
            ("peak memory, MB", "peak_memory_mb", "{:.0f}"),
            ("memory, × fairseq's", "memory_ratio", "{:.2f}"),
        ],
    ),
    "step": (
        "Training steps by optimiser",
        [
            ("model", "model", "{}"),
            ("optimiser", "variant", "{}"),
            ("tokens/s", "tokens_per_second", "{:.0f}"),
            ("× fairseq's", "ratio", "{:.2f}"),
        ],
    ),
    "peers": (
        "Training steps beside other libraries' ALiBi",
        [
            ("model", "variant", "{}"),
            ("version", "version", "{}"),
            ("length", "length", "{}"),
            ("tokens/s", "tokens_per_second", "{:.0f}"),
            ("ours is faster by", "ours_is_faster", "{:.2f}"),
        ],
    ),
    "generate": (
        "Generation with cached keys, 4 sequences",
        [
            ("model", "variant", "{}"),
            ("prompt", "prompt", "{}"),
            ("new tokens", "new_tokens", "{}"),
            ("tokens/s", "tokens_per_second", "{:.1f}"),
            ("× stock", "ratio", "{:.2f}"),
        ],
    ),
    "skipping": (
        "Share of blocks that certified skipping leaves out",
        [
            ("weights", "weights", "{}"),
            ("length", "length", "{}"),
            ("layer", "layer", "{}"),
            ("head", "head", "{}"),
            ("slope", "slope", "{:.4g}"),
            ("rise", "rise", "{:.1f}"),
            ("window", "window", "{}"),
            ("skipped", "skipped_share", "{:.0%}"),
        ],
    ),
}


def main() -> None:
    parts = [HEAD]
    for path in sorted(RESULTS.glob("*.json")):
        name, document = path.stem.split("-")[0], load_document(path)
        if name in COLUMNS:
            parts.append(section(name, document, path.name))
    with atomic_write(PAGE) as file:
        file.write("\n".join(parts))
    print(f"written to {PAGE}")


def section(name: str, document: dict, file: str) -> str:
    """Heading, where it was measured, and the table."""
    heading, columns = COLUMNS[name]
    source = document["provenance"]
    hardware = source["hardware"]
    machine = hardware["gpu"] or f"{hardware['cpu']}, {source['threads']} threads"
    shown = [c for c in columns if any(cell.get(c[1]) is not None for cell in document["cells"])]
    lines = [
        f"## {heading}",
        "",
        f"{machine}; {source['precision']}; torch {source['versions']['torch']}; "
        f"{source['date'][:10]}; `{source['command']}`; "
        f"[{file}](../results/benchmarks/{file})",
        "",
        "| " + " | ".join(column[0] for column in shown) + " |",
        "|" + "---|" * len(shown),
    ]
    for cell in document["cells"]:
        values = (cell.get(key) for _, key, _ in shown)
        texts = (
            "–" if value is None else style.format(value)
            for value, (_, _, style) in zip(values, shown, strict=True)
        )
        lines.append("| " + " | ".join(texts) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    try:
        main()
    except BadInput as error:
        sys.exit(f"benchmarks.table: {error}")
