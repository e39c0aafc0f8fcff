"""Per-example information on the linearised network (Harutyunyan et al. 2021), and what it is compared with."""
