"""Progress bars in a log."""

from __future__ import annotations

import io
import sys

from alibi_fairseq.data.parallel import progress


def test_each_state_is_a_line_of_a_log(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with progress(3, "counting", "files", mininterval=0) as bar:
        for _ in range(3):
            bar.update()
    lines = log.getvalue().splitlines()
    assert "\r" not in log.getvalue() and all(line.startswith("counting") for line in lines)
    assert "0/3" in lines[0].replace(".00", "") and "100%" in lines[-1]
