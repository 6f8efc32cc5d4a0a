"""Paddock: a control plane for ephemeral GitHub Actions runners on Kubernetes."""

__version__ = "0.1.0"
