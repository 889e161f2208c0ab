"""Write ``benchmarks/README.md`` from the JSON of all benchmarks: ``python -m benchmarks.table``.

It also writes the sentence about other libraries in the README.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

from alibi_fairseq.errors import BadInput
from alibi_fairseq.files import atomic_write
from alibi_fairseq.results.schema import load_document

from .common import RESULTS

PAGE = Path(__file__).resolve().parent / "README.md"
README = PAGE.parent.parent / "README.md"
#: Stands above the sentence about peers, if they were measured, and an empty line.
MARK = "<!-- written by `python -m benchmarks.table`: do not edit -->\n"

HEAD = """# Benchmarks

<!-- written by `python -m benchmarks.table` from results/benchmarks/*.json: do not edit -->

| command | what it measures |
|---|---|
| `python -m benchmarks.train` | whole training steps beside stock fairseq and the authors' mask |
| `python -m benchmarks.attention` | attention alone, every backend beside torch's causal kernel |
| `python -m benchmarks.methods` | the paper's Table 1: all methods, training, evaluation, memory |
| `python -m benchmarks.output_layer` | training steps with our chunked losses, `--optimizer fused_adam` and `--compile` beside fairseq's |
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
        "Training steps by criterion and option",
        [
            ("model", "model", "{}"),
            ("criterion, option", "variant", "{}"),
            ("tokens/s", "tokens_per_second", "{:.0f}"),
            ("× fairseq's", "ratio", "{:.2f}"),
            ("peak memory, MB", "peak_memory_mb", "{:.0f}"),
            ("memory, × fairseq's", "memory_ratio", "{:.2f}"),
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
    "backends": (
        "ALiBi attention by backend and shape, forward and backward",
        [
            ("threads", "threads", "{}"),
            ("head size", "head_size", "{}"),
            ("heads", "heads", "{}"),
            ("length", "length", "{}"),
            ("weights", "weights", "{}"),
            ("scores kept", "kept_share", "{:.0%}"),
            ("sdpa, ms", "milliseconds", "{:.1f}"),
            ("fold, × sdpa", "fold", "{:.2f}"),
            ("skipping, × sdpa", "skipping", "{:.2f}"),
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
    peers = RESULTS / "peers-cpu.json"
    if peers.exists():
        line = peers_sentence(load_document(peers)) + "\n"
        text = README.read_text(encoding="utf-8")
        with atomic_write(README) as file:
            file.write(re.sub(rf"({re.escape(MARK)})(?:.+\n)*", lambda m: m[1] + line, text))


def peers_sentence(document: dict) -> str:
    """How much longer other libraries' training steps take at the greatest length."""
    longest = max(cell["length"] for cell in document["cells"])
    slower = {
        cell["variant"]: f"{cell['ours_is_faster']:.1f}"
        for cell in document["cells"]
        if cell["length"] == longest
    }
    return textwrap.fill(
        f"On {document['provenance']['threads']} CPU threads a training step of the same shape with ALiBi "
        f"at {longest:,} tokens takes {slower['bloom']} times as long with Hugging Face's BLOOM, and "
        f"{slower['x-transformers']} times with x-transformers ({slower['x-transformers, flash']} with its "
        "flash option): [benchmarks](benchmarks/README.md).",
        105,
        break_long_words=False,
        break_on_hyphens=False,
    )


def section(name: str, document: dict, file: str) -> str:
    """Heading, where it was measured, and the table."""
    heading, columns = COLUMNS[name]
    cells = side_by_side(document["cells"]) if name == "backends" else document["cells"]
    source = document["provenance"]
    hardware = source["hardware"]
    threads = source["threads"] or " and ".join(
        dict.fromkeys(str(part["threads"]) for part in source["parts"])
    )
    machine = hardware["gpu"] or f"{hardware['cpu']}, {threads} threads"
    commands = ", ".join(f"`{line}`" for line in source["command"].splitlines())
    shown = [c for c in columns if any(cell.get(c[1]) is not None for cell in cells)]
    lines = [
        f"## {heading}",
        "",
        f"{machine}; {source['precision']}; torch {source['versions']['torch']}; "
        f"{source['date'][:10]}; {commands}; "
        f"[{file}](../results/benchmarks/{file})",
        "",
        "| " + " | ".join(column[0] for column in shown) + " |",
        "|" + "---|" * len(shown),
    ]
    for cell in cells:
        values = (cell.get(key) for _, key, _ in shown)
        texts = (
            "–" if value is None else style.format(value)
            for value, (_, _, style) in zip(values, shown, strict=True)
        )
        lines.append("| " + " | ".join(texts) + " |")
    return "\n".join(lines) + "\n"


def side_by_side(cells: list[dict]) -> list[dict]:
    """One row for the backends of each training call, with the ratios to the first of them."""
    rows: dict[tuple, dict] = {}
    for cell in cells:
        if cell["phase"] == "train":
            names = ("threads", "head_size", "heads", "length", "weights")
            row = rows.setdefault(tuple(cell[name] for name in names), dict(cell))
            row[cell["variant"]] = cell["ratio"]
    return [rows[key] for key in sorted(rows)]


if __name__ == "__main__":
    try:
        main()
    except BadInput as error:
        sys.exit(f"benchmarks.table: {error}")
