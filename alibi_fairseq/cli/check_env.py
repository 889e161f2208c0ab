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

FAIRSEQ = "fairseq==0.12.2" if sys.version_info < (3, 11) else "fairseq-fixed==0.12.3.1"
#: What is to be installed for a module that cannot be imported.
MODULES = {
    **{"torch": "torch", "numpy": "numpy", "fairseq": FAIRSEQ},
    # Compiled parts, which fail where NumPy is another than at their build.
    **{
        f"fairseq.data.{part}_utils_fast": f"--no-deps --no-build-isolation --no-cache-dir {FAIRSEQ}"
        for part in ("data", "token_block")
    },
    **{"hydra": "hydra-core", "omegaconf": "omegaconf", "sentencepiece": "sentencepiece"},
    **{name: name for name in ("sacremoses", "tensorboardX", "tqdm", "psutil", "pydantic")},
}
#: Only figures need the first two; nothing here needs the last, but transformers imports it.
OPTIONAL = ("matplotlib", "tensorboard", "torchaudio")


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
    official = version_of("fairseq")
    if official and ("fixed" in FAIRSEQ or version_of("fairseq-fixed")):
        problems.append(
            f"fairseq {official} overwrites the files of fairseq-fixed, and cannot be imported on "
            "Python 3.11 and later; `pip uninstall fairseq fairseq-fixed`, then `pip install "
            f"{FAIRSEQ}`."
        )
    for module, requirement in MODULES.items():
        try:
            imported = import_module(module)
        except Exception as error:  # a broken installation may raise anything
            facts[module] = f"cannot be imported ({type(error).__name__}: {error})".splitlines()[0]
            problems.append(
                f"{module} {facts[module]}; `pip install --force-reinstall {requirement}`, or in "
                "a clone `./scripts/install.sh`."
            )
        else:
            if "." not in module:
                name = requirement.partition("==")[0]
                facts[module] = version_of(name) or str(imported.__version__)
    if not problems:
        examine_running(facts, problems)
    for module in filter(version_of, OPTIONAL):
        try:
            import_module(module)
        except Exception as error:
            problems.append(
                f"{module} cannot be imported ({type(error).__name__}: {error}), nor what imports "
                f"it where it is installed; `pip uninstall {module}`."
            )
    return facts, problems


def examine_running(facts: dict[str, str], problems: list[str]) -> None:
    """The GPU, and what this package makes of it."""
    import torch

    on_gpu = torch.cuda.is_available()
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count() * on_gpu)]
    facts["CUDA"] = f"{torch.version.cuda}: {', '.join(names) or 'no GPU answers; the CPU is used'}"
    if shutil.which("nvidia-smi") and not on_gpu:
        problems.append(
            f"This machine seems to have an NVIDIA GPU, but this PyTorch ({torch.__version__}) "
            "cannot use it; install a CUDA build from pytorch.org that suits the driver "
            "`nvidia-smi` shows."
        )
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from alibi_fairseq import attention, positions
    from alibi_fairseq.fairseq_fixes import compat

    version = version_of("alibi-fairseq") or "not installed"
    facts["alibi_fairseq"] = f"{version} ({Path(attention.__file__).parents[1]})"
    config = positions.PositionConfig(embed_dim=256, num_heads=4, num_layers=1, train_length=128)
    bias = positions.build_position_method("alibi", config).bias(0, 128)
    device, dtype = ("cuda", torch.bfloat16) if on_gpu else ("cpu", torch.float32)
    q = torch.zeros(1, 4, 128, 64, device=device, dtype=dtype)
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
