"""What the paper says and did: its runs as recipes, its tables and figures as data.

From the recipes come ``configs/`` (``python -m alibi_fairseq.paper`` writes them: YAML for
``fairseq-hydra-train``, shell lines for ``fairseq-train``), the flags of ``alibi-fairseq launch`` for
any number of GPUs, and the costs that ``reproduce --dry-run`` prints.
"""
