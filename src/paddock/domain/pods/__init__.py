"""A Pod and the host that it runs on."""
