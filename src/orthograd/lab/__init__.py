"""Train networks and compare methods. Needs ``orthograd[lab]``."""
