"""Version of a plugin: the hash of the code that defines a method."""

from __future__ import annotations

import sys

import pytest

from alibi_fairseq.positions import METHODS
from alibi_fairseq.positions.plugin_sources import _source, plugin_files, plugin_sha256

FILES = {
    "__init__.py": """
from .mine import Mine
from .other import Other
from alibi_fairseq.positions import register_position_method

register_position_method("mine", Mine)
register_position_method("other", Other)
""",
    "mine.py": '''
from alibi_fairseq.positions import PositionMethod
from . import bias
from .numbers import constants, size

class Mine(PositionMethod):
    """The first version."""

    def embed(self, positions):
        from .late import LATE
        from .lazy import first

        return LATE
''',
    "other.py": """
from alibi_fairseq.positions import PositionMethod
from .factory import make
from .typed import make as make_with_type
import plugin_of_files.dotted

class Other(PositionMethod):
    pass
""",
    "bias.py": "SLOPE = 1\n",
    "late.py": "LATE = 1\n",
    "dotted.py": "DOTTED = 1\n",
    "lazy/__init__.py": "from . import third\n",
    "lazy/first.py": "from .second import SECOND\n",
    "lazy/second.py": "SECOND = 1\n",
    "lazy/third.py": "THIRD = 1\n",
    "numbers/__init__.py": "size = 1\n",
    "numbers/size.py": "SIZE = 2\n",
    "numbers/constants.py": "import plugin_of_files.deep as deep\n",
    "deep.py": "DEPTH = 1\n",
    "factory.py": """
from alibi_fairseq.positions import PositionMethod
import plugin_of_files.late

def make(exponent):
    class Made(PositionMethod):
        power = exponent
    return Made
""",
    "typed.py": """
from alibi_fairseq.positions import PositionMethod

def make(exponent):
    return type("Made", (PositionMethod,), {"power": exponent})
""",
    "plots.py": "COLOR = 1\n",
}
MINE = ["mine.py", "bias.py", "late.py", "deep.py", "numbers/__init__.py"]
#: Imported in a function that the tests never call.
LAZY = ["lazy/first.py", "lazy/second.py"]
#: Nothing imports them. A number in ``numbers/__init__.py`` has the name of the second.
UNUSED = ["plots.py", "numbers/size.py"]


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Import a plugin of several modules, not all of which are imported; return its folder."""
    folder = tmp_path / "plugin_of_files"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    for name in ("mine", "other", "made"):
        monkeypatch.setitem(METHODS, name, None)  # removed again after the test
        del METHODS[name]
    __import__("plugin_of_files")
    _source.cache_clear()
    return folder


def version_in_new_process(method="mine"):
    _source.cache_clear()
    return plugin_sha256([method])


@pytest.mark.parametrize(
    ("method", "file"), [*(("mine", file) for file in MINE + LAZY), ("other", "dotted.py")]
)
def test_edit_of_what_defines_a_method_changes_its_version(plugin, method, file):
    before = version_in_new_process(method)
    assert len(before) == 64
    text = (plugin / file).read_text()
    (plugin / file).write_text(text + "EDITED = True\n")
    assert plugin_sha256([method]) == before  # this process has read the earlier version
    assert version_in_new_process(method) != before
    (plugin / file).write_text(text)
    assert version_in_new_process(method) == before


def test_version_is_the_same_before_and_after_an_import_in_a_function(plugin):
    before = version_in_new_process()
    plugin_files(["mine"])
    assert "plugin_of_files.lazy" not in sys.modules
    __import__("plugin_of_files.lazy.first")
    assert version_in_new_process() == before


@pytest.mark.parametrize("file", ["__init__.py", "other.py", "factory.py", "dotted.py", *UNUSED])
def test_edit_of_another_module_does_not_change_the_version(plugin, file):
    before = version_in_new_process()
    (plugin / file).write_text((plugin / file).read_text() + "EDITED = True\n")
    (plugin / "notes.txt").write_text("notes")
    assert version_in_new_process() == before


@pytest.mark.ci
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The first version.", "The version of the paper."),
        ('    """The first version."""\n\n', ""),
        (
            "    def embed(self, positions):",
            '    def embed(self, positions):\n        """Return 1."""',
        ),
        ("from alibi_fairseq", '"""Mine."""\n\nfrom alibi_fairseq'),
        ("class Mine", "# Before the class.\nclass Mine"),
        ("from . import bias", "from . import  (bias)"),
    ],
)
def test_edit_of_a_comment_does_not_change_the_version(plugin, old, new):
    before = version_in_new_process()
    edited = (plugin / "mine.py").read_text().replace(old, new)
    assert edited != FILES["mine.py"]
    (plugin / "mine.py").write_text(edited)
    assert version_in_new_process() == before


def test_value_of_an_option_changes_the_version(plugin):
    before = version_in_new_process()
    (plugin / "bias.py").write_text("SLOPE = 2\n")
    assert version_in_new_process() != before


def test_class_of_the_same_module_has_its_own_version(plugin):
    before = version_in_new_process()
    METHODS["mine"].__qualname__ = "Another"
    assert version_in_new_process() != before


@pytest.mark.parametrize("factory", ["factory", "typed"])
@pytest.mark.parametrize("file", ["__init__.py", *LAZY])
def test_class_made_in_a_function_depends_on_the_whole_plugin(plugin, file, factory):
    METHODS["made"] = sys.modules[f"plugin_of_files.{factory}"].make(0.5)
    before = version_in_new_process("made")
    (plugin / file).write_text(FILES[file] + "EDITED = True\n")
    assert version_in_new_process("made") != before


def test_method_depends_on_the_method_that_it_inherits_from(plugin):
    source = sys.modules["plugin_of_files.mine"]
    METHODS["made"] = type("Made", (source.Mine,), {"__module__": "plugin_of_files.other"})
    before = version_in_new_process("made")
    (plugin / "deep.py").write_text("DEPTH = 2\n")
    assert version_in_new_process("made") != before


@pytest.mark.parametrize("names", [["mine"], ["alibi", "mine"], ["mine", "of_another_plugin"]])
def test_models_of_a_plugin_have_its_version(plugin, names):
    assert plugin_sha256(names) == version_in_new_process()


@pytest.mark.parametrize("names", [["alibi"], ["alibi", "none"], ["minerva"]])
def test_models_without_an_imported_plugin_have_no_version(plugin, names):
    assert plugin_sha256(names) is None


def test_files_of_a_plugin_are_all_that_a_copy_can_import(plugin):
    files = plugin_files(["alibi", "mine"])
    names = {name.removeprefix("plugin_of_files/") for name in files}
    assert names == set(FILES) - set(UNUSED)
    assert all(path.read_text() == FILES[str(path.relative_to(plugin))] for path in files.values())
    assert plugin_files(["alibi"]) == {}
