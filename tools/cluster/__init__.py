"""A real Kubernetes on this machine, for the tests: `make cluster`.

Verdicts, finalizers, evictions and tokens are Kubernetes' own behaviour; a fake would only repeat our
assumptions about it. So the tests have a control plane and a node of their own. The binaries are built
once and run as plain processes; the images come from no registry.
"""
