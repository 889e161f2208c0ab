"""Evaluation of language models at any length and stride: windows, scoring, and results."""
