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
from dataclasses import dataclass, field
from importlib import import_module, metadata
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
INSTALL = "./scripts/install.sh"
NEEDED = (
    *("sentencepiece", "sacremoses", "tensorboardX", "tqdm", "psutil", "hydra-core", "omegaconf"),
)
# Training and evaluation do without; a bundle for a machine without a network leaves them out.
FOR_PICTURES = ("matplotlib", "tensorboard")
COMPILED = ("fairseq.data.data_utils_fast", "fairseq.data.token_block_utils_fast")


@dataclass
class Report:
    """Lines to print, and sentences about what is wrong and how to fix it."""

    facts: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def text(self) -> str:
        """The report as text."""
        width = max(len(name) for name, _ in self.facts)
        lines = [f"{name:{width}}  {value}" for name, value in self.facts]
        if not self.problems:
            return "\n".join([*lines, "", "Everything that is needed is here and works."])
        numbered = [f"{i}. {problem}" for i, problem in enumerate(self.problems, 1)]
        return "\n".join([*lines, "", "What is wrong and how to fix it:", *numbered])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: there are no options."""


def run(args: argparse.Namespace) -> int:
    """Print the report. Returns 0 if everything is in order, otherwise 1."""
    report = examine()
    print(report.text())
    return 1 if report.problems else 0


def examine() -> Report:
    """Look at Python, PyTorch, fairseq and what they need."""
    report = Report()
    _python(report)
    torch = _torch(report)
    fairseq = _fairseq(report) if torch else None
    _torchaudio(report)
    _packages(report)
    _this_package(report, usable=bool(fairseq))
    return report


def _python(report: Report) -> None:
    report.facts.append(("Python", f"{platform.python_version()} ({sys.executable})"))
    if sys.version_info < (3, 10):  # noqa: UP036
        report.problems.append(
            "Python is older than 3.10; make the environment with Python 3.11: "
            "`python3.11 -m venv .venv`."
        )


def _torch(report: Report):
    torch = _import(report, "torch", "PyTorch", "torch")
    if torch is None:
        return None
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 10):
        report.problems.append(
            f"PyTorch {torch.__version__} can be made to run code or to corrupt memory by a "
            "checkpoint (CVE-2025-32434, CVE-2026-24747), so checkpoints are not read unless "
            "ALIBI_FAIRSEQ_TRUST_CHECKPOINTS=1 is set; install PyTorch 2.10 or later."
        )
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        report.facts.append(("CUDA", f"{torch.version.cuda}: {', '.join(names)}"))
    elif torch.version.cuda:
        report.facts.append(("CUDA", f"{torch.version.cuda}, but no GPU answers; the CPU is used"))
    else:
        report.facts.append(("CUDA", "none; the CPU is used"))
    if shutil.which("nvidia-smi") and not torch.cuda.is_available():
        report.problems.append(
            "This machine seems to have an NVIDIA GPU, but this PyTorch "
            f"({torch.__version__}) cannot use it; install a CUDA build from pytorch.org that "
            "suits the driver `nvidia-smi` shows."
        )
    return torch


def _fairseq(report: Report):
    flavours = [name for name in ("fairseq", "fairseq-fixed") if _version(name)]
    if len(flavours) == 2:
        report.problems.append(
            "fairseq and fairseq-fixed are both installed and overwrite each other's files; "
            "`pip uninstall fairseq fairseq-fixed`, then install again."
        )
    right = "fairseq==0.12.2" if sys.version_info < (3, 11) else "fairseq-fixed==0.12.3.1"
    flavour = flavours[0] if flavours else "fairseq"
    if flavour == "fairseq" and flavours and sys.version_info >= (3, 11):
        report.facts.append(("fairseq", f"{_version(flavour)} (official)"))
        report.problems.append(
            "The official fairseq cannot be imported on Python 3.11 and later; "
            f"`pip uninstall fairseq`, then `pip install {right}`."
        )
        return None
    fairseq = _import(report, "fairseq", "fairseq", flavour, right)
    for module in COMPILED if fairseq else ():
        try:
            import_module(module)
        except ImportError as error:
            report.problems.append(
                f"fairseq's compiled part {module} does not load ({error}); build it against the "
                f"NumPy installed here: `pip install --force-reinstall --no-deps "
                f"--no-build-isolation --no-cache-dir {right}`."
            )
    return fairseq


def _torchaudio(report: Report) -> None:
    """Fairseq requires it, language models do not use it, and transformers imports it if found."""
    if (version := _version("torchaudio")) is None:
        return
    try:
        import_module("torchaudio")
    except Exception as error:  # a library that does not match PyTorch raises OSError
        first = f"{type(error).__name__}: {error}".splitlines()[0]
        report.problems.append(
            f"torchaudio {version} cannot be loaded beside this PyTorch ({first}), and packages "
            "that import it if it is installed fail with it, such as transformers; language "
            "models do not need it: `pip uninstall torchaudio`."
        )


def _packages(report: Report) -> None:
    _import(report, "numpy", "NumPy", "numpy")
    found = {name: _version(name) for name in (*NEEDED, *FOR_PICTURES)}
    have = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    report.facts.append(("others", have))
    if without := [name for name in FOR_PICTURES if found[name] is None]:
        report.facts.append(
            ("not here", f"{', '.join(without)} (only figures and eval --tensorboard need them)")
        )
    if missing := [name for name in NEEDED if found[name] is None]:
        report.problems.append(
            f"Not installed: {', '.join(missing)}; `pip install {' '.join(missing)}`."
        )


def _this_package(report: Report, usable: bool) -> None:
    version = _version("alibi-fairseq")
    how = f"installed, {version}" if version else "not installed, used from its folder"
    report.facts.append(("alibi_fairseq", f"{PACKAGE} ({how})"))
    if not usable:
        return
    sys.path.insert(0, str(PACKAGE.parent))
    package = import_module("alibi_fairseq")
    loaded = Path(str(package.__file__)).resolve().parent
    if loaded != PACKAGE:
        report.problems.append(
            f"Another copy of alibi_fairseq is imported first, from {loaded}; "
            "`pip uninstall alibi-fairseq`, or work in its folder."
        )
        return
    _attention(report)
    applied = import_module("alibi_fairseq.fairseq_fixes.compat").applied
    report.facts.append(("workarounds", ", ".join(applied) or "none needed"))


def _attention(report: Report) -> None:
    """Which backends can compute an inference step of ALiBi on this machine."""
    torch = import_module("torch")
    attention = import_module("alibi_fairseq.attention")
    positions = import_module("alibi_fairseq.positions")
    config = positions.PositionConfig(embed_dim=256, num_heads=4, num_layers=1, train_length=128)
    bias = positions.build_position_method("alibi", config).bias(0, 128)
    on_gpu = torch.cuda.is_available()
    kind = {"device": "cuda", "dtype": torch.bfloat16} if on_gpu else {}
    q = torch.zeros(1, 4, 128, 64, **kind)
    call = (q, q, q, attention.FutureMask(bias, 128, 128), 0.0)
    reasons = {name: b.unsupported_reason(*call) for name, b in attention.BACKENDS.items()}
    usable = ", ".join(name for name, reason in reasons.items() if reason is None)
    report.facts.append(("attention", f"{usable} ({'GPU' if on_gpu else 'CPU'})"))
    for reason in filter(None, reasons.values()):
        report.facts.append(("", reason))


def _import(report: Report, module: str, title: str, distribution: str, requirement: str = ""):
    """Import a module and note its version, or what keeps it from being imported."""
    version = _version(distribution)
    try:
        imported = import_module(module)
    except Exception as error:  # a broken installation may raise anything
        first = f"{type(error).__name__}: {error}".splitlines()[0]
        if version is None and isinstance(error, ModuleNotFoundError) and error.name == module:
            report.facts.append((title, "not installed"))
            report.problems.append(f"{title} is not installed; in a clone: `{INSTALL}`.")
        else:
            report.facts.append((title, f"{version}, cannot be imported"))
            report.problems.append(
                f"{title} {version} is installed, but cannot be imported ({first}); install it "
                f"again: `pip install --force-reinstall {requirement or distribution}`."
            )
        return None
    named = "" if distribution == module else f" ({distribution})"
    report.facts.append((title, f"{version or imported.__version__}{named}"))
    return imported


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    # Python puts this file's folder in front; its modules must not be found under their bare names.
    sys.path.pop(0)
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    raise SystemExit(run(argparse.Namespace()))
