"""``alibi-fairseq check-env``: report problems with the installation and how to fix them.

This file also runs by its path (``scripts/check_env.sh`` does that): where fairseq or PyTorch is
broken the package around it cannot be imported, and that is when it is needed most.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from importlib import import_module, metadata
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
FAIRSEQ = "fairseq==0.12.2" if sys.version_info < (3, 11) else "fairseq-fixed==0.12.3.1"
#: Distributions by the modules that are imported from them. The last two are only for figures.
MODULES = {
    **{"torch": "torch", "numpy": "numpy", "fairseq": FAIRSEQ.partition("==")[0]},
    # Compiled parts, which fail where NumPy is another than at their build.
    **{f"fairseq.data.{part}_fast": FAIRSEQ for part in ("data_utils", "token_block_utils")},
    **{"hydra": "hydra-core", "omegaconf": "omegaconf", "sentencepiece": "sentencepiece"},
    **{name: name for name in ("sacremoses", "tensorboardX", "tqdm", "psutil", "pydantic")},
    # fairseq requires it, language models do not use it, and transformers imports it if found.
    **{"torchaudio": "torchaudio", "matplotlib": "matplotlib", "tensorboard": "tensorboard"},
}
OPTIONAL = ("torchaudio", "matplotlib", "tensorboard")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: there are no options."""


def run(args: argparse.Namespace) -> int:
    """Print the report. Returns 0 if everything is in order, otherwise 1."""
    facts, problems = examine()
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:{width}}  {value}")
    print("\nWhat is wrong:" if problems else "\nEverything that is needed is here and works.")
    for number, problem in enumerate(problems, 1):
        print(f"{number}. {problem}")
    return 1 if problems else 0


def examine() -> tuple[dict[str, str], list[str]]:
    """Facts about Python, PyTorch, fairseq and what they need, and what to do about problems."""
    facts = {"Python": f"{platform.python_version()} ({sys.executable})"}
    problems = []
    if sys.version_info < (3, 10):  # noqa: UP036
        problems.append("Python is older than 3.10; make the environment with Python 3.11.")
    if version_of("fairseq") and version_of("fairseq-fixed"):
        problems.append(
            "fairseq and fairseq-fixed are both installed and overwrite each other's files; "
            "`pip uninstall fairseq fairseq-fixed`, then install again."
        )
    elif version_of("fairseq") and "fixed" in FAIRSEQ:
        problems.append(
            "The official fairseq cannot be imported on Python 3.11 and later; "
            f"`pip uninstall fairseq`, then `pip install {FAIRSEQ}`."
        )
    broken = False
    for module, distribution in MODULES.items():
        version = version_of(distribution.partition("==")[0])
        try:
            imported = import_module(module)
        except Exception as error:  # a broken installation may raise anything
            if module in OPTIONAL and version is None:
                continue
            broken = broken or module not in OPTIONAL
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            facts[module] = f"{version or 'not installed'}, cannot be imported"
            here = "--no-deps --no-build-isolation --no-cache-dir " if "." in module else ""
            advice = f"`pip install --force-reinstall {here}{distribution}`"
            if module == "torchaudio":
                advice = "language models do not need it: `pip uninstall torchaudio`"
            problems.append(
                f"{distribution} cannot be imported ({reason}); {advice}, or in a clone "
                "`./scripts/install.sh`."
            )
        else:
            if "." not in module:
                facts[module] = version or getattr(imported, "__version__", "of no distribution")
    facts["alibi_fairseq"] = f"{version_of('alibi-fairseq') or 'not installed'} ({PACKAGE})"
    if not broken:
        _examine_running(facts, problems)
    return facts, problems


def _examine_running(facts: dict[str, str], problems: list[str]) -> None:
    """The GPU, and what this package makes of it."""
    import torch

    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 10):
        problems.append(
            f"PyTorch {torch.__version__} can be made to run code by a checkpoint (CVE-2025-32434, "
            "CVE-2026-24747), so none is read unless ALIBI_FAIRSEQ_TRUST_CHECKPOINTS=1 is set; "
            "install PyTorch 2.10 or later."
        )
    on_gpu = torch.cuda.is_available()
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count() * on_gpu)]
    facts["CUDA"] = f"{torch.version.cuda}: {', '.join(names) or 'no GPU answers; the CPU is used'}"
    if shutil.which("nvidia-smi") and not on_gpu:
        problems.append(
            f"This machine seems to have an NVIDIA GPU, but this PyTorch ({torch.__version__}) "
            "cannot use it; install a CUDA build from pytorch.org that suits the driver "
            "`nvidia-smi` shows."
        )
    sys.path.insert(0, str(PACKAGE.parent))
    from alibi_fairseq import attention, positions
    from alibi_fairseq.fairseq_fixes import compat

    if (loaded := Path(attention.__file__).resolve().parents[1]) != PACKAGE:
        problems.append(
            f"Another copy of alibi_fairseq is imported first, from {loaded}; "
            "`pip uninstall alibi-fairseq`, or work in its folder."
        )
    config = positions.PositionConfig(embed_dim=256, num_heads=4, num_layers=1, train_length=128)
    bias = positions.build_position_method("alibi", config).bias(0, 128)
    q = torch.zeros(
        1, 4, 128, 64, **({"device": "cuda", "dtype": torch.bfloat16} if on_gpu else {})
    )
    call = (q, q, q, attention.FutureMask(bias, 128, 128), 0.0)
    for name, backend in attention.BACKENDS.items():
        facts[f"attention: {name}"] = backend.unsupported_reason(*call) or "can be used"
    facts["workarounds"] = ", ".join(compat.applied) or "none needed"


def version_of(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    # Python puts this file's folder in front; its modules must not be found under their bare names.
    sys.path.pop(0)
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    raise SystemExit(run(argparse.Namespace()))
