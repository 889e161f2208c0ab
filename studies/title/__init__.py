"""The title test: cost, lead, and short vs. long of small models at three training budgets."""
