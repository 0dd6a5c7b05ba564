"""``python -m orthograd``."""

from .cli import main

main()
