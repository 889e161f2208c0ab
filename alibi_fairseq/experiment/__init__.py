"""Experiments: what to train and evaluate, the runs, and their execution here or as SLURM jobs.

Read ``comparison_config.py`` and ``comparison_runs.py`` first, then ``run.py``, ``eval_step.py``,
and ``runner.py``.
"""
