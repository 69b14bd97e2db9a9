"""`python -m ekgn` is the same as `ekgn`."""

from ekgn.cli import main

main()
