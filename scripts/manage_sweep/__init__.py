"""python -m scripts.manage_sweep: show a sweep's runs, print the commands for unfinished ones, delete failed ones."""
