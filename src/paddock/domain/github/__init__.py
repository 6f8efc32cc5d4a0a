"""What paddock knows of GitHub: its objects, errors, limits and webhook deliveries."""
