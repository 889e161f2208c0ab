"""``alibi-fairseq export``, ``import-hf`` and ``import-checkpoint``: checkpoints in other formats."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from ..checkpoints import read_checkpoint
from ..checkpoints.released import import_released, read_dictionary, save
from .options import Verb, option


@dataclass
class Export(Verb):
    """A checkpoint in Hugging Face format."""

    path: Path = option("checkpoint to export", required=True, metavar="CKPT")
    data: Path = option("folder with its dict.txt", required=True, metavar="DATA")
    out: Path = option("folder to write", required=True, metavar="DIR")
    format: str = option("hf: Hugging Face transformers", "hf", choices=["hf"])
    trained_with: Path | None = option(
        "training dictionary of the checkpoint", None, flag="--dict", metavar="FILE"
    )
    sentencepiece_model: Path | None = option(
        "sentencepiece model of the text", None, metavar="FILE"
    )
    gpt2_encoder_json: Path | None = option("encoder.json of GPT-2's BPE", None, metavar="FILE")
    gpt2_vocab_bpe: Path | None = option("vocab.bpe of GPT-2's BPE", None, metavar="FILE")
    wordpiece_vocab: Path | None = option("vocab.txt of BERT", None, metavar="FILE")
    results: list[Path] = option(
        "results of alibi-fairseq eval to quote in the model card", (), nargs="*", metavar="FILE"
    )

    def __call__(self) -> None:
        from ..huggingface.export import export

        converted = export(
            self.path, self.data, self.out, self.trained_with, vars(self), self.results
        )
        print(f"Wrote {self.out} as {converted.architecture}. {converted.reason}")
        print(f"Largest difference of log-probabilities: {converted.difference:.1e}")


@dataclass
class ImportHf(Verb):
    """A Hugging Face model as a checkpoint."""

    folder: Path = option("a BLOOM, OPT, XGLM or GPT-NeoX model on disk", metavar="DIR")
    out: Path = option("folder to write", required=True, metavar="DIR")

    def __call__(self) -> None:
        from ..huggingface.importing import import_folder

        imported = import_folder(self.folder)
        imported.save(self.out)
        print(f"Wrote {self.out}/checkpoint_best.pt and {self.out}/dict.txt.")
        print(f"Largest difference of log-probabilities: {imported.difference:.1e}")
        if imported.unknown:
            unknown = ", ".join(imported.unknown)
            print(f"The model has no token for {unknown}; their embeddings are zero.")
        print("To train on, add to alibi-fairseq train:")
        model = f"--finetune-from-model {shlex.quote(str(self.out / 'checkpoint_best.pt'))}"
        print(f"  {model} --task language_modeling {shlex.join(imported.flags)}")


@dataclass
class ImportCheckpoint(Verb):
    """A checkpoint of the authors' release as one of this package."""

    checkpoint: str = option("checkpoint of the authors' release", metavar="IN.pt")
    dictionary: str = option("its training dictionary", flag="--dict", required=True)
    out: str = option("folder to write", required=True, metavar="DIR")

    def __call__(self) -> None:
        dictionary = read_dictionary(self.dictionary)
        state = import_released(read_checkpoint(self.checkpoint), dictionary, self.checkpoint)
        path = save(state, self.dictionary, self.out)
        print(f"Wrote {path} and dict.txt beside it.")
