"""Per-example information on the linearised network, and the references that it is compared with."""
