"""Options of checkpoints and of the command line run no code in any command."""

from __future__ import annotations

import argparse
import io
import tarfile
from contextlib import suppress

import pytest
import torch
from commands import in_process

from alibi_fairseq import AlibiLanguageModel, cli
from alibi_fairseq.errors import UserInputError, explain
from alibi_fairseq.models.hub_interface import check_encoder_files
from alibi_fairseq.plugin.option_validation import check_options

pytestmark = pytest.mark.usefixtures("arguments_of_pytest_stay")


@pytest.fixture
def mark(tmp_path):
    """Return the path of a file that the attacks try to create."""
    return tmp_path / "mark"


def hostile_code(mark) -> str:
    return f"__import__('os').system('touch {mark}') or [24, 40]"


def write_hostile_checkpoint(checkpoint, path, **model_options):
    """Write a copy of a checkpoint with other options of the model."""
    state = torch.load(checkpoint, weights_only=True)
    state["cfg"]["model"].update(model_options)
    torch.save(state, path)
    return path


#: Options of GPT-2's encoder with local files.
GPT2 = {"_name": "gpt2", "gpt2_encoder_json": "a.json", "gpt2_vocab_bpe": "b.bpe"}
#: Address that a hostile checkpoint could have fetched.
ADDRESS = "http://127.0.0.1:9/a"
#: Options that our model or another model of fairseq evaluates as code.
ATTACKS = {
    "softmax": lambda text: {"adaptive_softmax_cutoff": text},
    "input": lambda text: {"adaptive_input": True, "adaptive_input_cutoff": text},
    "characters": lambda text: {"character_embeddings": True, "character_filters": text},
    "stock": lambda text: {"_name": "transformer_lm", "adaptive_softmax_cutoff": text},
    "attention": lambda text: {"decoder_xformers_att_config": text},
    "another model": lambda text: {"_name": "fconv_lm", "decoder_layers": text},
    "undeclared": lambda text: {"_name": "transformer_lm", "xformers_att_config": text},
}


def commands(data, path, out):
    """Return the arguments of every command that loads a checkpoint, by name."""
    data = str(data)
    path = str(path)
    out = str(out)
    fairseq = ["--path", path, "--cpu", "--task", "language_modeling"]
    return {
        "eval": ["eval", data, "--path", path, "--lengths", "16", "--out", out, "--device", "cpu"],
        "eval-lm": ["eval-lm", data, "--path", path, "--cpu"],
        "validate": ["validate", data, *fairseq, "--max-tokens", "128"],
        "generate": ["generate", data, *fairseq, "--batch-size", "2"],
        "interactive": ["interactive", data, *fairseq, "--input", f"{data}/dict.txt"],
        "import-checkpoint": [
            "import-checkpoint",
            path,
            "--dict",
            f"{data}/dict.txt",
            "--out",
            out,
        ],
    }


COMMANDS = list(commands("", "", ""))
FIRST, *OTHERS = ATTACKS


def error_message(arguments, capsys) -> str:
    """Return the message of a command that rejects its input."""
    error = None
    try:
        code = cli.main(arguments)
    except Exception as raised:
        error = raised
    if error is None:
        assert code == 2
        return capsys.readouterr().err
    message = explain(error)
    assert message, error
    return message


@pytest.mark.parametrize(
    "attack", [FIRST, *(pytest.param(x, marks=pytest.mark.ci) for x in OTHERS)]
)
@pytest.mark.parametrize("command", COMMANDS)
def test_options_run_no_code(checkpoint, data_bin, tmp_path, mark, capsys, command, attack):
    options = ATTACKS[attack](hostile_code(mark))
    path = write_hostile_checkpoint(checkpoint, tmp_path / "hostile.pt", **options)
    if (command, attack) == ("import-checkpoint", "undeclared"):
        pytest.skip("options that the model does not declare are not imported")
    message = error_message(commands(data_bin, path, tmp_path / "out")[command], capsys)
    assert not mark.exists()
    if command != "import-checkpoint":  # which rejects our own checkpoints first
        assert "do not describe a language model that can be loaded safely" in message


def test_from_pretrained_runs_no_code(checkpoint, data_bin, tmp_path, mark):
    options = {"adaptive_softmax_cutoff": hostile_code(mark)}
    path = write_hostile_checkpoint(checkpoint, tmp_path / "hostile.pt", **options)
    with pytest.raises(UserInputError, match="loaded safely"):
        AlibiLanguageModel.from_pretrained(
            str(tmp_path), path.name, data_name_or_path=str(data_bin)
        )
    assert not mark.exists()


@pytest.mark.parametrize(
    "option", ["adaptive_softmax_cutoff", "adaptive_input_cutoff", "activation_fn"]
)
def test_released_checkpoint_runs_no_code(tmp_path, mark, capsys, option):
    from checkpoints.released_format import released_state, write_dictionary

    state = released_state()
    vars(state["args"])[option] = hostile_code(mark)
    torch.save(state, tmp_path / "in.pt")
    write_dictionary(tmp_path / "dict.txt")
    command = ["import-checkpoint", tmp_path / "in.pt", "--dict", tmp_path / "dict.txt"]
    command += ["--out", tmp_path / "out"]
    assert cli.main([str(word) for word in command]) == 2
    assert not mark.exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["eval-lm", "validate", "generate", "interactive", "eval"])
def test_model_overrides_run_no_code(checkpoint, data_bin, tmp_path, mark, command):
    arguments = commands(data_bin, checkpoint, tmp_path / "out")[command]
    with suppress(ValueError, SyntaxError):  # raised by ast.literal_eval of fairseq
        assert cli.main([*arguments, "--model-overrides", hostile_code(mark)]) != 0
    assert not mark.exists()


@pytest.mark.parametrize(
    ("group", "change", "named"),
    [
        ("model", {"decoder_layers": "2"}, "decoder_layers"),
        ("model", {"_name": "transformer_lm_wiki103", "decoder_layers": "2"}, "decoder_layers"),
        ("model", {"decoder_layers": True}, "decoder_layers"),
        ("model", {"decoder_layers": argparse.Namespace(a=torch.ones(1))}, "Tensor"),
        ("model", {"decoder_embed_dim": 2**40}, "decoder_embed_dim"),
        ("model", {"dropout": float("nan")}, "dropout"),
        ("model", {"position_method": "${oc.env:HOME}"}, "refers to something outside"),
        *(
            ("model", {f"adaptive_{name}_cutoff": value}, f"adaptive_{name}_cutoff")
            for name in ("softmax", "input")
            for value in ("24,many", "24.5", [24, -1], [0, 40], [True])
        ),
        # Every form in which fairseq reads the name of a component.
        ("model", {"_name": "lstm_lm"}, "lstm_lm"),
        ("model", {"_name": ["alibi_lm"]}, "alibi_lm"),
        ("model", {"arch": "fconv_lm"}, "fconv_lm"),
        ("model", {"fconv_lm": {"decoder_layers": "1"}, "_name": None}, "fconv_lm"),
        ("task", {"_name": "translation"}, "translation"),
        ("task", {"_name": "language_modeling", "task": "masked_lm"}, "masked_lm"),
        ("criterion", {"_name": "ctc"}, "ctc"),
        ("criterion", "ctc", "ctc"),
        ("bpe", {"_name": "hf_byte_bpe"}, "hf_byte_bpe"),
        ("tokenizer", {"_name": "evil"}, "evil"),
    ],
)
def test_unsafe_types_and_names_are_rejected(group, change, named):
    if group == "model":
        change = {"_name": "alibi_lm", **change}
        change = {key: value for key, value in change.items() if value is not None}
    with pytest.raises(UserInputError, match="odd.pt do not describe .* loaded safely") as raised:
        check_options({group: change}, "odd.pt")
    assert named in str(raised.value)


@pytest.mark.parametrize(
    "cfg",
    [
        *(
            {"bpe": {"_name": name}, "tokenizer": {"_name": name}}
            for name in ("sentencepiece", "subword_nmt", "fastbpe", "bytes", "characters")
        ),
        *({"bpe": name, "tokenizer": name} for name in ("byte_bpe", "gpt2", "moses", "space")),
        *(
            {"model": {"_name": "alibi_lm", name: "/data (old)/ü & #1"}}
            for name in ("data", "save_dir", "tensorboard_logdir", "plasma_path", "user_dir")
        ),
        *(
            {"model": {"_name": "alibi_lm", f"adaptive_{name}_cutoff": cutoff}}
            for name in ("softmax", "input")
            for cutoff in ("24,40", "[24, 40]", "(24,)", [1, 40], None)
        ),
    ],
    ids=str,
)
def test_safe_types_are_loaded(cfg):
    check_options(cfg, "model.pt")


@pytest.mark.parametrize(
    ("group", "encoder", "named"),
    [
        ("bpe", "bert", "bpe_vocab_file=FILE"),
        ("bpe", {"_name": "bert", "bpe_vocab_file": None}, "bpe_vocab_file=FILE"),
        ("bpe", "gpt2", "gpt2_encoder_json=FILE"),
        ("bpe", {"_name": "gpt2", "gpt2_encoder_json": "a.json"}, "gpt2_vocab_bpe=FILE"),
        ("bpe", {**GPT2, "gpt2_vocab_bpe": ADDRESS}, "gpt2_vocab_bpe=FILE"),
        (
            "bpe",
            {"_name": "sentencepiece", "sentencepiece_model": ADDRESS},
            "sentencepiece_model=FILE",
        ),
        ("bpe", {"_name": "subword_nmt", "bpe_codes": ADDRESS}, "bpe_codes=FILE"),
        (
            "bpe",
            {"_name": "byte_bpe", "sentencepiece_model_path": ADDRESS},
            "sentencepiece_model_path=FILE",
        ),
        (
            "tokenizer",
            {"_name": "sentencepiece", "sentencepiece_model": ADDRESS},
            "sentencepiece_model=FILE",
        ),
    ],
)
def test_encoders_that_fetch_files_are_rejected(group, encoder, named):
    with pytest.raises(UserInputError, match="would be fetched") as raised:
        check_encoder_files({group: encoder}, "model.pt")
    assert named in str(raised.value)


@pytest.mark.parametrize("encoder", [None, "space", GPT2, {"_name": None}])
def test_encoders_with_local_files_are_accepted(encoder):
    check_encoder_files({"bpe": encoder}, "model.pt")


def test_from_pretrained_fetches_nothing(checkpoint, data_bin, tmp_path):
    state = torch.load(checkpoint, weights_only=False)
    state["cfg"]["bpe"] = {"_name": "sentencepiece", "sentencepiece_model": ADDRESS}
    torch.save(state, tmp_path / "model.pt")
    with pytest.raises(UserInputError, match="would be fetched"):
        AlibiLanguageModel.from_pretrained(tmp_path, "model.pt", data_bin)


@pytest.fixture
def archive(tmp_path):
    """Return an archive with a member outside the folder of extraction."""
    path = tmp_path / "model.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo("../outside.txt")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"harm"))
    yield path
    assert path.is_file()
    assert not (tmp_path.parent / "outside.txt").exists()


def test_no_archive_is_extracted(archive, monkeypatch):
    monkeypatch.setattr("fairseq.file_utils.cached_path", lambda *_, **__: str(archive))
    for name in (str(archive), "https://example.org/model.tar.gz"):
        with pytest.raises(UserInputError, match="extract it and pass the folder"):
            AlibiLanguageModel.from_pretrained(name, "checkpoint_best.pt")


@pytest.mark.parametrize("version", ["2.5.1", "2.9.1"])
def test_older_torch_rejects_checkpoints(checkpoint, data_bin, monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion(version))
    with pytest.raises(UserInputError, match="Install PyTorch 2.10 or later"):
        in_process("eval_lm", data_bin, "--path", checkpoint, "--cpu")


def test_environment_variables_are_not_resolved(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SECRET", "42424242")
    state = torch.load(trained("alibi"), weights_only=True)
    flat = {"arch": "alibi_lm", "task": "language_modeling", "data": "${oc.env:SECRET}"}
    state["args"] = argparse.Namespace(**flat, criterion="cross_entropy", tokens_per_sample="x")
    state["cfg"] = None
    torch.save(state, tmp_path / "c.pt")
    arguments = ["eval-lm", str(trained.data), "--path", str(tmp_path / "c.pt"), "--cpu"]
    message = error_message(arguments, capsys)
    assert "42424242" not in message
    assert "refers to something outside" in message


@pytest.mark.parametrize("command", ["eval", "eval-lm", "validate", "train"])
def test_data_folder_name_reaches_no_shell(command, trained, tmp_path, capsys, mark, monkeypatch):
    """Check a folder name that fairseq's reader of FASTA files would run as code."""
    folder = tmp_path / f"data;touch {mark.name};"
    folder.mkdir()
    (folder / "dict.txt").write_bytes((trained.data / "dict.txt").read_bytes())
    for split in ("train", "valid", "test"):
        (folder / f"{split}.fasta").write_text(">a\nACGT\n")
    if command == "train":
        arguments = ["train", str(folder), "--task", "language_modeling", "--arch", "alibi_lm"]
        arguments += ["--tokens-per-sample", "16", "--max-tokens", "64", "--max-update", "1"]
        arguments += ["--optimizer", "adam", "--cpu", "--save-dir", str(tmp_path / "runs")]
    else:
        arguments = commands(folder, trained("alibi"), tmp_path / "out.json")[command]
    monkeypatch.chdir(tmp_path)
    message = error_message(arguments, capsys)
    assert "the unsupported format 'fasta'" in message
    assert not mark.exists()
    assert not list(folder.glob("*.npy"))
