"""A module of a user that cannot be imported."""

raise RuntimeError("no licence")
