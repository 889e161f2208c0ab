"""The generated blocks of the repository's README, and the page on the paper that they link to."""
