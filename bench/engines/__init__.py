"""The queues that `bench.claims` measures: paddock's and its peers', all with the same work."""
