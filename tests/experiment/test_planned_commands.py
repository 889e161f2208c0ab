"""Commands that experiments plan, against the commands that earlier versions planned.

``planned/hashes.json`` has a hash of all commands of each experiment. So that one can read what
changed, the other files have the commands of its first models: of the first trial and of the first
seed of each. This command writes the files::

    PYTHONPATH=.:tests python tests/experiment/test_planned_commands.py
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import yaml
from commands import ROOT

import studies.__main__
from alibi_fairseq.cli import main

PLANNED = Path(__file__).with_name("planned")
HASHES = PLANNED / "hashes.json"
#: Documented commands.
COMMANDS = {
    "lengths": "compare texts/ --methods alibi,sinusoidal,rotary --train-lengths 128 "
    "--lengths 128,512,2048 --seeds 1,2 --out runs/lengths",
    "rotary": "compare texts/ --out runs/rotary "
    "--methods all,later,rotary+none,rotary/p_rope=0.75,rotary+none/attention_window=64+0",
    "modern-block": "compare texts/ --out runs/modern-block --methods alibi,rotary,none "
    "--seeds 1,2,3 --lengths 1x,2x,4x --train-flags '--dropout 0' --arch alibi_lm_modern_tiny",
    "probes": "compare texts/ --probes copy,passkey --lr 0.001,0.002 --train-lengths 64 "
    "--out runs/probes",
    "table5": "reproduce table5 --corpus wikitext-103=wikitext-103-v1.zip --gpus 8",
    "figure5": "reproduce figure5 --gpus 128 --nodes 16",
    "smoke": "reproduce all --scale smoke --cpu 1",
}
#: Comparisons in YAML.
COMPARISONS = sorted(PLANNED.glob("*.yaml"))
#: Models and trials whose commands are kept as text.
MAX_BLOCKS = 4
STUDIES = sorted((ROOT / "studies").glob("*/*.yaml"))
CASES = [*COMMANDS, *(path.stem for path in COMPARISONS + STUDIES)]


def dry_run(case: str) -> str:
    """Return what the dry run of an experiment prints, in an empty working folder."""
    command = main
    if case in COMMANDS:
        words = shlex.split(COMMANDS[case])
    elif (PLANNED / f"{case}.yaml").is_file():
        words = ["compare", str(PLANNED / f"{case}.yaml"), "--out", "out"]
    else:
        command = studies.__main__.main
        (path,) = [path for path in STUDIES if path.stem == case]
        words = [str(path)]
        for corpus in yaml.safe_load(path.read_text(encoding="utf-8"))["corpora"]:
            words += ["--corpus", f"{corpus['name']}={corpus['name']}.zip"]
    printed = StringIO()
    with redirect_stdout(printed):
        assert command([*words, "--dry-run"]) == 0
    return printed.getvalue()


def planned_commands(printed: str) -> dict[str, list[str]]:
    """Return the commands of each run by its name, in order."""
    commands: dict[str, list[str]] = {}
    for block in printed.split("\n\n"):
        title, *lines = block.splitlines() or [""]
        run = re.match(r"# \[\d+/\d+\] (.+)", title)
        if run:
            commands[run[1]] = lines
    return commands


def first_models(commands: dict[str, list[str]]) -> str:
    """Return the commands of the first models, each of its first trial and seed, as text."""
    blocks = []
    models = set()
    for name, lines in commands.items():
        model, _, suffix = name.partition("-seed")
        key = (model, "-lr" in suffix)
        if key not in models and len(models) < MAX_BLOCKS:
            models.add(key)
            blocks.append("\n".join([name, *lines]))
    return "\n\n".join(blocks) + "\n"


def hash_of(commands: dict[str, list[str]]) -> str:
    """Return the hash of all commands."""
    return hashlib.sha256(json.dumps(list(commands.items())).encode()).hexdigest()


@pytest.mark.ci
@pytest.mark.parametrize("case", CASES)
def test_planned_commands_stay_the_same(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = planned_commands(dry_run(case))
    expected = (PLANNED / f"{case}.txt").read_text(encoding="utf-8")
    assert first_models(commands) == expected
    assert hash_of(commands) == json.loads(HASHES.read_text(encoding="utf-8"))[case]


if __name__ == "__main__":
    hashes = {}
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            planned = planned_commands(dry_run(name))
        hashes[name] = hash_of(planned)
        (PLANNED / f"{name}.txt").write_text(first_models(planned), encoding="utf-8")
    HASHES.write_text(json.dumps(hashes, indent=1) + "\n", encoding="utf-8")
