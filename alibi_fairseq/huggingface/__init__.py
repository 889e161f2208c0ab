"""Export, import, and evaluation of models in the format of Hugging Face transformers.

The files ``*_alibi_lm.py`` are copied into the folders of exported models, so they import nothing
of this package but each other.
"""
