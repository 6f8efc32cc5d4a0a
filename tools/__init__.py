"""What developers of paddock use and its users do not."""
