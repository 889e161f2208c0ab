"""Train short, test long, in minutes, on text that every Python carries: one comparison."""
