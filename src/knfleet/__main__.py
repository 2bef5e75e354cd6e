"""`python -m knfleet` is the same as `knfleet`."""

from knfleet.cli.main import main

main()
