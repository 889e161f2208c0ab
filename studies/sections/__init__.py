"""Sections of pages: tables, figures, and prose that pages of several studies share.

A module computes the slots of the templates whose names begin as its own does, such as
``six_tests.py`` those of ``six_tests.md``. ``templates.py`` fills them, and ``notation.md`` has no
slots.
"""
