"""Pictures of the documentation, drawn from committed results: ``python -m scripts.pictures``."""
