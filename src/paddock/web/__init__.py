"""What paddock answers over HTTP."""
