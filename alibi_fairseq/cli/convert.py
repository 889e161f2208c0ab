"""``alibi-fairseq export``, ``import-hf`` and ``import-checkpoint``: checkpoints in other formats."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import torch
from fairseq import checkpoint_utils

from ..checkpoints import read_checkpoint
from ..checkpoints.released import Import, import_released, read_dictionary
from ..errors import BadInput
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
    verify: bool = option(
        "load the result with fairseq and compare every tensor with the file's", False
    )

    def __call__(self) -> None:
        dictionary = read_dictionary(self.dictionary)
        imported = import_released(read_checkpoint(self.checkpoint), dictionary, self.checkpoint)
        path = imported.save(self.out, self.dictionary)
        print(f"Wrote {path} and dict.txt beside it.")
        if self.verify:
            verify(imported, path)


def verify(imported: Import, path: Path) -> None:
    """Load the written file as fairseq-eval-lm does and print what it holds.

    Raises:
        BadInput: a tensor did not arrive as it was.
    """
    (model,), cfg, _ = checkpoint_utils.load_model_ensemble_and_task(
        [str(path)], arg_overrides={"data": str(path.parent)}
    )
    arrived, used = model.state_dict(), imported.state["model"]
    for name, weights in used.items():
        sent = weights.to(arrived[name].dtype)
        # fairseq's placeholders are uninitialised memory, where NaN is as good as any number.
        if not torch.allclose(arrived[name], sent, rtol=0, atol=0, equal_nan=True):
            raise BadInput(f"{name} changed on the way into {path}; remove the file and try again.")
    total = len(used) + len(imported.dropped)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    left = f"; nothing reads {', '.join(imported.dropped)}" if imported.dropped else ""
    print(f"parameters  {parameters:,}")
    print(f"L           {cfg.model.train_length}, position method {cfg.model.position_method}")
    print(f"tensors     {len(used)} of the file's {total} used, all equal{left}")
