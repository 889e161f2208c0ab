"""Benchmarks of speed and memory against named baselines (see README.md)."""
