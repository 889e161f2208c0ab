"""Invalid input: one sentence, exit code 2, and no traceback."""

from __future__ import annotations

import json
import os
import pickle
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import PACKAGE, SHORT, as_process
from fairseq.data import Dictionary, indexed_dataset
from hydra.errors import MissingConfigException
from results_documents import document, evaluation_cell
from torch.multiprocessing import ProcessRaisedException

from alibi_fairseq import cli
from alibi_fairseq.errors import UserInputError, explain, option_errors


def mostly_slow(cases, quick: int) -> list:
    """So many of the cases in every run of the tests, and all of them in a slow one."""
    cases = list(cases)
    return cases[:quick] + [pytest.param(case, marks=pytest.mark.slow) for case in cases[quick:]]


def evaluate(data, checkpoint, out) -> list:
    flags = ["--path", checkpoint, "--lengths", 16, "--device", "cpu", "--out", out]
    return ["eval", data, *flags]


def token_out_of_range(data):
    for split in ("valid", "train"):
        tokens = np.fromfile(data / f"{split}.bin", np.uint16)
        tokens[3:] = 60_000
        tokens.tofile(data / f"{split}.bin")


def change(name, how):
    """Harm all splits, so that training notices it as evaluation does."""

    def harm(data):
        for path in data.glob(name):
            path.write_bytes(how(path.read_bytes()))

    return harm


#: What harms a data folder, and the file that is to be named.
DATA = {
    "half of the numbers": (change("*.bin", lambda b: b[: len(b) // 2]), ".bin"),
    "a token out of range": (token_out_of_range, "dict"),
    "an index that is cut off": (change("*.idx", lambda b: b[:40]), ".idx"),
    "no counts": (change("dict.txt", lambda b: b.replace(b" ", b"-")), "dict.txt"),
    "no index": (change("*.idx", lambda b: b""), ""),
    "floats": (change("*.idx", lambda b: b[:17] + b"\x06" + b[18:]), ".idx"),
    "a version of the future": (change("*.idx", lambda b: b[:9] + b"\x07" + b[10:]), ".idx"),
    "a word twice": (change("dict.txt", lambda b: b + b.splitlines()[0]), "dict.txt"),
    "latin-1": (change("dict.txt", lambda b: "n\u00e4 1\n".encode("latin-1") + b), "dict.txt"),
    "a blank line": (change("dict.txt", lambda b: b"\n" + b), "dict.txt"),
}


@pytest.mark.parametrize("harm", mostly_slow(DATA, 2))
def test_corrupted_data_is_rejected(data_bin, checkpoint, tmp_path, refuse, harm):
    data = shutil.copytree(data_bin, tmp_path / "data")
    damage, named = DATA[harm]
    damage(data)
    assert named in refuse(*evaluate(data, checkpoint, tmp_path / "out.json"))
    assert named in refuse("train", data, *SHORT, "--save-dir", tmp_path / "run")
    assert not [*tmp_path.glob("out.json"), *tmp_path.rglob("checkpoint_last.pt")]


@pytest.mark.parametrize("place", [-8, 10**6])
def test_index_past_the_end_is_rejected(tmp_path, place):
    """It would be read beyond the end of the numbers without a word."""
    prefix = str(tmp_path / "valid")
    for kind in ("cached", "mmap"):
        builder = indexed_dataset.make_builder(f"{prefix}.bin", kind)
        for size in (3, 4):
            builder.add_item(torch.arange(size))
        builder.finalize(f"{prefix}.idx")
        if kind == "cached":
            with pytest.raises(UserInputError, match="format 'cached'"):
                indexed_dataset.make_dataset(prefix, kind)
    assert indexed_dataset.make_dataset(prefix, kind).sizes.tolist() == [3, 4]
    with open(f"{prefix}.idx", "r+b") as file:
        file.seek(-16, os.SEEK_END)  # where the last line begins, and one number for each document
        file.write(np.int64(place).tobytes())
    with pytest.raises(UserInputError, match="valid.idx"):
        indexed_dataset.make_dataset(prefix, kind)


#: Options of a training, each with what the sentence names.
TRAINING = {
    "--dropout 2": "--dropout",
    "--decoder-attention-heads 5": "5 attention heads",
    "--tokens-per-sampel 8": "--tokens-per-sampel",
    "--restore-file CHECKPOINT --decoder-embed-dim 64": "embed_tokens",
    "--restore-file CHECKPOINT --decoder-layers 2": "layers.1",
    "--adaptive-input --adaptive-input-cutoff 1000": "cutoff",
    # fairseq would train nothing and end with 0, hang, or die of a signal.
    "--distributed-init-method nosuch": "--distributed-init-method",
    "--write-checkpoints-asynchronously": "without an update",
    "--alibi-slopes /dev/zero": "--alibi-slopes",
    "--required-batch-size-multiple 0": "--required-batch-size-multiple",
    "--tie-adaptive-weights": "--tie-adaptive-weights",
    "--decoder-layers-to-keep x": "--decoder-layers-to-keep",
    "--finetune-from-model FOLDER": "--finetune-from-model",
    "--fp16": "--fp16",
    "--decoder-ffn-embed-dim 0": "--decoder-ffn-embed-dim",
    "--arch alibi_lm_tny": "Did you mean 'alibi_lm_tiny'?",
    "--position-method my_method": "--user-dir",
    # fairseq, NumPy or torch raise where they use it first.
    "--criterion ctc": "ctc_loss",
    "--adaptive-softmax-cutoff 20,10": "negative dimension",
    "--adam-betas test": "self.cfg.adam_betas",
    "--update-freq ' '": "ast.literal_eval",
    "--seed 99999999999999999999999": "cfg.common.seed",
    "--quant-noise-pq 0.1 --quant-noise-pq-block-size 0": "block_size",
    "--criterion adaptive_loss --adaptive-softmax-cutoff 10,20": "--ddp-backend=legacy_ddp",
    "--adaptive-input": "--adaptive-input-cutoff",
}


@pytest.mark.parametrize("flags", mostly_slow(TRAINING, 25))
def test_invalid_training_options_are_rejected(data_bin, checkpoint, tmp_path, refuse, flags):
    places = {"CHECKPOINT": checkpoint, "FOLDER": tmp_path}
    words = [places.get(word, word) for word in shlex.split(flags)]
    run = tmp_path / "run"
    assert TRAINING[flags] in refuse("train", data_bin, *SHORT, *words, "--save-dir", run)
    assert not run.exists()


#: Nobody checks these first: fairseq, NumPy or torch raise where they trip over them.
UNEXPECTED = (
    *(
        "--adaptive-input --adaptive-input-cutoff 20,10",
        "--adam-betas (0.9)",
        "--lr =",
        "--task masked_lm",
    ),
    *("--log-file /nosuch/x", "--seed -1", "--update-freq 0", "--num-workers -1"),
    "--lr-scheduler inverse_sqrt --warmup-updates 0",
)


@pytest.mark.parametrize("flags", mostly_slow(UNEXPECTED, 4))
def test_unexpected_error_saves_traceback(data_bin, tmp_path, fail, capsys, monkeypatch, flags):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code, said = fail("train", data_bin, *SHORT, *flags.split(), "--save-dir", tmp_path / "run")
    assert code in (1, 2)
    assert "Traceback" not in capsys.readouterr().err
    if code == 1:
        trace = Path(said.partition("its traceback is in ")[2]).read_text()
        assert said.partition(": ")[0] in trace
        assert "Traceback" in trace
    assert not list(tmp_path.rglob("*.pt"))
    assert not list(tmp_path.rglob("*.lock"))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("train DATA --arch alibi_lm_tiny --max-tokens 64", "--task language_modeling"),
        (f"train nowhere {' '.join(SHORT)}", "nowhere"),
        (f"train EMPTY {' '.join(SHORT)}", "dict.txt"),
        ("eval-lm DATA --cpu --path none.pt", "none.pt"),
        ("eval-lm DATA --cpu --path CHECKPOINT --gen-subset dev", "dev"),
        (
            "eval-lm DATA --cpu --path CHECKPOINT --tokens-per-sample 16 --max-tokens 8",
            "max_tokens",
        ),
        ("eval DATA --path CHECKPOINT --lengths 8 --out r.json --memory-gb inf", "--memory-gb"),
        ("compair", "Did you mean 'compare'?"),
        ("compare . --out x --methods alibi sinusoidal", "--methods alibi,sinusoidal"),
        ("compare . --out x --lr x", "--lr: 'x' must be a valid number."),
        ("compare . --out x --tokens-per-update 100", "--tokens-per-update: 100 is not"),
        ("compare . --out x --lengths 4y", "--lengths: '4y' must be a number of tokens"),
        ("compare . --out x --arch alibi_lm_tny", "Did you mean 'alibi_lm_tiny'?"),
        ("compare . --out x --methods my_method", "--user-dir"),
        ("prepare txt .", "Did you mean 'text'?"),
        ("prepare text name\udcff.txt", "not UTF-8"),
        ("prepare text NAMES", "not UTF-8"),
        ("eval DATA --path RUN --lengths 8 --out r.json", "RUN/checkpoint_best.pt"),
        ("eval-lm DATA --cpu --path RUN", "RUN/checkpoint_best.pt"),
    ],
)
def test_invalid_options_are_rejected(
    data_bin, checkpoint, tmp_path, refuse, words, named, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names").mkdir()
    Path(tmp_path, "names", "a\udcff.txt").touch()
    places = {"DATA": data_bin, "CHECKPOINT": checkpoint, "EMPTY": tmp_path}
    places |= {"RUN": checkpoint.parent, "NAMES": tmp_path / "names"}
    named = named.replace("RUN", str(checkpoint.parent))
    assert named in refuse(*(places.get(word, word) for word in words.split()))


#: Commands that would read a device or a pipe without end.
ENDLESS = (
    *("report PLACE", "compare PLACE.yaml --out x", "prepare text PLACE", "eval DATA --path PLACE"),
    *("eval-lm DATA --cpu --path PLACE", "import-checkpoint PLACE --dict PLACE --out x"),
    *("import-checkpoint CHECKPOINT --dict PLACE --out x",),
    "export --path CHECKPOINT --data DATA --out x --tokenizer-files PLACE",
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("words", ENDLESS)
@pytest.mark.parametrize("kind", ["/dev/zero", "pipe"])
def test_input_must_be_regular_file(
    data_bin, checkpoint, tmp_path, refuse, words, kind, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "place"
    for path in (place, tmp_path / "place.yaml"):
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(kind)
    for name, path in (("DATA", data_bin), ("CHECKPOINT", checkpoint), ("PLACE", place)):
        words = words.replace(name, str(path))
    if words.startswith("eval "):
        words += " --lengths 8 --out r.json"
    assert "is a device or a pipe" in refuse(*words.split())


def without(state: dict, *keys: str) -> dict:
    return {key: value for key, value in state.items() if key not in keys}


#: What a checkpoint holds after some harm.
CHECKPOINTS = {
    "other weights": lambda state: {"weights": torch.ones(1)},
    "no model": lambda state: {**state, "model": None},
    "no options": lambda state: {**state, "cfg": None, "args": None},
    "a number for options": lambda state: {**state, "cfg": {"model": 3}},
    "one tensor more": lambda state: {**state, "model": {**state["model"], "more": torch.ones(1)}},
    "an odd history": lambda state: {**state, "optimizer_history": [3]},
    "an odd state of the task": lambda state: {**state, "task_state": 3},
    "an unknown model": lambda state: {
        **state,
        "cfg": {**state["cfg"], "model": {**state["cfg"]["model"], "_name": "of_a_stranger"}},
    },
    "5": None,  # that many bytes of it
    "5000": None,
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_corrupted_checkpoints_are_rejected(data_bin, checkpoint, tmp_path, refuse, name):
    path = tmp_path / "odd.pt"
    harm = CHECKPOINTS[name]
    if harm:
        torch.save(harm(torch.load(checkpoint, weights_only=True)), path)
    else:
        path.write_bytes(checkpoint.read_bytes()[: int(name)])
    assert refuse(*evaluate(data_bin, path, tmp_path / "out.json"))
    flags = ["--dict", data_bin / "dict.txt", "--out", tmp_path]
    assert refuse("import-checkpoint", path, *flags)
    assert [file.name for file in tmp_path.iterdir()] == ["odd.pt"]


def test_dictionary_of_different_size_is_rejected(data_bin, checkpoint, tmp_path, refuse):
    dictionary = Dictionary.load(str(data_bin / "dict.txt"))
    dictionary.add_symbol("more")
    dictionary.save(str(tmp_path / "dict.txt"))
    assert "dictionary" in refuse("eval-lm", tmp_path, "--path", checkpoint, "--cpu")
    # Checkpoints of others do not remember their dictionary; there the shapes tell.
    torch.save(without(torch.load(checkpoint), "task_state"), tmp_path / "other.pt")
    said = refuse("eval-lm", tmp_path, "--path", tmp_path / "other.pt", "--cpu")
    assert "dictionary" in said
    assert "embed_tokens" in said


def with_cell(**values) -> str:
    return json.dumps(document(evaluation_cell() | values))


RESULTS = {
    "a missing key": json.dumps(without(document(evaluation_cell()), "corpus")),
    "a missing key of a cell": json.dumps(document(without(evaluation_cell(), "tokens"))),
    "a huge number": with_cell(tokens=10**400),
    "too many digits": with_cell(tokens=5).replace(": 5", ": " + "9" * 5000),
    "deep nesting": '{"a":' * 3000,
    "half a surrogate pair": with_cell(model="\ud800"),
    "NaN": with_cell(seconds=float("nan")),
    "overrides that are no JSON": with_cell(model_overrides="{'a': 1}"),
    "text that is no object": json.dumps(document(evaluation_cell(), text=5)),
    "no JSON": "hello",
    "latin-1": "n\u00e4".encode("latin-1"),
    "another document": "[]",
}


@pytest.mark.parametrize("name", RESULTS)
def test_corrupted_results_are_rejected(tmp_path, refuse, name):
    content = RESULTS[name]
    path = tmp_path / "results.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert str(path) in refuse("report", path, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


NASTY = "<script>x</script> | **b** ![i](http://e) `c` $x^{$ " + "long" * 100


def test_results_text_is_escaped(tmp_path, arguments_of_pytest_stay):
    cells = [evaluation_cell(16.0, length=length, model=NASTY) for length in (64, 128)]
    (tmp_path / "results.json").write_text(json.dumps(document(*cells, corpus=NASTY)))
    out = tmp_path / "out"
    assert cli.main(["report", str(tmp_path / "results.json"), "--out", str(out)]) == 0
    pages = list(out.rglob("*.md"))
    assert pages
    for page in pages:
        text = page.read_text()
        assert "<script" not in text
        assert "&lt;script&gt;" in text
        assert "**b**" not in text
        assert "![i](" not in text
        assert " | **" not in text
        assert len(page.name) < 200
    assert list(out.rglob("*.png"))


@pytest.mark.parametrize(
    "text",
    ["{", "a: [", "\tx", "2026-99-99", "!!python/object/apply:os.system [x]", "[" * 3000, "?"],
)
def test_invalid_yaml_is_rejected(tmp_path, refuse, text):
    path = tmp_path / "comparison.yaml"
    path.write_text(text)
    assert "comparison.yaml" in refuse("compare", path, "--out", tmp_path / "out")


def test_impossible_output_path_is_rejected(tmp_path, refuse):
    (tmp_path / "results.json").write_text(with_cell())
    for out in (tmp_path / "results.json" / "below", tmp_path / ("x" * 300)):
        assert str(out)[:200] in refuse("report", tmp_path / "results.json", "--out", out)


@pytest.mark.parametrize("place", ["a closed pipe", "/dev/full"])
def test_unwritable_stdout_is_reported(place, monkeypatch, refuse):
    if place == "/dev/full":
        stream = os.fdopen(os.open(place, os.O_WRONLY), "w")
    else:
        reader, writer = os.pipe()
        os.close(reader)
        stream = os.fdopen(writer, "w")
    with stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        assert "The output" in refuse("models")


FROM_A_CHILD = """

-- Process 0 terminated with the following error:
Traceback (most recent call last):
  File "x.py", line 1
ValueError: inner

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
alibi_fairseq.errors.UserInputError: Wrong: do this.
"""


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access"),
        torch.OutOfMemoryError("CUDA out of memory"),
    ],
)
def test_device_errors_blame_no_option(monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(Dictionary, "__len__", fail)
    with pytest.raises(type(error)), option_errors():
        Dictionary.finalize(Dictionary())


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (RuntimeError("out of memory"), None),
        (ProcessRaisedException("\n\n-- Process 1 …\nTraceback …\nKeyError: 'x'\n", 1, 1), None),
        (ProcessRaisedException(FROM_A_CHILD, 0, 1), "Wrong: do this."),
        (UserInputError("on\n two lines"), "on two lines"),
        (MissingConfigException("no such\nfile", "x"), "no such file"),
        (ModuleNotFoundError("No module named 'alibi_fairseq.x'", name="alibi_fairseq.x"), None),
        (ModuleNotFoundError("No module", name="transformers"), "alibi-fairseq[huggingface]"),
        (pickle.UnpicklingError("Weights only load failed. GLOBAL posix.system"), "posix.system"),
    ],
)
def test_explain(error, sentence):
    found = explain(error)
    assert found is None if sentence is None else sentence in found


class TestTrainingErrors:
    """Exit code and last words of real ones."""

    @pytest.mark.parametrize("spawned", [False, pytest.param(True, marks=pytest.mark.slow)])
    def test_training_errors_print_one_line(self, spawned, data_bin, tmp_path):
        words = [data_bin, "--user-dir", PACKAGE, *SHORT, "--save-dir", tmp_path / "out"]
        words += ["--position-method", "alibo"]
        command = ["-m", "fairseq_cli.train", *words]
        if spawned:
            # Stands in for a machine with a GPU, where fairseq starts its processes by spawn.
            program = "import sys, torch; torch.cuda.device_count = lambda: 1; "
            program += "sys.argv[0] = 'fairseq-train'; "
            program += "from fairseq_cli.train import cli_main; cli_main()"
            flags = ["--distributed-init-method", "tcp://localhost:29577"]
            flags += ["--distributed-world-size", "1", "--distributed-backend", "gloo"]
            command = ["-c", program, *words, *flags]
        failed = as_process(*command)
        last = failed.stderr.strip().splitlines()[-1]
        assert failed.returncode == 2, failed.stderr[-2000:]
        assert "error: " in last
        assert "Did you mean 'alibi'?" in last
        assert "Traceback" not in failed.stderr
        assert "hydra" not in failed.stderr
        assert not (tmp_path / "out").exists()

    def test_full_stdout_does_not_end_training(self, data_bin, tmp_path):
        """Log lines that cannot be written are dropped, without a traceback for each."""
        words = ["alibi_fairseq", "train", data_bin, *SHORT, "--save-dir", tmp_path]
        program = "import os, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), 1); "
        program += "os.execv(sys.executable, [sys.executable, '-m', *sys.argv[1:]])"
        done = as_process("-c", program, *words)
        assert done.returncode == 0, done.stderr[-2000:]
        assert "Traceback" not in done.stderr
        assert "Logging error" not in done.stderr
        assert (tmp_path / "checkpoint_last.pt").is_file()

    def test_full_stderr_moves_error_to_stdout(self, data_bin):
        program = "import os, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), 2); "
        program += "os.execv(sys.executable, [sys.executable, '-m', *sys.argv[1:]])"
        done = as_process("-c", program, "alibi_fairseq", "models", "--nosuch")
        assert done.returncode == 2
        assert "error: " in done.stdout.splitlines()[-1]
        assert "--nosuch" in done.stdout

    @pytest.mark.parametrize(
        "number", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 2))]
    )
    def test_closed_standard_stream(self, number):
        program = f"import os, sys; os.close({number}); os.execv(sys.executable, "
        program += "[sys.executable, '-m', 'alibi_fairseq', 'models'])"
        done = as_process("-c", program)
        assert "Traceback" not in done.stderr
        assert done.returncode == 0, done.stderr
