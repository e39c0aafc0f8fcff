"""Parts of a dataset, and what a network knows that has seen no more."""
