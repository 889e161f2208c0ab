"""Dangerous calls in fairseq, and the reasons why no untrusted file reaches them.

Dangerous calls evaluate text, unpickle objects, extract archives, or start processes.
"""

from __future__ import annotations

import ast
import os
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import fairseq
import pytest

from alibi_fairseq.plugin.patches.safe_loading import evaluate_literal, replace_eval_in_fairseq

SITE = Path(fairseq.__file__).parent.parent

#: Files of fairseq that unpickle or extract, and their guards against untrusted files.
GUARDED = {
    "fairseq/checkpoint_utils.py": "safe_loading.load_validated_checkpoint: only safe types",
    "fairseq/file_utils.py": "safe_loading.reject_archives",
    "fairseq/distributed/utils.py": "sent by the other processes of the same job",
}
#: Files used only by models, tasks, and criterions that checkpoints.option_validation rejects.
REJECTED = (
    "fairseq/models/text_to_speech/",
    "fairseq/models/speech_to_text/",
    "fairseq/models/wav2vec/",
    "fairseq/models/hubert/",
    "fairseq/modules/quantization/pq/",
    "fairseq/data/codedataset.py",
    "fairseq/data/audio/",
    "fairseq/tasks/",
    "fairseq/speech_generator.py",
    "fairseq/benchmark/",
)


@cache
def all_calls() -> list[tuple[str, str]]:
    """Return the file and the called name of every call in fairseq."""
    calls = []
    for folder in ("fairseq", "fairseq_cli"):
        for path in sorted((SITE / folder).rglob("*.py")):
            file = path.relative_to(SITE).as_posix()
            if file.startswith("fairseq/examples/"):  # is not imported by fairseq
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    calls.append((file, ast.unparse(node.func)))
    return calls


def files_calling(*names: str) -> list[str]:
    """Return the files of fairseq that call one of these functions."""
    return sorted({file for file, name in all_calls() if name in names})


EVALUATING = files_calling("eval", "exec", "compile")
#: Files of fairseq that start processes or look up names in ``globals()``, and the reasons why no
#: untrusted file reaches these calls.
EXPLAINED = {
    "fairseq/data/fasta_dataset.py": "datasets.open_validated_data rejects the reader",
    "fairseq/data/plasma_utils.py": "datasets.reject_plasma; PlasmaArray runs a fixed command",
    "fairseq/distributed/utils.py": "scontrol, with the list of nodes that SLURM gives",
    "fairseq/logging/meters.py": "safe_loading.load_known_meters",
    "fairseq/models/__init__.py": "sets a parser by the name of a registered model",
    "fairseq/tasks/__init__.py": "sets a parser by the name of a registered task",
    "fairseq/modules/quantization/scalar/ops.py": "--quant-noise-scalar, a number",
}


def files_starting_processes() -> set[str]:
    """Return the files of fairseq that start a process or look up a name in ``globals()``."""
    prefixes = ("subprocess.", "os.system", "os.popen", "os.exec", "os.spawn")
    files = {file for file, name in all_calls() if name.startswith(prefixes)}
    for path in sorted((SITE / "fairseq").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "globals()[" in text and "examples" not in path.parts:
            files.add(path.relative_to(SITE).as_posix())
    return files


def files_unpickling() -> list[str]:
    """Return the files of fairseq that unpickle objects or extract archives."""
    files = files_calling("torch.load", "pickle.load", "pickle.loads", "joblib.load", "yaml.load")
    extracting = [file for file, name in all_calls() if name.split(".")[-1] == "extractall"]
    return sorted({*files, *extracting})


UNPICKLING = files_unpickling()


def test_search_finds_known_calls():
    known = {"fairseq/utils.py", "fairseq/optim/adam.py", "fairseq_cli/eval_lm.py"}
    assert known <= set(EVALUATING)
    assert set(GUARDED) <= set(UNPICKLING)


@pytest.mark.parametrize("file", EVALUATING)
def test_evaluating_modules_use_safe_evaluator(file):
    name = file.removesuffix(".py").replace("/", ".")
    if name.endswith("xm_transformer") or name not in sys.modules:
        try:
            import_module(name)
        except ImportError:
            pytest.skip(f"{name} cannot be imported here, so no command does")
    replace_eval_in_fairseq()  # as before every command
    assert sys.modules[name].eval is evaluate_literal


@pytest.mark.parametrize("file", UNPICKLING)
def test_untrusted_files_are_not_unpickled_or_extracted(file):
    assert file in GUARDED or file.startswith(REJECTED), (
        f"{file} unpickles or extracts: show why no file reaches it"
    )


def test_untrusted_files_start_no_process():
    files = files_starting_processes()
    assert {"fairseq/data/fasta_dataset.py", "fairseq/logging/meters.py"} <= files
    unexplained = [file for file in files - set(EXPLAINED) if not file.startswith(REJECTED)]
    assert not unexplained, "show why no file reaches them"


class TestLiterals:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("20000,60000", (20000, 60000)),
            ("(0.9, 0.98)", (0.9, 0.98)),
            ("{'a': -1.5, 'b': [None, True]}", {"a": -1.5, "b": [None, True]}),
            ("1e-8", 1e-8),
        ],
    )
    def test_values_written_by_fairseq_are_read(self, text, value):
        assert evaluate_literal(text) == value
        assert eval(text) == value

    @pytest.mark.parametrize(
        "text",
        [
            "__import__('os').system('true')",
            "[].__class__",
            "(lambda: 0)()",
            "[x for x in (1,)]",
            "open",
            "[0] * 10**9",
            "9" * 20_000,
            "(" * 500,
            "",
        ],
    )
    def test_other_expressions_are_rejected(self, text):
        with pytest.raises(ValueError, match="is not a literal|is too long for an option"):
            evaluate_literal(text)

    def test_module_as_literal_is_rejected(self):
        with pytest.raises(TypeError):
            evaluate_literal(os)
