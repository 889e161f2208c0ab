"""Results: records, results files, groups of measurements and their names, and provenance.

Read ``record.py``, ``model.py``, and ``groups.py`` first. The package imports no fairseq, and of
this project only lower layers: errors, files, and the names of position methods.
"""
