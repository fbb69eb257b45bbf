"""`python -m bibs` is `bibs`."""

from bibs.cli import main

main()
