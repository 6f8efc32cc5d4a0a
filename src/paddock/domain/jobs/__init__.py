"""A job: what is known of it, whose it is, and which pool serves it."""
