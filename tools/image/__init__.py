"""paddock's image, from one description: as a Dockerfile, and built here without a registry."""
