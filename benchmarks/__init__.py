"""What this project's speed and memory are, measured against named baselines (see README.md)."""
