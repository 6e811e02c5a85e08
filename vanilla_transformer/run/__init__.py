"""One training run: its options, the plan that is made from them, and the run itself."""
