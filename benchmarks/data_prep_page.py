"""The page of :mod:`benchmarks.data_prep`: what was measured, and what it means for the paper's 461 GB."""

from __future__ import annotations

from alibi_fairseq.data.cc100_roberta import PAPER_BYTES, Cc100Roberta, most_workers

NAME = "preparation of cc100-roberta"
# Stage -> whether its work grows with the text; the other two look at a sample of fixed size.
STAGES = {
    "reading": True,
    "tokeniser": False,
    "validation": False,
    "tokenising": True,
    "joining": True,
}
_SAYS = {
    "reading": "reading, normalising, sorting by random keys",
    "tokeniser": "training the tokeniser on a sample",
    "validation": "the validation set",
    "tokenising": "shuffling and tokenising to binary data",
    "joining": "joining parts to shards, hashing all files",
}
_MEMORIES = (4, 24)  # GB


def page(document: dict) -> str:
    """Markdown of a document that the benchmark wrote; ends with a line end."""
    cells = document["cells"]
    sizes = [cell for cell in cells if cell["stage"] == "all"]
    largest = max(sizes, key=lambda cell: cell["text_mb"])
    stages = {
        cell["stage"]: cell
        for cell in cells
        if cell["text_gb"] == largest["text_gb"] and cell["stage"] in STAGES
    }
    hardware = document["provenance"]["hardware"]
    return "\n".join(
        [
            "# Preparing text for CC100+RoBERTa: time and memory",
            "",
            "Written by `python -m benchmarks.data_prep`; the numbers are those of "
            "[the JSON beside it](cc100-roberta.json).",
            "",
            f"Real text, repeated, on {hardware['cores']} cores of {hardware['cpu']} with "
            f"{largest['workers']} workers and `--memory {largest['memory_limit_gb']:g}`. Other work on "
            "the machine may have made it slower; processor time hardly depends on that.",
            "",
            "| text, GB | seconds | MB/s | processor seconds | peak memory of all processes, MB |",
            "|--:|--:|--:|--:|--:|",
            *(
                f"| {cell['text_gb']} | {cell['seconds']:,.0f} | {cell['mb_per_second']:.2f} | "
                f"{cell['core_seconds']:,.0f} | {cell['peak_memory_mb']:,.0f} |"
                for cell in sizes
            ),
            "",
            f"The stages of the {largest['text_gb']} GB:",
            "",
            "| stage | seconds | MB/s | processor seconds | MB per processor second | peak memory, MB |",
            "|---|--:|--:|--:|--:|--:|",
            *(_stage(name, stages[name]) for name in STAGES),
            "",
            *_extrapolation(largest, stages),
            "",
        ]
    )


def _stage(name: str, cell: dict) -> str:
    rate = f"{cell['mb_per_second']:.1f}" if STAGES[name] else "–"
    own = f"{cell['text_mb'] / max(cell['core_seconds'], 0.1):.1f}" if STAGES[name] else "–"
    return (
        f"| {_SAYS[name]} | {cell['seconds']:,.0f} | {rate} | {cell['core_seconds']:,.0f} | "
        f"{own} | {cell['peak_memory_mb']:,.0f} |"
    )


def _extrapolation(largest: dict, stages: dict[str, dict]) -> list[str]:
    factor = PAPER_BYTES / 1e6 / largest["text_mb"]
    grows = factor * sum(stages[s]["core_seconds"] for s, growing in STAGES.items() if growing)
    fixed = sum(stages[s]["core_seconds"] for s, growing in STAGES.items() if not growing)
    shards = round(PAPER_BYTES / 4e9)
    lines = [
        f"## {PAPER_BYTES / 1e9:.0f} GB, extrapolated",
        "",
        "In proportion for what grows with the text, unchanged for what works on a sample, and as if "
        "the processor were what it waits for; disks and file servers may be slower.",
        "",
        f"- {(grows + fixed) / 3600:,.0f} core hours on such cores, of which {fixed / 3600:.2f} do not "
        "spread over processes",
    ]
    for memory in _MEMORIES:
        workers = most_workers(memory)
        hours = (grows / workers + fixed) / 3600
        lines.append(f"- {hours:,.1f} hours with `--memory {memory}` on {workers} cores")
    lines += [
        f"- {factor * largest['data_bin_mb'] / 1e6:.2f} TB of binary data with "
        f"{factor * largest['tokens'] / 1e9:,.0f} billion tokens, in {shards} shards; "
        f"{Cc100Roberta.disk_needed([]) / 1e12:.2f} TB while it is made, the text itself not included",
    ]
    return lines
