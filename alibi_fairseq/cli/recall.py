"""Command ``alibi-fairseq recall``: the loss of tokens that complete an earlier pair."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic.dataclasses import dataclass

from ..evaluation.option_types import Device, Length, NonEmptyListOrItem, Precision
from ..options import names, option
from .options import CliCommand, plugin_option

if TYPE_CHECKING:
    from ..reporting.table import Table


@dataclass
class Recall(CliCommand):
    """Options of ``alibi-fairseq recall``."""

    data: Path = option("data folder of a text", metavar="DATA")
    path: list[Path] = option("fairseq checkpoints", required=True, metavar="CHECKPOINT")
    lengths: NonEmptyListOrItem[Length] = option(
        "evaluation lengths, in windows that do not overlap",
        required=True,
        type=names,
        metavar="L,…",
    )
    split: str = option("split to evaluate", "valid", flag="--subset", metavar="SPLIT")
    out: Path | None = option("also write the results to this JSON file", None, metavar="FILE")
    precision: Precision = option("precision of weights and activations", "fp32")
    device: Device = option("auto, cpu, or cuda", "auto", metavar="DEVICE")
    user_dir: str | None = plugin_option()

    def __call__(self) -> None:
        """Measure each checkpoint at each length, and print a table.

        Raises:
            UserInputError: a checkpoint, the split, or a length cannot be used, or a checkpoint is
                replaced meanwhile.
        """
        from ..evaluation.checkpoint import LoadedModel, load_checkpoint
        from ..evaluation.device import find_device
        from ..evaluation.measurement import check_unchanged
        from ..evaluation.recall import measure_recall
        from ..evaluation.split import load_dictionary, load_split
        from ..files import sha256_file
        from ..positions.plugin_sources import plugin_sha256
        from ..progress_bar import make_progress_bar
        from ..reporting import markdown
        from ..results.data_folder import DataFolder, check_shards
        from ..results.provenance import collect_provenance

        check_shards(str(self.data), [self.split])
        folder = DataFolder.open(self.data)
        device = find_device(self.device)
        split = load_split(folder, self.split, load_dictionary(folder.path))
        provenance = collect_provenance(
            seconds=0, precision=self.precision, data=folder.path, splits=[self.split]
        )
        hashes = {path: sha256_file(path) for path in self.path}

        def load(path: Path) -> LoadedModel:
            model = load_checkpoint(path, folder.path, device, self.precision)
            # Training may replace the file while other checkpoints are measured.
            check_unchanged(path, hashes[path], sha256_file(path))
            return model

        for path in hashes:  # before any is measured; not all of them may fit into memory
            load(path).check_length(max(self.lengths))
        results: list[dict] = []
        total = len(hashes) * len(self.lengths) * len(split.tokens)
        with make_progress_bar(total, "evaluating", "tok", disable=False) as bar:
            for path in hashes:
                model = load(path)
                for length in self.lengths:
                    tensors = split.tensors(length, device)
                    ranges = measure_recall(model, tensors, length, length, bar.update)
                    results.append(
                        {
                            "checkpoint": str(path),
                            "checkpoint_sha256": hashes[path],
                            "plugin_sha256": plugin_sha256(model.method.names),
                            "method": model.method.label,
                            "train_length": model.weights.series.train_length,
                            "length": length,
                            "ranges": [asdict(found) for found in ranges],
                        }
                    )
                    provenance["seconds"] = round(bar.format_dict["elapsed"], 1)
                    self._write(results, provenance)
        print(markdown.to_markdown([recall_table(results, self.split)]), end="")

    def _write(self, results: list[dict], provenance: dict) -> None:
        """Write the results so far to ``--out``, if it is given."""
        from ..files import atomic_write, json_text
        from ..results.provenance import utc_time

        if self.out is None:
            return
        content = {
            "format": "alibi_fairseq/recall",
            "version": 1,
            "split": self.split,
            "provenance": {**provenance, "date": utc_time()},
            "results": results,
        }
        with atomic_write(self.out) as stream:
            stream.write(json_text(content))


def recall_table(results: list[dict], split: str) -> Table[dict]:
    """Return a table with a row per model and length, and a column per range of the distance."""
    from ..reporting import markdown
    from ..reporting.facts import short_paths
    from ..reporting.row import model_label
    from ..reporting.table import Column, Table

    def label(result: dict) -> str:
        return model_label(result["method"], result["train_length"])

    checkpoints = defaultdict(set)
    for result in results:
        checkpoints[label(result)].add(result["checkpoint"])

    paths = short_paths(result["checkpoint"] for result in results)

    def name(result: dict) -> str:
        if len(checkpoints[label(result)]) == 1:
            return label(result)
        return f"{label(result)} ({paths[result['checkpoint']]})"  # several seeds, for example

    columns = [Column[dict]("", name)]
    columns.append(Column("evaluated at", lambda result: str(result["length"])))
    longest = max(results, key=lambda result: result["length"])
    for number, found in enumerate(longest["ranges"]):

        def cell(result: dict, number: int = number) -> str:
            if number >= len(result["ranges"]):
                return markdown.NOTHING
            loss = result["ranges"][number]["loss_bits"]
            return markdown.NOTHING if loss is None else f"{loss:.3f}"

        title = f"{found['first']}–{found['last']}" if found["first"] else "new pair"
        columns.append(Column(title, cell))
    notes = ["new pair: tokens that do not complete a pair seen earlier in the window."]
    clipped = {}
    for result in results:
        number = len(result["ranges"]) - 1
        last = result["ranges"][number]["last"]
        if last < longest["ranges"][number]["last"]:
            title = columns[2 + number].title
            clipped[result["length"]] = f"at {result['length']}, {title} ends at {last}"
    if clipped:
        ends = "; ".join(clipped[length] for length in sorted(clipped))
        notes.append(f"Distances are shorter than the evaluation length: {ends}.")
    return Table(
        columns,
        results,
        caption=f"Loss in bits per token on {split}, by the distance to the same pair of tokens",
        notes=notes,
    )
