"""Workarounds for fairseq, and what this project adds to its runs; ``compat.py`` lists and applies them."""
