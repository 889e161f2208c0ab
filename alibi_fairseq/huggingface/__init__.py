"""Models to and from Hugging Face transformers.

The files ``*_alibi_lm.py`` travel with exported models and import transformers alone.
"""
