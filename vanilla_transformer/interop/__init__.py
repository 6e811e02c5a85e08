"""Import from and export to other systems, one file per system."""
