"""Tables, figures and files of runs, and of runs compared."""
