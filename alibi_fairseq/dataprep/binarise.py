"""``fairseq-preprocess`` with a progress bar and a check of its output."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from alibi_fairseq.dataprep.progress import progress
from alibi_fairseq.errors import BadInput

_UINT16_LIMIT = 65500  # fairseq stores tokens in two bytes below this many dictionary entries


def binarise(
    texts: dict[str, Path],
    destination: Path,
    *,
    expected_tokens: dict[str, int],
    dictionary: Path | None = None,
    workers: int = 1,
) -> None:
    """Turn tokenised text into fairseq's binary data; ``destination`` appears when it is complete.

    Args:
        texts: split -> file of tokens separated by spaces; ``train`` and any of ``valid``,
            ``test``.
        destination: the folder to create.
        expected_tokens: split -> tokens it must have, with one ``</s>`` per line; a difference
            is an error.
        dictionary: fairseq's ``dict.txt``; counted on the training text if None.
        workers: processes.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    log = destination.with_name("preprocess.log")
    # Each attempt has its own folder: a killed run may leave a fairseq-preprocess that keeps
    # writing for a while.
    for stale in destination.parent.glob(f".{destination.name}-*"):
        shutil.rmtree(stale, ignore_errors=True)
    attempt = Path(tempfile.mkdtemp(prefix=f".{destination.name}-", dir=destination.parent))
    attempt.chmod(0o755)
    command = [sys.executable, "-m", "fairseq_cli.preprocess", "--only-source"]
    command += ["--destdir", str(attempt), "--workers", str(workers)]
    for split, path in texts.items():
        command += [f"--{split}pref", str(path)]
    if dictionary is not None:
        command += ["--srcdict", str(dictionary)]
    _run(command, attempt, log, sum(expected_tokens.values()))
    (attempt / "preprocess.log").unlink()  # times and paths, not data
    for split, expected in expected_tokens.items():
        found = count_tokens(attempt / split)
        if found != expected:
            raise RuntimeError(
                f"fairseq-preprocess wrote {found:,} tokens for {split} instead of {expected:,}; "
                f"its log is {log}."
            )
    os.replace(attempt, destination)


def count_tokens(prefix: Path) -> int:
    """Tokens in ``PREFIX.bin``, read with fairseq's own class."""
    from fairseq.data.indexed_dataset import MMapIndexedDataset

    dataset = MMapIndexedDataset(str(prefix))
    # Bound to a name: the sizes are a view of a mapped file that the dataset unmaps when it is freed.
    return int(dataset.sizes.sum(dtype="int64"))


def _run(command: list[str], folder: Path, log: Path, tokens: int) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with open(log, "w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            with progress(tokens, "fairseq-preprocess", "tokens") as bar:
                while process.poll() is None:
                    time.sleep(0.5)
                    bar.update(_tokens_so_far(folder) - bar.n)
                bar.update(_tokens_so_far(folder) - bar.n)
        finally:
            process.kill()
            process.wait()
    if process.returncode != 0:
        last = log.read_text(errors="replace").strip().rsplit("\n", 1)[-1]
        raise BadInput(f"fairseq-preprocess failed: {last} (its log is {log}).")


def _tokens_so_far(folder: Path) -> int:
    dictionary = folder / "dict.txt"
    if not dictionary.exists():  # still counting words
        return 0
    with open(dictionary, encoding="utf-8") as stream:
        entries = sum(1 for _ in stream)
    size = 2 if entries < _UINT16_LIMIT else 4
    total = 0
    for path in folder.glob("*.bin"):
        with contextlib.suppress(FileNotFoundError):  # merged into another one meanwhile
            total += path.stat().st_size
    return total // size
