"""Conversion of checkpoints: ``alibi-fairseq export``, ``import-hf``, and ``import-checkpoint``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from ..files import open_input
from ..options import option
from .options import CliCommand


@dataclass
class Export(CliCommand):
    """Options of ``alibi-fairseq export``, which writes Hugging Face format."""

    path: Path = option("fairseq checkpoint to export", required=True, metavar="CHECKPOINT")
    data: Path = option(
        "data folder (data-bin) that the checkpoint was trained on, with its dict.txt",
        required=True,
        metavar="DATA",
    )
    out: Path = option("output folder", required=True, metavar="FOLDER")
    tokenizer_files: list[Path] = option(
        "files of the tokenizer, if it is not next to the data: a sentencepiece model, BERT's "
        "vocab.txt, or GPT-2's encoder.json and vocab.bpe",
        (),
        metavar="FILE",
    )
    results: list[Path] = option(
        "results files of `eval`; the model card shows the perplexities of this checkpoint",
        (),
        metavar="RESULTS",
    )
    license: str | None = option(
        "license identifier for the model card, for example apache-2.0 (default: no license is "
        "stated)",
        None,
        metavar="ID",
    )

    def __call__(self) -> None:
        from ..huggingface.export import export_checkpoint

        for file in self.tokenizer_files:
            open_input(file).close()
        converted = export_checkpoint(
            self.path, self.data, self.out, self.tokenizer_files, self.results, self.license
        )
        print(f"Wrote {self.out} as {converted.architecture}. {converted.reason}")
        print(f"Largest difference of log-probabilities: {converted.difference:.1e}")


@dataclass
class ImportHf(CliCommand):
    """Options of ``alibi-fairseq import-hf``, which converts a Hugging Face model."""

    folder: Path = option(
        "folder of a BLOOM, OPT, XGLM, GPT-NeoX, Llama, or Qwen3 model, or of one that `export` "
        "wrote",
        metavar="FOLDER",
    )
    out: Path = option("output folder", required=True, metavar="FOLDER")

    def __call__(self) -> None:
        from ..huggingface.importing import import_folder

        flags, difference = import_folder(self.folder, self.out)
        print(f"Wrote {self.out}/checkpoint_best.pt and {self.out}/dict.txt.")
        print(f"Largest difference of log-probabilities: {difference:.1e}")
        print("To continue training, add these options to alibi-fairseq train:")
        model = f"--finetune-from-model {shlex.quote(str(self.out / 'checkpoint_best.pt'))}"
        print(f"  {model} --task language_modeling {shlex.join(flags)}")


@dataclass
class ImportCheckpoint(CliCommand):
    """Options of ``alibi-fairseq import-checkpoint``, which converts a released checkpoint."""

    checkpoint: Path = option("checkpoint of the authors' release", metavar="CHECKPOINT")
    dictionary: Path = option(
        "dict.txt of the data that the checkpoint was trained on",
        flag="--dict",
        required=True,
        metavar="FILE",
    )
    out: Path = option("output folder", required=True, metavar="FOLDER")

    def __call__(self) -> None:
        from ..plugin.loading import read_checkpoint
        from ..plugin.released import import_released, read_dictionary, save_checkpoint

        dictionary = read_dictionary(self.dictionary)
        state = import_released(read_checkpoint(self.checkpoint), dictionary, self.checkpoint)
        save_checkpoint(state, dictionary, self.out)
        print(f"Wrote {self.out}/checkpoint_best.pt and {self.out}/dict.txt.")
