"""One file per eraser."""
