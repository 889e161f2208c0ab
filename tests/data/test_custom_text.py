"""``prepare text``: whole documents held out, both tokenizations, bad input."""

import pytest
from preparations import sentences, stored

from alibi_fairseq.cli import main
from alibi_fairseq.data.corpus_builder import SPLITS
from alibi_fairseq.data.custom_text import CustomTextBuilder
from alibi_fairseq.data.pipeline import prepare
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.results.data_folder import DataFolder


def test_text_holds_out_whole_documents(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(40):
        lines = [f"document{number} {line}  <unk> " for line in sentences(number, 25)]
        name = f"{number:02}.{'md' if number % 2 else 'txt'}"
        (folder / name).write_text("\n\n".join(lines), encoding="utf-8")
    (folder / "picture.png").write_bytes(b"\xff\xfe")
    text = CustomTextBuilder([folder], tokenizer="words", held_out=10)
    manifest, done = prepare(text, tmp_path / "out")
    assert done
    lines = {split: stored(tmp_path / "out" / "data-bin", split)[0] for split in SPLITS}
    documents = {
        split: {line.split()[0] for line in found if line} for split, found in lines.items()
    }
    # A word that is only in held-out documents is unknown; those of training are all known.
    assert len(documents["train"]) == 32 and "<unk>" not in documents["train"]
    whole = [line for line in lines["train"] if line.startswith("document")]
    assert len(whole) == 25 * len(documents["train"])
    assert manifest["splits"]["train"]["lines"] == 26 * len(documents["train"])
    assert manifest["unit"] == "document" and manifest["identified_by"] is None
    assert DataFolder.open(tmp_path / "out" / "data-bin").manifest == manifest
    assert prepare(text, tmp_path / "out") == (manifest, False)
    with pytest.raises(UserInputError, match="seed: 1 there, 2 now"):
        prepare(
            CustomTextBuilder([folder], tokenizer="words", held_out=10, seed=2), tmp_path / "out"
        )


def test_single_file_is_split_and_keeps_its_text(tmp_path, capsys):
    source = tmp_path / "book.anything"
    text = [f"Zeile {number}: {line} ß" for number, line in enumerate(sentences(1, 400))]
    source.write_text("\n".join(text), encoding="utf-8")
    command = ["prepare", "text", str(source), "--out", str(tmp_path / "out"), "--workers", "1"]
    assert main([*command, "--vocab-size", "400"]) == 0
    assert str(tmp_path / "out" / "data-bin") in capsys.readouterr().out
    lines = {split: stored(tmp_path / "out" / "data-bin", split)[0] for split in SPLITS}
    plain = [
        line.replace(" ", "").replace("\N{LOWER ONE EIGHTH BLOCK}", " ").strip()
        for split in SPLITS
        for line in lines[split]
    ]
    assert [line for line in plain if line] == text
    sizes = {split: sum(map(len, found)) for split, found in lines.items()}
    assert 0.04 < sizes["test"] / sum(sizes.values()) < 0.06
