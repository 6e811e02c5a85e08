"""Converts models of other systems into models of this package."""
