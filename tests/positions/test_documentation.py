"""The guide's method works as printed, and the table of methods says what is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from math import prod
from pathlib import Path

import pytest
import torch
from commands import as_process
from conftest import random_tokens, small_model
from fairseq_runs import SMALL, run_eval_lm, write_corpus

from alibi_fairseq import positions
from alibi_fairseq.positions import METHODS, PositionConfig, PositionMethod, build_position_method
from alibi_fairseq.results.schema import load_document

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "adding-a-position-method.md").read_text(encoding="utf-8")
TABLE = (ROOT / "docs" / "position-methods.md").read_text(encoding="utf-8")


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """The guide's code as a package outside of this one, imported; forgotten after the test."""
    (tmp_path / "my_plugin").mkdir()
    code = re.search(r"```python\n(.*?)```", GUIDE, re.DOTALL)[1]
    (tmp_path / "my_plugin" / "__init__.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import my_plugin

    yield tmp_path / "my_plugin"
    del METHODS["root"], sys.modules["my_plugin"]
    assert my_plugin


@pytest.mark.slow
@torch.no_grad()
def test_the_guides_method_trains_with_the_real_command(plugin, tmp_path):
    data = write_corpus(tmp_path, train=600, valid=100)
    flags = "--task language_modeling --tokens-per-sample 16 --max-tokens 64 --max-update 3"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    save = tmp_path / "model"
    subprocess.run(
        [sys.executable, "-m", "fairseq_cli.train", str(data), "--user-dir", str(plugin)]
        + [
            *SMALL.split(),
            "--cpu",
            *flags.split(),
            "--position-method",
            "root",
            "--save-dir",
            str(save),
        ],
        env=environment,
        check=True,
        capture_output=True,
    )
    flags = "--task language_modeling --tokens-per-sample 64 --gen-subset valid --max-tokens 64"
    loss = run_eval_lm(data, save / "checkpoint_last.pt", *flags.split())["loss"]
    assert loss > 0
    command = ["-m", "alibi_fairseq", "eval", data, "--path", save / "checkpoint_last.pt"]
    command += ["--lengths", 64, "--out", tmp_path / "results.json"]
    done = as_process(*command, "--user-dir", plugin)
    assert done.returncode == 0, done.stderr
    (cell,) = load_document(tmp_path / "results.json")["cells"]
    assert cell["position_method"] == "root"
    assert cell["loss_bits"] == pytest.approx(float(loss), abs=1e-3)


@torch.no_grad()
def test_the_guides_method_decodes_with_a_cache(plugin):
    model, tokens, state = small_model("root"), random_tokens(2, 40), {}
    chunks = [
        model.decoder(tokens[:, :end], incremental_state=state)[0] for end in (1, 2, 17, 30, 40)
    ]
    torch.testing.assert_close(torch.cat(chunks, 1), model(tokens)[0], rtol=0, atol=1e-5)
    other = small_model("none")
    other.load_state_dict(model.state_dict())
    assert (other(tokens)[0] - model(tokens)[0]).abs().max() > 1e-3


def test_a_name_is_registered_once(plugin):
    positions.register_position_method("root", METHODS["root"])  # the same again is no harm
    with pytest.raises(ValueError, match="'alibi' is registered already"):
        positions.register_position_method("alibi", PositionMethod)


def rows() -> dict[str, list[str]]:
    """Cells of the table of methods by name."""
    found = re.findall(r"^\| `(\w+)` \|(.*)\|$", TABLE, re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split(" | ")] for name, cells in found}


def test_the_table_has_every_method_and_its_file():
    assert list(rows()) == list(METHODS)
    for name, cells in rows().items():
        assert len(cells) == 6
        path = ROOT / "alibi_fairseq" / cells[-1].strip("`")
        assert path.is_file()
        assert METHODS[name].__module__ == f"alibi_fairseq.positions.{path.stem}"


@pytest.mark.parametrize("name", list(METHODS))
def test_the_table_counts_parameters(name):
    sizes = {"C": 48, "H": 6, "D": 8, "layers": 5, "train_length": 70}
    config = PositionConfig(48, 6, num_layers=5, train_length=70)
    method = build_position_method(name, config)
    counted = sum(parameter.numel() for parameter in method.parameters())
    terms = rows()[name][1].split(" + ")
    assert counted == sum(prod(power(part, sizes) for part in term.split(" * ")) for term in terms)


def power(part: str, sizes: dict[str, int]) -> int:
    """The value of ``32``, ``C`` or ``C**2``."""
    base, _, exponent = part.partition("**")
    return int(sizes.get(base, base)) ** int(exponent or 1)
