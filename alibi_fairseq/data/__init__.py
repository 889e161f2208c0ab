"""From text to fairseq's binary data, for ``alibi-fairseq prepare`` and the scripts in ``data-prep/``.

``pipeline`` is the same for every corpus; each corpus has a module with its policy.
"""
