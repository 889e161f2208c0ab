"""The study: the paper's claims tried on texts at hand, at a size that a CPU can train.

A description (``configs/study*.yaml``) lists corpora and trainings in the order of their importance.
:mod:`.runs` carries them out and keeps each finished cell as JSON, which is recognised where it was
not trained; :mod:`.page` answers the claims from these files alone.
"""
