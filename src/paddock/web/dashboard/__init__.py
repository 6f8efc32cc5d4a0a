"""The dashboard: pages made on the server, drawn without any help from elsewhere."""
