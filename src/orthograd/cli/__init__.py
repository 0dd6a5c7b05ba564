"""The bodies of the commands that do more than one library call; `cli` registers them."""
