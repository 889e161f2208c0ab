"""Experiments: what to train and evaluate, the runs, and their execution here or as SLURM jobs.

Read ``schema.py`` and ``plan.py`` first, then ``run.py``, ``eval_step.py``, and ``runner.py``.
"""
