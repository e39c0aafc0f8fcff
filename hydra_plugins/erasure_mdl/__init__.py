"""Launchers and sweeper; Hydra looks for them in this namespace only."""
