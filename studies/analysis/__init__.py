"""What is computed from the results of a study, without Markdown or figures.

Read in this order:

1. ``evaluation_key.py``: the notation of evaluations, such as ``alibi-1@4/0.125``
2. ``study_results.py`` reads the finished models, and ``losses.py`` joins the seeds of each
   evaluation.
3. ``estimates.py``: the change between two evaluations, with its confidence interval
4. ``compared_models.py``: changes between evaluations that are named in training lengths
5. ``six_tests.py``: the tests E1 to E6. ``baseline.py`` has E6's extra rule.

Pages also show what these compute:

- ``cost_and_lead.py``: the two effects behind E6, in our models and the paper's
- ``by_length.py``: losses and changes of all methods by evaluation length
- ``validation_gaps.py``: how far methods are behind ALiBi during training
- ``published_gaps.py`` and ``paper_changes.py``: published numbers to compare with
"""
