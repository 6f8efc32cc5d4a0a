"""The queues that `bench.claims` measures: ours and its peers, all given the same work."""
