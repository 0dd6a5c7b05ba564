"""One self-contained web page of a comparison, from the records of its runs alone."""
