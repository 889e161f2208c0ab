"""Used in place of PyTorch's module while pip compiles fairseq; see ``scripts/install.sh``.

Skips the extensions that compile against PyTorch (``libbase``, ``libnat`` and
``alignment_train_cpu_binding``): language models do not import them, and they take nine tenths of
the build.
"""

from setuptools import Extension
from setuptools.command.build_ext import build_ext


class CppExtension(Extension):
    """An extension that compiles against PyTorch."""


class BuildExtension(build_ext):
    """Compiles all other extensions."""

    def finalize_options(self):
        super().finalize_options()
        self.extensions = [e for e in self.extensions if not isinstance(e, CppExtension)]
