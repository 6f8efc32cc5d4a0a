"""Programs that follow Pods, each a process of its own, and the API server they follow."""
