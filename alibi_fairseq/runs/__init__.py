"""Runs: training and evaluation of models, on this machine or as SLURM jobs."""
