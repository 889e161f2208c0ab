"""From text to fairseq's binary data: what the scripts in ``data-prep/`` are made of.

One module per step (download, open sources, tokenise, binarise, describe in a manifest) and one
per corpus (``wikitext103``, ``bookcorpus``, ``cc100_roberta``).
"""
