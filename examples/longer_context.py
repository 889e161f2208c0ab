"""Context extension to four times the training length, by interpolation and by continued training.

    python examples/longer_context.py runs/demo/python-documentation

This example continues the training of the demo's ALiBi model, trained at 64 tokens, at 64
and at 256 tokens. It evaluates all three models from 64 to 1,024 tokens, with and without
interpolation. Every step is a command that it prints. Interrupted training runs are resumed, and
completed ones are skipped. It takes minutes on a CPU. It writes ``results.json`` (format of
docs/results.md), ``table.md``, and ``figure.svg``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from alibi_fairseq.files import atomic_write, read_json, sha256_file
from alibi_fairseq.reporting import plots
from alibi_fairseq.reporting.line_styles import LineStyle
from alibi_fairseq.reporting.plots import Panel, PlotLine
from alibi_fairseq.results.file import Results, load, save
from alibi_fairseq.results.provenance import Provenance, collect_provenance
from alibi_fairseq.results.result import Result
from alibi_fairseq.results.values import TextValues

SHORT = 64
LONG = 256
LENGTHS = (64, 128, 256, 512, 1024)
SEED = 1
LEARNING_RATE = 5e-4  # a quarter of the demo's

#: Training run of the checkpoint, its name in the table, and the interpolation.
ROWS = (
    ("start", f"trained at {SHORT}", "none"),
    ("start", f"trained at {SHORT}", "4"),
    ("start", f"trained at {SHORT}", "dynamic"),
    ("short", f"continued at {SHORT}", "none"),
    ("long", f"continued at {LONG}", "none"),
    ("long", f"continued at {LONG}", "dynamic"),
)


#: Color of a training run, and dash pattern and name of an interpolation, in the figure.
COLORS = {"start": "#777777", "short": "#56B4E9", "long": "#0072B2"}
DASHES = {"none": "-", "4": ":", "dynamic": "--"}
# The spaces are not broken.
NAMES = {
    "none": "",
    "4": ", slopes\u00a0÷\u00a04",
    "dynamic": ", slopes\u00a0÷\u00a0length\u00a0ratio",
}


def run_command(*arguments: object) -> None:
    """Print and run an ``alibi-fairseq`` command."""
    print("$ alibi-fairseq", *arguments, flush=True)
    subprocess.run([sys.executable, "-m", "alibi_fairseq", *map(str, arguments)], check=True)


def continue_training(start: Path, data: Path, folder: Path, length: int, updates: int) -> Path:
    """Train for more updates of 4,096 tokens, or resume, and return the checkpoint."""
    options = (
        "--task language_modeling --arch alibi_lm_tiny --sample-break-mode none --max-tokens 4096 "
        f"--optimizer adam --clip-norm 1.0 --lr-scheduler inverse_sqrt --seed {SEED} --cpu "
        "--num-workers 0 --no-epoch-checkpoints --log-format simple "
    )
    # By default, fairseq drops batches whose size is not a multiple of 8. In a short corpus, these
    # can be all batches.
    options += "--required-batch-size-multiple 1"
    run_command(
        "train",
        data,
        *options.split(),
        "--tokens-per-sample",
        length,
        "--finetune-from-model",
        start,
        "--adam-betas",
        "(0.9, 0.98)",
        "--lr",
        LEARNING_RATE,
        "--max-update",
        updates,
        "--warmup-updates",
        updates // 10,
        "--save-dir",
        folder,
    )
    return folder / "checkpoint_last.pt"


def record_settings(folder: Path, start: Path, updates: int) -> bool:
    """Record the model and the updates of the training runs in a folder.

    Returns:
        False if the folder has training runs from another model or with other updates.
    """
    settings = {"start_sha256": sha256_file(start), "updates": updates}
    path = folder / "settings.json"
    if path.is_file():
        return read_json(path) == settings
    with atomic_write(path) as stream:
        json.dump(settings, stream)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="corpus folder of the demo")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/longer-context"),
        help="output folder (default: runs/longer-context)",
    )
    parser.add_argument(
        "--updates", type=int, default=125, help="updates of the continued training (default: 125)"
    )
    args = parser.parse_args()
    began = time.monotonic()
    data = args.run / "data-bin"
    start = args.run / f"alibi-{SHORT}-seed1" / "checkpoint_last.pt"
    if not record_settings(args.out, start, args.updates):
        parser.error(
            f"{args.out} has training runs from another model or with other --updates. Pass "
            "another --out, or remove the folder."
        )
    checkpoints = {
        "start": start,
        "short": continue_training(start, data, args.out / "short", SHORT, args.updates),
        "long": continue_training(start, data, args.out / "long", LONG, args.updates),
    }
    results: list[Result] = []
    for name, label, scale in ROWS:
        slopes = "slopes as is" if scale == "none" else f"slopes ÷ {scale}"
        results_path = args.out / f"{name}-{scale}.json"
        for result in evaluate(checkpoints[name], data, scale, results_path):
            series = replace(result.series, label=f"{label}, {slopes}")
            results.append(replace(result, series=series))
    provenance = collect_provenance(
        seconds=time.monotonic() - began, seed=SEED, data=data, splits=["train", "valid"]
    )
    save(Results(results, Provenance(**provenance)), args.out / "results.json")
    with atomic_write(args.out / "table.md") as stream:
        stream.write(table(results))
    print(table(results))
    draw(results, args.out / "figure.svg")


def evaluate(checkpoint: Path, data: Path, scale: str, results_path: Path) -> list[Result]:
    """Evaluate a checkpoint at all lengths and return its results."""
    options = ["--lengths", ",".join(map(str, LENGTHS)), "--device", "cpu"]
    if scale != "none":
        options += ["--model-overrides", json.dumps({"alibi_scale": scale})]
    run_command("eval", data, "--path", checkpoint, *options, "--out", results_path)
    results = load(results_path).results
    # The file may also have results of other runs of the demo.
    checkpoint_sha256 = sha256_file(checkpoint)
    return [result for result in results if result.checkpoint_sha256 == checkpoint_sha256]


def perplexities(results: list[Result]) -> dict[str, dict[int, float]]:
    """Return the perplexity by row and length."""
    rows: dict[str, dict[int, float]] = {}
    for result in results:
        assert isinstance(result.values, TextValues)
        row = rows.setdefault(result.series.label, {})
        row[result.case.length] = result.values.perplexity
    return rows


def table(results: list[Result]) -> str:
    """Return a Markdown table of perplexities by length."""
    lines = ["| perplexity at | " + " | ".join(map(str, LENGTHS)) + " |"]
    lines.append("|---|" + "--:|" * len(LENGTHS))
    for label, values in perplexities(results).items():
        lines.append(f"| {label} | " + " | ".join(f"{values[n]:.1f}" for n in LENGTHS) + " |")
    return "\n".join(lines) + "\n"


def draw(results: list[Result], path: Path) -> None:
    """Plot perplexity by length: a color per training, and a dash pattern per interpolation."""
    rows = perplexities(results)
    lines = []
    for (training, label, scale), values in zip(ROWS, rows.values(), strict=True):
        style = LineStyle(COLORS[training], "o", DASHES[scale])
        lines.append(PlotLine(label + NAMES[scale], list(values), list(values.values()), style))
    title = f"ALiBi, trained at {SHORT} tokens and continued"
    plots.draw("", [Panel(title, lines, trained_at=SHORT)], path)


if __name__ == "__main__":
    main()
