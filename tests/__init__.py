"""A package, so that no other one of this name that lies among those installed is taken for it, as kronfluence's is."""
