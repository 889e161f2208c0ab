"""A trained model at four times its length: by interpolation, by training on, and by both.

    python examples/longer_context.py runs/demo/python-documentation

Goes on with the demonstration's ALiBi model, trained at 64 tokens, at 64 and at 256 tokens, and evaluates
all three from 64 to 1,024 tokens, with and without interpolation. Everything is a command that a user
could type; finished trainings are kept. Takes minutes on a CPU. Writes ``results.json``
(format of docs/results.md), ``table.md`` and ``figure.png``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from alibi_fairseq.files import atomic_write
from alibi_fairseq.results.provenance import collect_provenance
from alibi_fairseq.results.schema import new_results_file, save_results_file

SHORT, LONG = 64, 256
LENGTHS = (64, 128, 256, 512, 1024)
SEED = 1
RATE = 5e-4  # a quarter of the demonstration's

#: Checkpoint of which training run, its name in the table, and the interpolation.
ROWS = (
    ("start", f"trained at {SHORT}", "none"),
    ("start", f"trained at {SHORT}", "4"),
    ("start", f"trained at {SHORT}", "dynamic"),
    ("short", f"continued at {SHORT}", "none"),
    ("long", f"continued at {LONG}", "none"),
    ("long", f"continued at {LONG}", "dynamic"),
)


def command(*arguments: object) -> None:
    print("$ alibi-fairseq", *arguments, flush=True)
    subprocess.run([sys.executable, "-m", "alibi_fairseq", *map(str, arguments)], check=True)


def go_on(start: Path, data: Path, folder: Path, length: int, updates: int) -> Path:
    """A checkpoint after so many more updates of 4,096 tokens; one that is there is kept."""
    checkpoint = folder / "checkpoint_last.pt"
    if not checkpoint.is_file():
        model = "--task language_modeling --arch alibi_lm_tiny --sample-break-mode none"
        training = f"--optimizer adam --clip-norm 1.0 --lr-scheduler inverse_sqrt --seed {SEED}"
        running = (
            "--max-tokens 4096 --num-workers 0 --no-epoch-checkpoints --log-format simple --cpu"
        )
        options = [*model.split(), *training.split(), *running.split()]
        options += ["--tokens-per-sample", length, "--finetune-from-model", start]
        # fairseq drops batches whose size is no multiple of this: on a short text, all of them.
        options += ["--required-batch-size-multiple", 1]
        options += ["--adam-betas", "(0.9, 0.98)", "--lr", RATE]
        options += ["--max-update", updates, "--warmup-updates", updates // 10]
        command("train", data, *options, "--save-dir", folder)
    return checkpoint


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of the demonstration")
    parser.add_argument("--out", type=Path, default=Path("runs/longer-context"))
    parser.add_argument("--updates", type=int, default=125, help="of each further training")
    args = parser.parse_args()
    began = time.monotonic()
    data, start = args.run / "data-bin", args.run / f"alibi-{SHORT}-seed1" / "checkpoint_last.pt"
    checkpoints = {"start": start}
    for name, length in (("short", SHORT), ("long", LONG)):
        checkpoints[name] = go_on(start, data, args.out / name, length, args.updates)

    cells = []
    for name, label, scale in ROWS:
        results = args.out / f"{name}-{scale}.json"
        arguments = ["--lengths", ",".join(map(str, LENGTHS)), "--device", "cpu"]
        if scale != "none":
            arguments += ["--model-overrides", json.dumps({"alibi_scale": scale})]
        command("eval", data, "--path", checkpoints[name], *arguments, "--out", results)
        for cell in json.loads(results.read_text(encoding="utf-8"))["cells"]:
            cells.append({**cell, "model": f"{label}, slopes ÷ {scale}".replace("÷ none", "as is")})
    seconds = time.monotonic() - began
    provenance = collect_provenance(
        seconds=seconds, seed=SEED, data=data, subsets=["train", "valid"]
    )
    document = new_results_file("evaluation", args.run.resolve().name, provenance, cells)
    save_results_file(document, args.out / "results.json")
    with atomic_write(args.out / "table.md") as file:
        file.write(table(cells))
    print(table(cells))
    draw(cells, args.out / "figure.png")


def perplexities(cells: list[dict]) -> dict[str, dict[int, float]]:
    """By row and length."""
    rows: dict[str, dict[int, float]] = {}
    for cell in cells:
        rows.setdefault(cell["model"], {})[cell["length"]] = cell["perplexity"]
    return rows


def table(cells: list[dict]) -> str:
    lines = ["| perplexity at | " + " | ".join(map(str, LENGTHS)) + " |"]
    lines.append("|---|" + "--:|" * len(LENGTHS))
    for label, values in perplexities(cells).items():
        lines.append(f"| {label} | " + " | ".join(f"{values[n]:.1f}" for n in LENGTHS) + " |")
    return "\n".join(lines) + "\n"


def draw(cells: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
    for label, values in perplexities(cells).items():
        axes.plot(values.keys(), values.values(), marker="o", label=label)
    axes.set(xscale="log", xlabel="window length in tokens", ylabel="perplexity")
    axes.set_xticks(LENGTHS, LENGTHS)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
