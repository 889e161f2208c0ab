"""Checks of the model, the dictionary, and the save folder of resumed training."""

from __future__ import annotations

import dataclasses
import fcntl
import re
from types import SimpleNamespace

import pytest
import torch
from commands import SHORT, in_process, make_data
from conftest import small_model
from fairseq.data import Dictionary

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.models.config import AlibiLanguageModelConfig
from alibi_fairseq.plugin import save_dir
from alibi_fairseq.plugin.loading import load_update_count
from alibi_fairseq.plugin.resume import check_same_model, compared_options, loading_into


@pytest.mark.ci
@pytest.mark.parametrize(
    ("flag", "value", "before", "can_change"),
    [
        ("--position-method", "rotary", "alibi", True),
        ("--decoder-attention-heads", 2, 8, False),
        pytest.param("--attention-window", 8, 0, True, marks=pytest.mark.slow),
        pytest.param("--activation-fn", "gelu", "relu", False, marks=pytest.mark.slow),
    ],
)
def test_different_model_of_same_shapes_is_rejected(
    data_bin, checkpoint, tmp_path, caplog, flag, value, before, can_change
):
    flags = [*SHORT, flag, value, "--max-update", 5, "--save-dir", tmp_path / "run"]
    difference = f"{flag} {before} .*{flag} {value}"
    with pytest.raises(UserInputError, match=difference):
        in_process("train", data_bin, *flags, "--restore-file", checkpoint)
    if not can_change:
        with pytest.raises(UserInputError, match=difference):
            in_process("train", data_bin, *flags, "--finetune-from-model", checkpoint)
        return
    in_process("train", data_bin, *flags, "--finetune-from-model", checkpoint)
    warnings = [record for record in caplog.records if record.name.startswith("alibi_fairseq")]
    assert len([record for record in warnings if re.search(difference, record.message)]) == 1
    in_process("train", data_bin, *flags, "--max-update", 6)  # resumes this run


OPTIONS = compared_options()


@pytest.mark.parametrize("option", OPTIONS)
def test_different_option_is_rejected(option):
    saved = {name: getattr(AlibiLanguageModelConfig, name) for name in OPTIONS}
    value = "pi:2" if option == "rotary_scaling" else "another value"
    current = {**saved, option: value}
    flag = "--" + option.replace("_", "-")
    trainer = SimpleNamespace(cfg={"model": current})
    with (
        loading_into(trainer, resumes=True),
        pytest.raises(UserInputError, match=f"command has {flag} {value}"),
    ):
        check_same_model({"cfg": {"model": saved}}, "checkpoint_last.pt")


ADAPTIVE = (
    "--adaptive-input --adaptive-input-cutoff 20,40 --adaptive-softmax-cutoff 20,40 "
    "--criterion adaptive_loss --no-share-decoder-input-output-embed"
)
#: Options that change the names or shapes of the weights: flags without and with the option.
WEIGHT_OPTIONS = {
    "decoder_embed_dim": ("", "--decoder-embed-dim 32"),
    "decoder_input_dim": ("", "--decoder-input-dim 16"),
    "decoder_output_dim": ("", "--decoder-output-dim 16"),
    "decoder_ffn_embed_dim": ("", "--decoder-ffn-embed-dim 32"),
    "decoder_layers": ("", "--decoder-layers 3"),
    "no_decoder_final_norm": ("", "--no-decoder-final-norm"),
    "layernorm_embedding": ("", "--layernorm-embedding"),
    "normalization": ("", "--normalization rms"),
    "ffn": ("", "--ffn swiglu"),
    "key_value_heads": ("", "--key-value-heads 2"),
    "normalize_queries_keys": ("", "--normalize-queries-keys"),
    "linear_biases": ("", "--no-linear-biases"),
    "scale_fc": ("", "--scale-fc"),
    "scale_attn": ("", "--scale-attn"),
    "scale_heads": ("", "--scale-heads"),
    "scale_resids": ("", "--scale-resids"),
    "adaptive_input": ("", ADAPTIVE),
    "adaptive_input_cutoff": (ADAPTIVE, "--adaptive-input-cutoff 30,40"),
    "adaptive_input_factor": (ADAPTIVE, "--adaptive-input-factor 2"),
    "adaptive_softmax_cutoff": (ADAPTIVE, "--adaptive-softmax-cutoff 30,40"),
    "adaptive_softmax_factor": (ADAPTIVE, "--adaptive-softmax-factor 2"),
}
#: All other options, by the reason why a training may resume with another value.
HARMLESS_OPTIONS = {
    "regularization, which a training may change": {
        "dropout",
        "attention_dropout",
        "activation_dropout",
        "relu_dropout",
        "adaptive_softmax_dropout",
        "decoder_layerdrop",
        "quant_noise_pq",
        "quant_noise_pq_block_size",
        "quant_noise_scalar",
    },
    "other ways to compute the same": {
        "attention_backend",
        "compile_layers",
        "checkpoint_activations",
        "offload_activations",
        "min_params_to_wrap",
        "tpu",
    },
    "no effect, since position_method replaces them": {
        "no_token_positional_embeddings",
        "decoder_learned_pos",
    },
    "not supported by the decoder, or rejected": {
        "character_embeddings",
        "character_filters",
        "character_embedding_dim",
        "char_embedder_highway_layers",
        "decoder_xformers_att_config",
        "base_layers",
        "decoder_layers_to_keep",
        "base_sublayers",
        "base_shuffle",
    },
    "properties of the batches, which may become longer": {
        "add_bos_token",
        "tokens_per_sample",
        "max_target_positions",
        "train_length",  # compared as part of rotary_scaling
    },
    "copies of options that are compared": {
        "train_seed",  # as part of alibi_slopes
        "train_attention_window",
        "train_mem_len",
    },
    "name of the architecture, whose values are the other options": {"_name"},
}


def weight_shapes(model) -> dict[str, tuple]:
    """Return the shape of each weight."""
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize(("without", "option"), WEIGHT_OPTIONS.values(), ids=WEIGHT_OPTIONS)
def test_weight_option_changes_weights(without, option):
    model = small_model("alibi", *without.split())
    changed = small_model("alibi", *without.split(), *option.split())
    assert weight_shapes(changed) != weight_shapes(model)


def test_every_model_option_is_compared_or_harmless():
    known = [*OPTIONS, *WEIGHT_OPTIONS]
    for options in HARMLESS_OPTIONS.values():
        known += options
    names = [field.name for field in dataclasses.fields(AlibiLanguageModelConfig)]
    assert sorted(known) == sorted(names)


#: Options that give fairseq's ``transformer_lm`` the weights of ``alibi_lm``.
LIKE_OURS = (
    *("--decoder-input-dim", 32, "--decoder-output-dim", 32),
    *("--decoder-normalize-before", "--share-decoder-input-output-embed"),
)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("saved", "other"), [("transformer_lm", "alibi_lm"), ("alibi_lm", "transformer_lm")]
)
def test_model_of_fairseq_keeps_its_position_method(data_bin, tmp_path, saved, other):
    flags = [data_bin, *SHORT, *LIKE_OURS, "--save-dir", tmp_path / "run"]
    in_process("train", *flags, "--arch", saved)
    longer = [*flags, "--max-update", 5, "--arch"]
    with pytest.raises(UserInputError, match=r"the position method .*alibi.* weights mean\. Use"):
        in_process("train", *longer, other)
    in_process("train", *longer, saved)  # resumes
    if saved == "transformer_lm":
        in_process("train", *longer, other, "--position-method", "sinusoidal", "--max-update", 6)
        start = ["--finetune-from-model", tmp_path / "run" / "checkpoint_last.pt"]
        in_process("train", *longer, other, "--save-dir", tmp_path / "tuned", *start)


@pytest.mark.ci
def test_untied_embeddings_are_not_tied(data_bin, tmp_path):
    untied = "--no-share-decoder-input-output-embed"
    in_process("train", data_bin, *SHORT, untied, "--save-dir", tmp_path / "untied")
    start = ["--finetune-from-model", tmp_path / "untied" / "checkpoint_last.pt"]
    flags = [*SHORT, "--save-dir", tmp_path / "new", *start]
    with pytest.raises(UserInputError, match="which the options tie"):
        in_process("train", data_bin, *flags)
    in_process("train", data_bin, *flags, untied)


def test_tied_embeddings_are_untied_only_in_new_training(data_bin, checkpoint, tmp_path):
    untied = "--no-share-decoder-input-output-embed"
    flags = [*SHORT, untied, "--max-update", 5, "--save-dir", tmp_path / "run"]
    with pytest.raises(UserInputError, match="share-decoder-input-output-embed True"):
        in_process("train", data_bin, *flags, "--restore-file", checkpoint)
    in_process("train", data_bin, *flags, "--finetune-from-model", checkpoint)
    assert load_update_count(tmp_path / "run" / "checkpoint_last.pt") == 5


@pytest.mark.ci
def test_random_slopes_are_not_drawn_again(data_bin, tmp_path):
    flags = [*SHORT, "--alibi-slopes", "random"]
    in_process("train", data_bin, *flags, "--seed", 2, "--save-dir", tmp_path / "first")
    start = ["--finetune-from-model", tmp_path / "first" / "checkpoint_last.pt"]
    flags += ["--save-dir", tmp_path / "second", *start]
    with pytest.raises(UserInputError, match="Pass --seed 2"):
        in_process("train", data_bin, *flags)
    in_process("train", data_bin, *flags, "--seed", 2)


@pytest.mark.ci
def test_rotation_of_other_length_is_rejected(data_bin, tmp_path, caplog):
    flags = [*SHORT, "--position-method", "rotary", "--rotary-scaling"]
    in_process("train", data_bin, *flags, "yarn:4", "--save-dir", tmp_path / "first")
    start = tmp_path / "first" / "checkpoint_last.pt"
    longer = ["--tokens-per-sample", 32, "--max-update", 5, "--save-dir", tmp_path / "longer"]
    difference = "--rotary-scaling yarn:4:16 and this command has --rotary-scaling yarn:4:32"
    with pytest.raises(UserInputError, match=difference):
        in_process("train", data_bin, *flags, "yarn:4", *longer, "--restore-file", start)
    in_process("train", data_bin, *flags, "yarn:4", *longer, "--finetune-from-model", start)
    assert difference in caplog.text


@pytest.mark.ci
@pytest.mark.parametrize(
    ("flag", "before", "value"), [("--tokens-per-sample", 16, 32), ("--seed", 1, 2)]
)
def test_different_training_in_same_folder_is_rejected(data_bin, tmp_path, flag, before, value):
    first = tmp_path / "first"
    in_process("train", data_bin, *SHORT, "--save-dir", first)
    checkpoint = (first / "checkpoint_last.pt").read_bytes()
    changed = [data_bin, *SHORT, flag, value, "--max-update", 5]
    difference = f"{flag} {before} and .* {flag} {value}, .* another --save-dir"
    with pytest.raises(UserInputError, match=difference):
        in_process("train", *changed, "--save-dir", first)
    assert (first / "checkpoint_last.pt").read_bytes() == checkpoint
    restore = ["--restore-file", first / "checkpoint_last.pt"]
    second = [*changed, "--save-dir", tmp_path / "second", *restore]
    with pytest.raises(UserInputError, match=f"saved mid-epoch with {flag} {before} "):
        in_process("train", *second)
    in_process("train", *second, "--reset-dataloader")
    in_process("train", *changed, "--save-dir", first, "--reset-dataloader")


@pytest.mark.ci
@pytest.mark.parametrize(
    ("optimizer", "flag", "before", "value", "override"),
    [
        ("adam", "--adam-betas", "(0.9, 0.999)", "(0.9, 0.98)", "{'betas': (0.9, 0.98)}"),
        ("fused_adam", "--adam-eps", "1e-08", "0.001", "{'eps': 0.001}"),
        ("nag", "--momentum", "0.99", "0.9", "{'momentum': 0.9}"),
    ],
)
def test_option_that_the_optimizer_would_ignore_is_rejected(
    data_bin, tmp_path, optimizer, flag, before, value, override
):
    train = [data_bin, *SHORT, "--optimizer", optimizer, "--save-dir", tmp_path]
    in_process("train", *train)
    difference = f"with {flag} {before} and this command has {flag} {value}"
    advice = f'Repeat {flag} {before}, or add --optimizer-overrides "{override}".'
    message = f"{difference}, which fairseq would ignore. {advice}"
    with pytest.raises(UserInputError, match=re.escape(message)):
        in_process("train", *train, flag, value, "--max-update", 4)


@pytest.mark.ci
@pytest.mark.parametrize("precision", ["--bf16", "--amp"])
def test_different_optimizer_is_rejected(data_bin, tmp_path, precision):
    flags = [data_bin, *SHORT, precision, "--save-dir", tmp_path]
    in_process("train", *flags, "--optimizer", "adam")
    changed = [*flags, "--optimizer", "fused_adam", "--max-update", 4]
    difference = "--optimizer adam and this command has --optimizer fused_adam"
    with pytest.raises(UserInputError, match=difference):
        in_process("train", *changed)
    in_process("train", *changed, "--reset-optimizer")


@pytest.mark.ci
def test_option_of_the_optimizer_is_changed_by_an_override(data_bin, tmp_path):
    flags = [data_bin, *SHORT, "--save-dir", tmp_path]
    changed = [*flags, "--weight-decay", 0.1]
    in_process("train", *flags)
    in_process(
        "train", *changed, "--max-update", 4, "--optimizer-overrides", "{'weight_decay': .1}"
    )
    assert saved_option(tmp_path / "checkpoint_last.pt", "weight_decay") == 0.1
    in_process("train", *changed, "--max-update", 5)  # as the state has it
    with pytest.raises(UserInputError, match=r"--weight-decay 0.1 and .* --weight-decay 0.0"):
        in_process("train", *flags, "--max-update", 6)
    in_process("train", *flags, "--max-update", 6, "--reset-optimizer")
    assert saved_option(tmp_path / "checkpoint_last.pt", "weight_decay") == 0.0


def saved_option(checkpoint, name: str):
    """Return an option of the optimizer in a checkpoint."""
    state = torch.load(checkpoint, weights_only=True)
    return state["last_optimizer_state"]["param_groups"][0][name]


@pytest.mark.ci
@pytest.mark.parametrize(("flag", "warns"), [("--bf16", True), ("--memory-efficient-bf16", False)])
def test_resumed_half_precision_is_warned_of(data_bin, tmp_path, caplog, flag, warns):
    flags = [*SHORT, flag, "--save-dir", tmp_path]
    in_process("train", data_bin, *flags)
    assert "in half precision" not in caplog.text
    in_process("train", data_bin, *flags, "--max-update", 4)
    assert ("in half precision" in caplog.text) == warns


def test_different_memory_is_rejected(data_bin, tmp_path):
    memory = ["--task", "segment_language_modeling", "--position-method", "transformer_xl"]
    flags = [*SHORT, *memory, "--save-dir", tmp_path / "run"]
    in_process("train", data_bin, *flags, "--mem-len", 8)
    with pytest.raises(UserInputError, match="--mem-len 8 and this command has --mem-len 16"):
        in_process("train", data_bin, *flags, "--mem-len", 16, "--max-update", 5)


def test_different_dictionary_of_same_size_is_rejected(checkpoint, data_bin, tmp_path):
    data = make_data(tmp_path)
    dictionary = Dictionary.load(str(data / "dict.txt"))
    dictionary.symbols[4:6] = dictionary.symbols[5:3:-1]
    dictionary.save(str(data / "dict.txt"))
    for flag in ("--restore-file", "--finetune-from-model"):
        with pytest.raises(UserInputError, match="a different dictionary"):
            in_process("train", data, *SHORT, "--save-dir", tmp_path / "run", flag, checkpoint)


def test_metrics_of_no_meter_are_rejected(data_bin, checkpoint, tmp_path, refuse):
    state = torch.load(checkpoint, weights_only=True)
    state["extra_state"]["metrics"] = {"train": [[0, "loss", "os.system", {}]]}
    torch.save(state, tmp_path / "checkpoint_last.pt")
    before = (tmp_path / "checkpoint_last.pt").read_bytes()
    flags = [*SHORT, "--save-dir", tmp_path, "--max-update", 5]
    assert "'os.system', which is no meter" in refuse("train", data_bin, *flags)
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == before
    assert not (tmp_path / "training.lock").exists()


class TestSaveDir:
    def test_second_training_names_first(self, data_bin, tmp_path):
        with save_dir.lock_save_dir(str(tmp_path)):
            with pytest.raises(
                UserInputError, match=r"in use by another training \(process \d+ on "
            ):
                in_process("train", data_bin, *SHORT, "--save-dir", tmp_path)
            assert (tmp_path / "training.lock").exists()
            with save_dir.lock_save_dir(str(tmp_path), rank=1):
                pass
        assert not list(tmp_path.iterdir())
        in_process("train", data_bin, *SHORT, "--save-dir", tmp_path)

    def test_lock_of_killed_training_is_released(self, data_bin, tmp_path):
        (tmp_path / "training.lock").write_text("process 1 on elsewhere\n")
        in_process("train", data_bin, *SHORT, "--save-dir", tmp_path)

    def test_read_only_folder_is_rejected(self, data_bin, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(NotADirectoryError):
            in_process("train", data_bin, *SHORT, "--save-dir", tmp_path / "file" / "below")

    def test_file_system_without_locks(self, tmp_path, monkeypatch, caplog):
        def flock(*_):
            raise OSError("no locks available")

        monkeypatch.setattr(fcntl, "flock", flock)
        with save_dir.lock_save_dir(str(tmp_path)):
            pass
        assert "cannot be locked" in caplog.text
