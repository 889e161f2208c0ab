"""WikiText-103 as the paper uses it: word-level, one ``</s>`` per line, all words kept.

``alibi-fairseq prepare wikitext-103``; see data-prep/wikitext-103/README.md.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import time
import zipfile
from pathlib import Path

from alibi_fairseq.dataprep.binarise import binarise
from alibi_fairseq.dataprep.download import Mirror, download, hash_file
from alibi_fairseq.dataprep.progress import progress
from alibi_fairseq.dataprep.text import count_text
from alibi_fairseq.dataprep.workspace import Workspace
from alibi_fairseq.errors import BadInput
from alibi_fairseq.files import check_disk, sha256_file, sha256_files
from alibi_fairseq.results import manifest as manifests

CORPUS = "wikitext-103"
SPLITS = ("train", "valid", "test")
ZIP_SHA256 = "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590"
TAR_SHA512 = (
    "c8186919aa1840af6b734ea41abc580574ea8efe2fafda220f5d01002464d175"
    "66d84be5199b875136c9593f0e0678fb5d7c84bb2231de8b4151cb9c83fa2109"
)
# The address in fairseq's own script (s3.amazonaws.com/research.metamind.io) no longer answers.
MIRRORS = [
    # by the corpus's first author; refuses clients without a User-Agent
    Mirror("https://wikitext.smerity.com/wikitext-103-v1.zip", "sha256", ZIP_SHA256),
    # the same three files in another container
    Mirror(
        "https://dax-cdn.cdn.appdomain.cloud/dax-wikitext-103/1.0.1/wikitext-103.tar.gz",
        "sha512",
        TAR_SHA512,
    ),
]
LINES = {"train": 1_801_350, "valid": 3_760, "test": 4_358}
TOKENS = {"train": 103_227_021, "valid": 217_646, "test": 245_569}  # with one </s> per line
DICTIONARY = (267_744, 267_743)  # entries; the second is in published logs
_TEXT_BYTES = 545_000_000  # about, for the disk check before a download


def prepare(
    out: str | os.PathLike,
    *,
    archive: str | os.PathLike | None = None,
    from_dir: str | os.PathLike | None = None,
    mirrors: list[Mirror] | None = None,
    allow_other_text: bool = False,
    workers: int = 1,
) -> tuple[dict, bool]:
    """Make ``OUT/data-bin``.

    Args:
        archive: a ``.zip`` or ``.tar.*`` in the official layout; downloaded when neither this nor
            ``from_dir`` is given.
        from_dir: a folder with ``wiki.{train,valid,test}.tokens``.
        mirrors: instead of :data:`MIRRORS`.
        allow_other_text: accept text that is not WikiText-103; the manifest then says so.

    Returns:
        The manifest, and whether there was anything to do.

    Raises:
        BadInput: the text is not WikiText-103 (with the expected and the found value), or does
            not have its layout.
    """
    started = time.time()
    official, source_id = identify(archive, from_dir, allow_other_text)
    workspace = Workspace(out, {"source": source_id})
    if manifest := workspace.finished():
        return manifest, False
    check_disk(out, disk_needed(archive, from_dir), "The preparation")
    with workspace:
        if archive is None and from_dir is None:
            archive, mirror = download(mirrors or MIRRORS, workspace.work)
            origin = {"url": mirror.url}
        else:
            origin = {}
        source = Path(archive or from_dir or "")
        folder = workspace.work / "text" if archive else source
        if archive:
            workspace.step("extract", lambda: _extract(source, folder))
        counts = workspace.step(
            "count", lambda: {s: _count(folder, s, allow_other_text) for s in SPLITS}
        )
        if not workspace.unfinished_data_bin.exists():
            binarise(
                {split: _tokens_file(folder, split) for split in SPLITS},
                workspace.unfinished_data_bin,
                expected_tokens={split: counts[split]["tokens"] for split in SPLITS},
                workers=workers,
            )
        entries = _dictionary_entries(workspace.unfinished_data_bin)
        if entries not in DICTIONARY and not allow_other_text:
            raise BadInput(
                f"The dictionary has {entries:,} entries, expected {DICTIONARY[0]:,} (or "
                f"{DICTIONARY[1]:,}): this is not WikiText-103; "
                "--allow-other-text prepares it under another name."
            )
        genuine = entries in DICTIONARY and _differences(counts) == []
        evidence = f"{'archive hash, ' if official else ''}lines, tokens and dictionary size"
        other = manifests.other_name(source)
        sources = [
            {"name": path.name, "bytes": path.stat().st_size, "sha256": sha256_file(path)}
            for path in (_tokens_file(folder, split) for split in SPLITS)
        ]
        if archive is not None:
            file = Path(archive)
            described = {"bytes": file.stat().st_size, "sha256": sha256_file(file)}
            # Other text may come in an archive that bears the name of WikiText-103.
            name = file.name if genuine else other + file.suffix
            sources.insert(0, {"name": name, **described, **origin})
        manifest = manifests.describe(
            workspace.unfinished_data_bin,
            corpus=CORPUS if genuine else other,
            identified_by=evidence if genuine else None,
            splits=counts,
            tokenizer={"kind": "words"},
            sources=sources,
            settings=workspace.settings,
            seconds=time.time() - started,
        )
        workspace.publish(manifest)
    return manifest, True


def identify(
    archive: str | os.PathLike | None, from_dir: str | os.PathLike | None, allow_other_text: bool
) -> tuple[bool, str]:
    """Whether it is an official archive by its hash, and a name for the source's contents.

    Raises:
        BadInput: there is no such source, or it is an archive of other text, which is not allowed.
    """
    if archive is not None and from_dir is not None:
        raise BadInput("--archive and --from-dir are two sources; give one of them.")
    if from_dir is not None:
        return False, sha256_files([_tokens_file(Path(from_dir), split) for split in SPLITS])
    if archive is None:
        return True, "official"
    path = Path(archive)
    if not path.is_file():
        raise BadInput(f"--archive {path}: there is no such file.")
    found = hash_file(path, "sha256")
    if found == ZIP_SHA256 or (
        tarfile.is_tarfile(path) and hash_file(path, "sha512") == TAR_SHA512
    ):
        return True, "official"
    if not allow_other_text:
        raise BadInput(
            f"--archive {path}: SHA-256 is {found}, expected {ZIP_SHA256}: this is not the "
            "official wikitext-103-v1.zip; --allow-other-text prepares it under another name."
        )
    return False, found


def disk_needed(archive: str | os.PathLike | None, from_dir: str | os.PathLike | None) -> float:
    """Bytes that the preparation takes at its peak, about."""
    return 2.5 * _size(archive, from_dir)


def _size(archive: str | os.PathLike | None, from_dir: str | os.PathLike | None) -> int:
    """Bytes of text, about."""
    if from_dir is not None:
        return sum(_tokens_file(Path(from_dir), split).stat().st_size for split in SPLITS)
    if archive is None:
        return _TEXT_BYTES
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            return sum(member.file_size for member in opened.infolist())
    return 4 * Path(archive).stat().st_size


def _tokens_file(folder: Path, split: str) -> Path:
    path = folder / f"wiki.{split}.tokens"
    if not path.is_file():
        raise BadInput(
            f"{folder}: {path.name} is missing; WikiText-103 is wiki.train.tokens, "
            "wiki.valid.tokens and wiki.test.tokens (the -raw edition, *.raw, is another corpus)."
        )
    return path


def _extract(archive: Path, folder: Path) -> dict:
    """The three files out of a zip or tar, whatever the folder they lie in."""
    folder.mkdir(exist_ok=True)
    wanted = {f"wiki.{split}.tokens" for split in SPLITS}
    with progress(None, "extracting") as bar:

        def keep(name: str, stream) -> None:
            with open(folder / Path(name).name, "wb") as out:
                shutil.copyfileobj(stream, out, 1 << 20)
                bar.update(out.tell())

        try:
            if zipfile.is_zipfile(archive):
                with zipfile.ZipFile(archive) as opened:
                    for name in opened.namelist():
                        if Path(name).name in wanted:
                            with opened.open(name) as stream:
                                keep(name, stream)
            elif tarfile.is_tarfile(archive):
                with tarfile.open(archive) as tar:
                    for member in tar:
                        content = tar.extractfile(member) if member.isfile() else None
                        if content and Path(member.name).name in wanted:
                            keep(member.name, content)
            else:
                raise BadInput(f"{archive}: neither a .zip nor a .tar archive.")
        except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError) as error:
            raise BadInput(f"{archive}: the archive is damaged ({error}).") from error
    for split in SPLITS:
        _tokens_file(folder, split)
    return {}


def _count(folder: Path, split: str, allow_other_text: bool) -> dict:
    path = _tokens_file(folder, split)
    counts = count_text(path, f"counting {split}")
    if counts.words == 0:
        raise BadInput(f"{path}: there are no words in it.")
    found = {**counts.as_dict(), "tokens": counts.words + counts.lines}
    if not allow_other_text and (difference := _differences({split: found})):
        raise BadInput(
            f"{path.name} has {difference[0]}: this is not WikiText-103; "
            "--allow-other-text prepares it under another name."
        )
    return found


def _differences(counts: dict[str, dict]) -> list[str]:
    expected = {"lines": LINES, "tokens": TOKENS}
    return [
        f"{found[unit]:,} {unit}, expected {expected[unit][split]:,}"
        for split, found in counts.items()
        for unit in ("lines", "tokens")
        if found[unit] != expected[unit][split]
    ]


def _dictionary_entries(data_bin: Path) -> int:
    with open(data_bin / "dict.txt", encoding="utf-8") as stream:
        return sum(1 for _ in stream) + 4
