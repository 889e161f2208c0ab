"""Every place where fairseq evaluates, extracts or unpickles, and why no file reaches it."""

from __future__ import annotations

import ast
import os
import sys
from importlib import import_module
from pathlib import Path

import fairseq
import pytest

from alibi_fairseq.fairseq_patches.safe_loading import evaluate_literal, replace_eval_in_fairseq

SITE = Path(fairseq.__file__).parent.parent

#: Where fairseq unpickles or extracts, and what keeps a foreign file from it.
GUARDED = {
    "fairseq/checkpoint_utils.py": "loading_safely.checkpoints_validated: weights_only, safe types",
    "fairseq/file_utils.py": "loading_safely.archives_not_extracted",
    "fairseq/distributed/utils.py": "sent by the other processes of the same job",
}
#: Reached by models, tasks and criterions alone that checkpoints.options refuses by name.
REFUSED = (
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


def calls(names: set[str], every: bool = False):
    """``(file, name)`` of every call of one of these functions in fairseq, or of all."""
    for folder in ("fairseq", "fairseq_cli"):
        for path in sorted((SITE / folder).rglob("*.py")):
            file = path.relative_to(SITE).as_posix()
            if file.startswith("fairseq/examples/"):  # is not imported by fairseq
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    name = ast.unparse(node.func)
                    if every or name in names or name.rsplit(".", 1)[-1] in names & {"extractall"}:
                        yield file, name


EVALUATING = sorted({file for file, _ in calls({"eval", "exec", "compile"})})
#: Where fairseq starts processes or looks names up among all that a module holds.
CALLING = {
    "fairseq/data/fasta_dataset.py": "datasets.open_validated_data rejects the reader",
    "fairseq/data/plasma_utils.py": "datasets.reject_plasma; PlasmaArray runs a fixed command",
    "fairseq/distributed/utils.py": "scontrol, with the list of nodes that SLURM gives",
    "fairseq/logging/meters.py": "safe_loading.load_known_meters",
    "fairseq/models/__init__.py": "sets a parser by the name of a registered model",
    "fairseq/tasks/__init__.py": "sets a parser by the name of a registered task",
    "fairseq/modules/quantization/scalar/ops.py": "--quant-noise-scalar, a number",
}


def reaching_out() -> set[str]:
    """Files of fairseq that call ``subprocess`` or ``os.system``, or index ``globals()``."""
    found = {
        file
        for file, name in calls(set(), every=True)
        if name.startswith(("subprocess.", "os.system", "os.popen", "os.exec", "os.spawn"))
    }
    for path in sorted((SITE / "fairseq").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "globals()[" in text and "examples" not in path.parts:
            found.add(path.relative_to(SITE).as_posix())
    return found


UNPICKLING = sorted(
    {
        file
        for file, _ in calls(
            {"torch.load", "pickle.load", "pickle.loads", "joblib.load", "extractall", "yaml.load"}
        )
    }
)


def test_search_finds_known_calls():
    assert {"fairseq/utils.py", "fairseq/optim/adam.py", "fairseq_cli/eval_lm.py"} <= set(
        EVALUATING
    )
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
    assert file in GUARDED or file.startswith(REFUSED), (
        f"{file} unpickles or extracts: show why no file reaches it"
    )


def test_untrusted_files_start_no_process():
    unknown = {
        file for file in reaching_out() if file not in CALLING and not file.startswith(REFUSED)
    }
    assert not unknown, "show why no file reaches it"
    assert {"fairseq/data/fasta_dataset.py", "fairseq/logging/meters.py"} <= reaching_out()


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
        assert evaluate_literal(text) == value == eval(text)

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
