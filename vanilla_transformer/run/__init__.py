"""One training run: its arguments, the plan made of them, and the run itself."""
