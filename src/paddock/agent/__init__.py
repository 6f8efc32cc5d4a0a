"""What runs inside a Pod: `poll` asks for work and stages the JIT, `run.sh` starts the runner with it,
`vitals` ships what `run.sh` measures.

Each of these is there once per warm Pod, a thousand times in a large pool, and in the same image as
nothing else. So it is the standard library only, and little of that: whatever is imported here is paid
for by every idle Pod. It imports nothing else of paddock, so that this one directory, copied into an
image as `…/paddock/agent`, is all that `python -I -S …/paddock/agent poll` needs.
"""
