"""One module per command: inputs → checks → run, for the command line and the Python API."""
