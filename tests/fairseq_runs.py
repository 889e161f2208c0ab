"""fairseq runs in the test process, on a tiny corpus. They avoid the start of a process."""

from __future__ import annotations

from pathlib import Path

import fairseq
import torch
from conftest import FIRST_WORD, small_dictionary
from fairseq import checkpoint_utils, distributed_utils, options
from fairseq.data import indexed_dataset
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import eval_lm, train
from hydra.core.global_hydra import GlobalHydra

from alibi_fairseq.plugin import shutdown

try:
    from hydra import compose, initialize_config_dir
except ImportError:  # hydra 1.0
    from hydra.experimental import compose, initialize_config_dir

WORDS = 20
#: Flags of a model and a schedule that take milliseconds per update.
SMALL = (
    "--arch alibi_lm --decoder-layers 2 --decoder-embed-dim 16 --decoder-ffn-embed-dim 32 "
    "--decoder-attention-heads 2 --dropout 0.1 --optimizer adam --lr 0.003 --seed 5 "
    "--no-progress-bar --log-format none --no-epoch-checkpoints --num-workers 0 "
    "--required-batch-size-multiple 1 --distributed-world-size 1 "
)


def write_corpus(folder: Path, **tokens: int) -> Path:
    """Create a data folder with a number of tokens per split, in lines of different lengths.

    A word is mostly followed by the next one, so that there is something to learn.
    """
    dictionary = small_dictionary(WORDS)
    dictionary.save(str(folder / "dict.txt"))
    for split, total in tokens.items():
        steps = torch.randint(1, 4, (total,)) // 2 + 1
        text = FIRST_WORD + steps.cumsum(0) % WORDS
        ends = torch.randperm(total - 1)[: total // 9].sort().values
        text[ends] = dictionary.eos()
        text[-1] = dictionary.eos()
        prefix = str(folder / split)
        builder = indexed_dataset.make_builder(
            f"{prefix}.bin", impl="mmap", vocab_size=len(dictionary)
        )
        for line in text.tensor_split((ends + 1).tolist()):
            builder.add_item(line)
        builder.finalize(f"{prefix}.idx")
    return folder


def run_train(data: Path, save_dir: Path, *flags: str, device: str = "--cpu") -> dict:
    """Train like ``fairseq-train`` and load the last checkpoint. An empty ``device`` is a GPU."""
    command = [str(data), "--save-dir", str(save_dir), *SMALL.split(), *device.split(), *flags]
    arguments = options.parse_args_and_arch(options.get_training_parser(), command)
    # Set by an earlier run.
    vars(checkpoint_utils.save_checkpoint).pop("best", None)
    vars(train.should_stop_early).clear()
    config = convert_namespace_to_omegaconf(arguments)
    with shutdown.listening():  # restores the signal handlers
        if arguments.distributed_world_size > 1:
            distributed_utils.call_main(config, train.main)
        else:
            train.main(config)
    return torch.load(save_dir / "checkpoint_last.pt", weights_only=True)


def run_eval_lm(data: Path, checkpoint: Path, *flags: str, device: str = "--cpu") -> dict:
    """Return loss in bits and perplexity of ``fairseq-eval-lm``. An empty ``device`` is a GPU."""
    command = [str(data), "--path", str(checkpoint), *device.split(), "--no-progress-bar"]
    command += ["--num-workers", "0", *flags]
    arguments = options.parse_args_and_arch(options.get_eval_lm_parser(), command)
    return eval_lm.main(convert_namespace_to_omegaconf(arguments))


def equal(first, second) -> bool:
    """Return True if two nested states are bitwise identical."""
    if torch.is_tensor(first):
        return torch.equal(first, second)
    if isinstance(first, dict):
        same_keys = first.keys() == second.keys()
        return same_keys and all(equal(first[key], second[key]) for key in first)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(equal, first, second))
    return first == second


def same_training_state(first: dict, second: dict) -> bool:
    """Return True if weights, optimizer state, and data position of two checkpoints are equal."""
    return (
        equal(first["model"], second["model"])
        and equal(first["last_optimizer_state"], second["last_optimizer_state"])
        and equal(first["extra_state"]["train_iterator"], second["extra_state"]["train_iterator"])
    )


def training_config(*flags: str):
    """Return fairseq's configuration of a training on the folder ``data``, which is not read."""
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, ["data", "--task", "language_modeling", *flags])
    return convert_namespace_to_omegaconf(args)


def hydra_config(*overrides: str):
    """Return the configuration that ``hydra-train`` makes of overrides."""
    GlobalHydra.instance().clear()
    hydra_init("config")
    with initialize_config_dir(config_dir=str(Path(fairseq.__file__).parent / "config")):
        cfg = compose(config_name="config", overrides=list(overrides))
    add_defaults(cfg)
    return cfg
