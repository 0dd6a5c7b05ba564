"""``python -m orthograd``."""

from .cli.main import main

main()
