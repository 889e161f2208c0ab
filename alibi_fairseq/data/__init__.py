"""From text to fairseq's binary data, for ``alibi-fairseq prepare`` and the scripts in ``data-prep/``.

One module per step (download, open sources, tokenise, binarise, describe in a manifest) and one
per corpus (``wikitext103``, ``bookcorpus``, ``cc100_roberta``).
"""
