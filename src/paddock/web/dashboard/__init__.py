"""The dashboard: pages made on the server, without resources of other sites."""
