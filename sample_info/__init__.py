"""Per-example information on the linearised network (Harutyunyan et al. 2021, "Smooth Unique Information")."""
