"""Measuring a language model at any length and stride: windows, scores, sweeps, position losses."""
