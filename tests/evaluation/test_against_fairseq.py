"""The same loss as ``fairseq-eval-lm``, on real checkpoints, where that one is right."""

from __future__ import annotations

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import eval_lm
from trained import Trained

from alibi_fairseq.evaluation.sweep import Sweep, run_sweep


def fairseq_loss(
    trained: Trained, name: str, subset: str, length: int, stride: int, *more: str
) -> float:
    """Bits per token of ``fairseq-eval-lm`` with one worker and one window at a time."""
    flags = [str(trained.data), "--path", str(trained(name)), "--gen-subset", subset, "--cpu"]
    flags += ["--max-sentences", "1", "--max-tokens", str(length), "--num-workers", "0"]
    flags += ["--tokens-per-sample", str(length), "--context-window", str(length - stride)]
    flags += ["--sample-break-mode", "none", "--no-progress-bar", *more]
    if name == "stock":
        flags += ["--model-overrides", f"{{'max_target_positions': {length}}}"]
    args = options.parse_args_and_arch(options.get_eval_lm_parser(), flags)
    return float(eval_lm.main(convert_namespace_to_omegaconf(args))["loss"])


def our_cells(trained: Trained, name: str, out, **request) -> list[dict]:
    defaults = {"subsets": ["valid"], "strides": [None]}
    sweep = Sweep(trained.data, [trained(name)], out=out, **{**defaults, **request})
    return run_sweep(sweep)


@pytest.mark.parametrize("name", ["alibi", "alibi-adaptive", "sinusoidal"])
def test_non_overlapping(trained, tmp_path, name):
    lengths = [7, 32, 100, 5000]
    for cell in our_cells(trained, name, tmp_path / "r.json", lengths=lengths):
        expected = fairseq_loss(trained, name, "valid", cell["length"], cell["length"])
        assert cell["loss_bits"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", ["alibi", "alibi-adaptive", "sinusoidal"])
@pytest.mark.parametrize("length, stride", [(32, 1), (64, 16), (50, 16)])
def test_sliding(trained, tmp_path, name, length, stride):
    (cell,) = our_cells(
        trained, name, tmp_path / "r.json", lengths=[length], strides=[stride], subsets=["test"]
    )
    expected = fairseq_loss(trained, name, "test", length, stride)
    assert cell["loss_bits"] == pytest.approx(expected, abs=1e-4)


def test_a_model_of_fairseq_itself(trained, tmp_path):
    (cell,) = our_cells(
        trained,
        "stock",
        tmp_path / "r.json",
        lengths=[40],
        strides=[8],
        overrides={"max_target_positions": 40},
    )
    expected = fairseq_loss(trained, "stock", "valid", 40, 8)
    assert cell["loss_bits"] == pytest.approx(expected, abs=1e-4)
    assert (cell["position_method"], cell["train_length"]) == ("sinusoidal", 32)


def test_a_model_with_a_memory(trained, tmp_path):
    for cell in our_cells(trained, "transformer-xl", tmp_path / "r.json", lengths=[16, 50]):
        expected = fairseq_loss(
            trained,
            "transformer-xl",
            "valid",
            cell["length"],
            cell["length"],
            *["--task", "segment_language_modeling"],
        )
        assert cell["loss_bits"] == pytest.approx(expected, abs=1e-4)
