"""A trained model at four times its length: by interpolation, by training on, and by both.

    python examples/longer_context.py DATA_BIN --out runs/longer-context

Trains a small ALiBi model at 64 tokens, goes on with it at 64 and at 256 tokens, and evaluates all
three from 64 to 1,024 tokens, with and without interpolation. Everything is a command that a user
could type; finished steps are kept. Takes minutes on a CPU. Writes ``results.json``
(format of docs/results-format.md), ``table.md`` and ``figure.png``.
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
from alibi_fairseq.results.schema import new_document, save_document

SHORT, LONG = 64, 256
LENGTHS = (64, 128, 256, 512, 1024)
SEED = 1

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


def train(data: Path, folder: Path, length: int, updates: int, rate: float, *flags: object) -> Path:
    """A checkpoint after so many updates of 2,048 tokens; one that is there is kept."""
    checkpoint = folder / "checkpoint_last.pt"
    if not checkpoint.is_file():
        shape = "--task language_modeling --arch alibi_lm_tiny --sample-break-mode none"
        training = f"--optimizer adam --clip-norm 1.0 --lr-scheduler inverse_sqrt --seed {SEED}"
        training += " --max-tokens 2048 --num-workers 0 --no-epoch-checkpoints --log-interval 50"
        options = [*shape.split(), *training.split(), "--tokens-per-sample", length]
        options += ["--max-update", updates, "--lr", rate, "--warmup-updates", updates // 6]
        command("train", data, *options, "--save-dir", folder, "--log-format", "simple", *flags)
    return checkpoint


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, help="folder that fairseq-preprocess wrote")
    parser.add_argument("--out", type=Path, default=Path("runs/longer-context"))
    parser.add_argument("--updates", type=int, default=400, help="of the first training")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    args = parser.parse_args()
    began = time.monotonic()
    device = ["--cpu"] if args.device == "cpu" else []
    start = train(args.data, args.out / "start", SHORT, args.updates, 2e-3, *device)
    further = {"--finetune-from-model": start}
    flags = [*(item for pair in further.items() for item in pair), *device]
    checkpoints = {"start": start}
    for name, length in (("short", SHORT), ("long", LONG)):
        folder = args.out / name
        checkpoints[name] = train(args.data, folder, length, args.updates // 4, 5e-4, *flags)

    cells = []
    for name, label, scale in ROWS:
        results = args.out / f"{name}-{scale}.json"
        arguments = ["--lengths", ",".join(map(str, LENGTHS)), "--device", args.device]
        if scale != "none":
            arguments += ["--model-overrides", json.dumps({"alibi_scale": scale})]
        command("eval", args.data, "--path", checkpoints[name], *arguments, "--out", results)
        for cell in json.loads(results.read_text(encoding="utf-8"))["cells"]:
            cells.append({**cell, "model": f"{label}, slopes ÷ {scale}".replace("÷ none", "as is")})
    seconds = time.monotonic() - began
    provenance = collect_provenance(
        seconds=seconds, seed=SEED, data=args.data, subsets=["train", "valid"]
    )
    document = new_document("evaluation", args.data.resolve().parent.name, provenance, cells)
    save_document(document, args.out / "results.json")
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
