"""Command ``alibi-fairseq recall``: the loss of tokens that complete an earlier pair."""

from __future__ import annotations

from collections import defaultdict
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic.dataclasses import dataclass

from ..errors import UserInputError
from ..evaluation.option_types import Device, Length, NonEmptyListOrItem, Precision
from ..options import names, option
from .options import CliCommand, plugin_option

if TYPE_CHECKING:
    from ..reporting.table import Table
    from ..results.provenance import Provenance

#: Hash of a checkpoint, and evaluation length.
Identity = tuple[str, int]


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
        """Measure each checkpoint at each length unless ``--out`` has it, and print a table.

        Raises:
            UserInputError: a checkpoint, the split, or a length cannot be used, a checkpoint is
                replaced meanwhile, or ``--out`` has other content.
        """
        from ..files import locked
        from ..reporting import markdown
        from ..results.file_names import lock_path

        lock: AbstractContextManager = nullcontext()
        if self.out is not None:
            lock = locked(lock_path(self.out), f"--out {self.out}", "evaluation")
        with lock:
            results = self._measure()
        print(markdown.to_markdown([recall_table(results, self.split)]), end="")

    def _measure(self) -> list[dict]:
        """Return the results of each checkpoint at each length."""
        from ..evaluation.checkpoint import LoadedModel, load_checkpoint
        from ..evaluation.device import find_device
        from ..evaluation.measurement import check_unchanged
        from ..evaluation.recall import measure_recall
        from ..evaluation.split import load_dictionary, load_split
        from ..files import sha256_file
        from ..positions.plugin_sources import plugin_sha256
        from ..progress_bar import make_progress_bar
        from ..results.data_folder import DataFolder, check_shards
        from ..results.provenance import Provenance, collect_provenance, merge_provenance, utc_time

        check_shards(str(self.data), [self.split])
        folder = DataFolder.open(self.data)
        device = find_device(self.device)
        split = load_split(folder, self.split, load_dictionary(folder.path))
        provenance = Provenance(
            **collect_provenance(
                seconds=0, precision=self.precision, data=folder.path, splits=[self.split]
            )
        )
        known, earlier_provenance = self._read(provenance)
        hashes = {path: sha256_file(path) for path in self.path}

        def load(path: Path) -> LoadedModel:
            model = load_checkpoint(path, folder.path, device, self.precision)
            # Training may replace the file while other checkpoints are measured.
            check_unchanged(path, hashes[path], sha256_file(path))
            return model

        results: list[dict] = []
        missing: dict[Path, list[dict]] = defaultdict(list)
        for path in hashes:  # before any is measured; not all of them may fit into memory
            model = load(path)
            model.check_length(max(self.lengths))
            for length in self.lengths:
                result: dict[str, Any] = {
                    "checkpoint": str(path),
                    "checkpoint_sha256": hashes[path],
                    "plugin_sha256": plugin_sha256(model.method.names),
                    "method": model.method.label,
                    "train_length": model.weights.series.train_length,
                    "length": length,
                }
                results.append(result)
                earlier = known.get(_identity(result))
                if earlier and earlier.get("plugin_sha256") == result["plugin_sha256"]:
                    result["ranges"] = earlier["ranges"]
                else:
                    missing[path].append(result)
        total = sum(map(len, missing.values())) * len(split.tokens)
        with make_progress_bar(total, "evaluating", "tok", disable=not missing) as bar:
            for path, missing_results in missing.items():
                model = load(path)
                for result in missing_results:
                    length = result["length"]
                    tensors = split.tensors(length, device)
                    ranges = measure_recall(model, tensors, length, bar.update)
                    result["ranges"] = [asdict(found) for found in ranges]
                    known[_identity(result)] = result
                    provenance.date = utc_time()
                    provenance.seconds = round(bar.format_dict["elapsed"], 1)
                    self._write(known, merge_provenance([*earlier_provenance, provenance]))
        return results

    def _read(self, provenance: Provenance) -> tuple[dict[Identity, dict], list[Provenance]]:
        """Return the measurements that ``--out`` has already, and their provenance.

        Args:
            provenance: provenance of the new measurements.

        Raises:
            UserInputError: the file has other content.
        """
        from ..files import read_json
        from ..record.entry import read_recall

        if self.out is None or not self.out.exists():
            return {}, []
        earlier = read_recall(self.out)
        origin = earlier.provenance
        measured = (earlier.split, origin.precision, origin.data_sha256)
        if measured != (self.split, provenance.precision, provenance.data_sha256):
            raise UserInputError(
                f"'{self.out}' has measurements of another split, precision, or text. Choose "
                "another --out, or remove the file."
            )
        known = {_identity(result): result for result in read_json(self.out)["results"]}
        return known, [origin]

    def _write(self, results: dict[Identity, dict], provenance: Provenance) -> None:
        """Write all results to ``--out``, if it is given."""
        from ..files import atomic_write, json_text
        from ..record.entry import RECALL_FORMAT

        if self.out is None:
            return
        content = {
            "format": RECALL_FORMAT,
            "version": 1,
            "split": self.split,
            "provenance": provenance.model_dump(exclude_unset=True),
            "results": list(results.values()),
        }
        with atomic_write(self.out) as stream:
            stream.write(json_text(content))


def _identity(result: dict) -> Identity:
    """Return what a result is of. A new result replaces an earlier one of the same."""
    return result["checkpoint_sha256"], result["length"]


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
