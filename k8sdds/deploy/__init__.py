"""A profile onto machines: facts → plan → apply."""
