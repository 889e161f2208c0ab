"""Command ``alibi-fairseq check``."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from commands import ROOT, as_process

from alibi_fairseq import cli
from alibi_fairseq.cli.check import default_methods
from alibi_fairseq.positions import METHODS, PositionMethod, option

#: Embeddings of the first row's positions, which are wrong for rows of different lengths.
BROKEN = """
class Broken(PositionMethod):
    def embed(self, positions):
        angles = positions[:1, :, None] * 0.1 ** torch.arange(self.config.embed_dim)
        return angles.cos().expand(len(positions), -1, -1)


register_position_method("broken", Broken)
"""


@pytest.fixture
def plugin(tmp_path):
    """Return a folder with the documented plugin."""
    guide = (ROOT / "docs" / "adding-a-position-method.md").read_text(encoding="utf-8")
    folder = tmp_path / "my_plugin"
    folder.mkdir()
    code = re.search(r"```python\n(.*?)```", guide, re.DOTALL)[1]
    (folder / "__init__.py").write_text(code, encoding="utf-8")
    return folder


def check(*arguments):
    return as_process("-m", "alibi_fairseq", "check", *arguments)


@pytest.mark.ci
def test_documented_plugin_passes(plugin):
    done = check("--user-dir", plugin)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^\| (\w+) +\|.*$", done.stdout, re.MULTILINE)
    assert rows == ["method", "root"]


@pytest.mark.ci
def test_failure_is_named_and_sets_the_exit_code(plugin):
    with (plugin / "__init__.py").open("a") as stream:
        stream.write(BROKEN)
    done = check("--user-dir", plugin)
    assert done.returncode == 1
    assert "broken, left padding: The scores of a row with padding differ" in done.stdout
    assert done.stdout.endswith("Failed: broken.\n")
    done = check("--user-dir", plugin, "--methods", "root,alibi")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["table.md", "table.tex"])
def test_table_is_written(name, tmp_path, capsys, uncompiled_flex):
    out = tmp_path / name
    assert cli.main(["check", "--methods", "learned,alibi/alibi_scale=2", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    written = out.read_text(encoding="utf-8")
    if name == "table.md":
        assert written == printed
    else:
        assert r"\begin{tabular}" in written
        assert "alibi/alibi\\_scale=2 &" in written
    assert "Learned positions are limited to the training length of 32 tokens" in written


@dataclass(frozen=True)
class SwitchedOptions:
    learnable: bool = option("learn the slopes", True)
    exponent: float = option("power of the distance", 0.5)


class Switched(PositionMethod):
    Options = SwitchedOptions


def test_default_checks_both_values_of_a_switch(monkeypatch):
    monkeypatch.setitem(METHODS, "switched", Switched)
    assert default_methods() == ["switched", "switched/learnable=false"]


def test_unknown_method_is_rejected(capsys):
    assert cli.main(["check", "--methods", "rotry"]) == 2
    assert "There is no position method 'rotry'." in capsys.readouterr().err
