"""A method of a plugin in a comparison: its name, a probe, speeds beside sinusoidal."""

import re

from commands import ROOT, as_process
from results_documents import cells_of

from alibi_fairseq.results.schema import load_document

TINY = "--decoder-layers 1 --decoder-embed-dim 32 --decoder-ffn-embed-dim 32 --num-workers 0"


def test_a_file_of_ones_own_adds_a_row_to_the_one_table(data_bin, tmp_path):
    guide = (ROOT / "docs" / "adding-a-position-method.md").read_text(encoding="utf-8")
    (tmp_path / "my_plugin").mkdir()
    code = re.search(r"```python\n(.*?)```", guide, re.DOTALL)[1]
    (tmp_path / "my_plugin" / "__init__.py").write_text(code, encoding="utf-8")
    words = ["compare", data_bin, "--user-dir", tmp_path / "my_plugin", "--methods", "root"]
    words += ["--train-lengths", "32", "--eval-lengths", "1x,4x", "--tokens-per-update", "128"]
    words += ["--updates", "2", "--probes", "copy", "--speeds", "--train-flags", TINY]
    done = as_process("-m", "alibi_fairseq", *words, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    header, row, *_ = cells_of((tmp_path / "out" / "table.md").read_text(encoding="utf-8"))
    speeds = ("training speed", "evaluation speed", "memory")
    assert header[1:] == ["32", "128", *speeds, "copy at 1 L", "copy at 4 L"]
    assert row[0] == "Root distance, L=32" and row[5] == "–"  # no sinusoidal model was trained
    assert all(float(cell.split()[0]) > 0 for cell in row[1:5]) and row[6].endswith("%")
    measured = load_document(tmp_path / "out" / "speeds.json")["cells"]
    cases = [(cell["position_method"], cell["phase"]) for cell in measured]
    models = ("root", "sinusoidal")
    assert sorted(cases) == [(name, phase) for name in models for phase in ("evaluate", "train")]
    assert all(len(cell["round_seconds"]) == 15 for cell in measured)
    probed = (tmp_path / "out" / "copy-results.json").read_text(encoding="utf-8")
    assert '"display_name": "Root distance"' in probed
