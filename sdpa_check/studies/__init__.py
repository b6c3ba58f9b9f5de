"""One module per command: inputs → checks → run. The command line and the Python API both call these."""
