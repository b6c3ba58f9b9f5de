"""A module of a user that ends the program."""

raise SystemExit("bye")
