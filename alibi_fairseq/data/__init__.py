"""Conversion of text to fairseq's binary data, for ``alibi-fairseq prepare`` and ``data-prep/``.

``pipeline.prepare_corpus`` has the steps, which are the same for every corpus. The differences
between corpora are methods of ``corpus_builder.CorpusBuilder``; each corpus has a subclass in a
module of its name. ``binarization`` tokenizes the text and writes the binary files.

Two modules serve commands other than ``prepare``:

- ``truncation`` copies excerpts of binary data.
- ``probes`` generates synthetic sequences.
"""
