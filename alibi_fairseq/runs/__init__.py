"""Runs: training and evaluation of models, on this machine or as SLURM jobs.

Read ``run.py`` and ``eval_step.py`` first, then ``runner.py``, ``scheduler.py``, and
``child_process.py``.
"""
