"""The title test: cost, lead, and E6 of small models at three training budgets."""
