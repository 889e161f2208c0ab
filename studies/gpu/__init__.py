"""Studies of larger models, which need a GPU; ``page.py`` writes the page of one of them."""
