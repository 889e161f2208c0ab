"""Checkpoints of others: reading them safely, and turning the authors' released ones into ours."""
