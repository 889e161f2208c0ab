"""The start of ``benchmarks/README.md``: what the benchmarks show, in sentences and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from alibi_fairseq.reporting import plots
from alibi_fairseq.reporting.line_styles import LineStyle, method_style
from alibi_fairseq.reporting.page import fill_file
from alibi_fairseq.reporting.plots import Panel, PlotLine

#: Values of the records of each results file, by the name of the file without its suffix.
Records = Mapping[str, Sequence[Mapping]]

TEMPLATE = Path(__file__).with_name("summary.md")
#: Files that the summary and its figure need.
FILES = ("train-cpu", "attention-cuda", "output_layer-cpu", "huggingface-cpu")
#: Length of the comparison on a GPU: the longest that all backends could compute.
GPU_LENGTH = 8192

OURS = method_style("ALiBi")
THEIRS = LineStyle("#555555", "s", "--")


def write_summary(records: Records, figure: Path) -> str:
    """Draw the figure, and return the sentences; nothing if a results file is missing."""
    if any(name not in records for name in FILES):
        return ""
    draw(records, figure)
    steps = ratios(records["train-cpu"], "ratio", variant="alibi")
    (chunked,) = select(records["output_layer-cpu"], variant="chunked_adaptive_loss")
    theirs = bloom_memory(records, "eager")
    ours = bloom_memory(records, "alibi_fairseq")
    slots = {
        "shortest": f"{min(steps):,}",
        "longest": f"{max(steps):,}",
        "shortest_speed": f"{steps[min(steps)]:.2f}",
        "longest_speed": f"{steps[max(steps)]:.2f}",
        "gpu_length": f"{GPU_LENGTH:,}",
        "flex": percent(gpu_speed(records, "flex")),
        "mask": percent(gpu_speed(records, "materialised: (B·H, T, T) mask")),
        "chunked_model": chunked["model"],
        "chunked_speed": f"{chunked['ratio']:.1f}",
        "chunked_memory": percent(chunked["memory_ratio"]),
        "memory_length": f"{max(ours):,}",
        "memory_ours": f"{ours[max(ours)]:,.0f}",
        "memory_theirs": f"{theirs[max(ours)]:,.0f}",
        "figure": figure.name,
    }
    return fill_file(TEMPLATE, slots)


def draw(records: Records, path: Path) -> None:
    """Draw the speed of a training step, and the memory of a pass of BLOOM, by length."""
    step_lines = []
    for variant, label, style in (
        ("stock", "fairseq (sinusoidal)", THEIRS),
        ("sinusoidal", "Ours, sinusoidal", method_style("Sinusoidal")),
        ("alibi", "Ours, ALiBi", OURS),
    ):
        step_lines.append(
            line(label, ratios(records["train-cpu"], "ratio", variant=variant), style)
        )
    memory_lines = [
        line("transformers", bloom_memory(records, "eager"), THEIRS),
        line("Ours", bloom_memory(records, "alibi_fairseq"), OURS),
    ]
    panels = [
        panel("Training step on a CPU", step_lines, "Speed relative to fairseq"),
        panel("BLOOM, training pass", memory_lines, "Memory beyond the weights (MB)"),
    ]
    plots.draw("", panels, path)


def panel(title: str, lines: Sequence[PlotLine], y: str) -> Panel:
    """Return a panel of lines over the length, whose y axis starts at zero."""
    highest = max(max(drawn.y) for drawn in lines)
    limits = (0, 1.1 * highest)
    return Panel(title, lines, "Length (tokens)", y, y_limits=limits)


def line(label: str, values: Mapping[int, float], style: LineStyle) -> PlotLine:
    """Return a line over the length."""
    lengths = sorted(values)
    return PlotLine(label, lengths, [values[length] for length in lengths], style)


def bloom_memory(records: Records, variant: str) -> dict[int, float]:
    """Return the MB of a training pass of BLOOM beyond the weights, by length."""
    return ratios(
        records["huggingface-cpu"],
        "peak_memory_mb",
        model="bloom",
        phase="train",
        variant=variant,
    )


def gpu_speed(records: Records, variant: str) -> float:
    """Return the speed of attention on a GPU, relative to the causal kernel without a bias."""
    case = {"variant": variant, "weights": "random", "length": GPU_LENGTH}
    (record,) = select(records["attention-cuda"], **case)
    return record["ratio"]


def ratios(records: Sequence[Mapping], key: str, **case: str) -> dict[int, float]:
    """Return a measured value of the records of a case, by length."""
    values = {}
    for record in select(records, **case):
        assert record["length"] not in values, "a case has one record of each length"
        values[record["length"]] = record[key]
    return values


def select(records: Sequence[Mapping], **case: object) -> list[Mapping]:
    """Return the records that have the given values."""
    return [
        record for record in records if all(record.get(key) == value for key, value in case.items())
    ]


def percent(ratio: float) -> str:
    """Format a ratio as a percentage."""
    return f"{100 * ratio:.0f}%"
