"""Import of the package through fairseq, ``--user-dir``, and Python."""

from __future__ import annotations

import shutil

import pytest
from commands import PACKAGE, ROOT, as_process

import alibi_fairseq

pytestmark = pytest.mark.ci

# Imports each --user-dir like fairseq's commands, and prints the folder of the package.
IMPORT = """
import argparse, os, sys
{before}
from fairseq import utils
for user_dir in {user_dirs}:
    utils.import_user_module(argparse.Namespace(user_dir=user_dir))
from fairseq.models import ARCH_MODEL_REGISTRY
assert {{"alibi_lm", "alibi_lm_wiki103"}} <= set(ARCH_MODEL_REGISTRY), "models are missing"
print(os.path.realpath(sys.modules["alibi_fairseq"].__path__[0]))
"""


def imported(*user_dirs, before="", cwd=ROOT, **environment):
    script = IMPORT.format(before=before, user_dirs=[str(folder) for folder in user_dirs])
    return as_process("-c", script, cwd=cwd, **environment)


class TestUserDir:
    @pytest.fixture
    def link(self, tmp_path):
        """Return a link to the package."""
        (tmp_path / "linked").symlink_to(ROOT)
        return tmp_path / "linked" / "alibi_fairseq"

    @pytest.fixture
    def second_copy(self, tmp_path):
        copy = tmp_path / "site" / "alibi_fairseq"
        return shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))

    def test_relative_linked_and_repeated_import(self, link):
        done = imported(link, PACKAGE, "alibi_fairseq")
        assert done.stdout.strip() == str(PACKAGE), done.stderr

    def test_import_as_installed_package(self, link, tmp_path):
        before = "import alibi_fairseq"
        done = imported(link, before=before, cwd=tmp_path, PYTHONPATH=ROOT)
        assert done.stdout.strip() == str(PACKAGE), done.stderr

    def test_unimported_installed_copy_is_ignored(self, second_copy, tmp_path):
        done = imported(PACKAGE, cwd=tmp_path, PYTHONPATH=second_copy.parent)
        assert done.stdout.strip() == str(PACKAGE), done.stderr

    def test_imported_installed_copy_is_named(self, second_copy, tmp_path):
        before = "sys.argv[0] = 'fairseq-train'; import alibi_fairseq"
        done = imported(PACKAGE, before=before, cwd=tmp_path, PYTHONPATH=second_copy.parent)
        last = done.stderr.strip().splitlines()[-1]
        assert done.returncode == 2
        assert str(second_copy) in last
        assert str(PACKAGE) in last


class TestFairseq:
    """fairseq is missing or broken."""

    def test_core_works_without_fairseq(self):
        script = "import sys; sys.modules['fairseq'] = None; import alibi_fairseq; "
        script += "print(alibi_fairseq.alibi_slopes(2).tolist())"
        done = as_process("-c", script)
        assert done.stdout.strip() == "[0.0625, 0.00390625]", done.stderr

    def test_attention_for_transformers_does_not_import_fairseq(self):
        script = "import sys; from alibi_fairseq.huggingface import attention; "
        script += "attention.register(); print('fairseq' in sys.modules)"
        done = as_process("-c", script)
        assert done.stdout.strip() == "False", done.stderr

    def test_import_without_packages(self, tmp_path):
        (tmp_path / "fairseq").mkdir()  # an empty folder of that name is not fairseq
        script = "import alibi_fairseq; print(alibi_fairseq.__version__)"
        done = as_process("-c", script, cwd=tmp_path, python=["-S"], PYTHONPATH=ROOT)
        assert done.stdout.strip() == alibi_fairseq.__version__, done.stderr

    def test_broken_fairseq_is_reported(self, tmp_path):
        fault = "raise ValueError('numpy.dtype size changed')"
        (tmp_path / "fairseq" / "data").mkdir(parents=True)
        (tmp_path / "fairseq" / "__init__.py").touch()
        (tmp_path / "fairseq" / "data" / "data_utils_fast.py").write_text(fault)
        environment = {"cwd": tmp_path, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
        done = as_process("-c", "import alibi_fairseq.models", **environment)
        assert done.returncode == 1
        assert "(ValueError: numpy.dtype size changed)" in done.stderr
        assert "./scripts/install.sh" in done.stderr
        # The official release next to the one for this Python.
        (tmp_path / "fairseq-0.12.2.dist-info").mkdir()
        (tmp_path / "fairseq-0.12.2.dist-info" / "METADATA").write_text("Name: fairseq\n")
        done = as_process("-m", "alibi_fairseq", "train", **environment)
        assert done.returncode == 2
        assert done.stderr.strip().count("\n") == 0
        assert "pip uninstall fairseq fairseq-fixed" in done.stderr


@pytest.mark.parametrize(
    "statement",
    [
        "from fairseq.data import data_utils",
        "import alibi_fairseq.models.language_model",
        "import fairseq",
        "import alibi_fairseq.plugin.patches.apply",
        "alibi_fairseq.AlibiLanguageModel",
        "import alibi_fairseq.plugin.resume",
        "import alibi_fairseq.plugin.loading",
        "import alibi_fairseq.plugin",
        "import importlib.util; importlib.util.find_spec('fairseq'); import fairseq",
    ],
)
def test_models_register_on_fairseq_import(statement):
    """Importing fairseq takes seconds, so attention and positions do not import it."""
    script = "import sys, alibi_fairseq, alibi_fairseq.attention, alibi_fairseq.positions; "
    script += f"assert 'fairseq' not in sys.modules; {statement}; "
    script += "from fairseq.models import ARCH_MODEL_REGISTRY as known; "
    script += "import alibi_fairseq.plugin.patches.apply as c; "
    script += "print('alibi_lm' in known, c.__spec__.origin == c.__file__)"
    done = as_process("-c", script)
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_advice_against_torchscript_is_silenced():
    script = "import alibi_fairseq.models"
    advice = "error:`torch.jit.script`"
    assert as_process("-c", script, python=["-W", advice]).returncode == 0
    plain = as_process("-c", "import fairseq.models", python=["-W", advice])
    assert "`torch.jit.script` is" in plain.stderr


def test_help_of_report_does_not_import_fairseq():
    script = "import sys; from alibi_fairseq import cli\n"
    script += "try: cli.main(['report', '--help'])\n"
    script += "finally: print('imported:', *{'fairseq', 'torch'}.intersection(sys.modules))"
    done = as_process("-c", script)
    assert done.stdout.splitlines()[-1].split() == ["imported:"], done.stderr


def test_public_names_are_importable():
    from alibi_fairseq.models import AlibiLanguageModel
    from alibi_fairseq.positions import alibi_slopes

    assert alibi_fairseq.AlibiLanguageModel is AlibiLanguageModel
    assert alibi_fairseq.alibi_slopes is alibi_slopes
    with pytest.raises(AttributeError, match="no attribute 'slopes'"):
        alibi_fairseq.slopes  # noqa: B018


def test_logging_configuration_is_kept():
    show = "print(logging.getLogger().level, len(logging.getLogger().handlers))"
    quiet = as_process("-c", f"import logging, alibi_fairseq; {show}")
    assert quiet.stdout.split() == ["30", "0"], quiet.stderr
    configure = "import logging; logging.basicConfig(level=logging.DEBUG); import alibi_fairseq; "
    assert as_process("-c", configure + show).stdout.split() == ["10", "1"]
