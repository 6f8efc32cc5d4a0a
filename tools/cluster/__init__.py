"""A real Kubernetes on this machine, for the tests: `make cluster`.

Verdicts, finalizers, evictions and tokens are Kubernetes' own behaviour. A fake would only agree with
what we believe about it. So the tests have a control plane and a node of their own, from binaries that
are built once, started as plain processes, and with images that come from no registry.
"""
