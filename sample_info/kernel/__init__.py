"""Jacobians and the tangent kernel."""
