"""Experiments as lists of runs, and the one runner that carries them out here or on a cluster.

Files to read first: ``run.py`` (what a run is), ``runner.py`` (how runs are carried out), ``compare.py``
(the shortest list of runs).
"""
