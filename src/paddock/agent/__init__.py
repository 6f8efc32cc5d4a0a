"""The programs inside a Pod: `poll` asks for work and stages the JIT, `run.sh` starts the runner with
it, `vitals` reports what `run.sh` measures.

They run once per warm Pod, a thousand times in a large pool, and every import costs memory in every
idle Pod. So they use only the standard library, and little of it. They import nothing else of paddock:
this one directory, copied into an image as `…/paddock/agent`, is all that
`python -I -S …/paddock/agent poll` needs.
"""
