"""Decisions, and the values they are made from. Nothing here does I/O.

    github      GitHub's objects and errors, its limits and back-offs, webhook deliveries, debts
    jobs        facts about a job, its labels and pool, whose code it runs
    pools       a pool's description, how many runners it should have, what to create and to fence
    pods        a Pod, the hosts it may run on, what its containers' states mean
    runners     a runner's row, its program and version, how it ended
    recovery    what gets stuck and what is done about it: one file for each stuck state
    reading     what the dashboard, the API, the commands and the metrics show

Beside them stands what several of these share: `allocation` (which job's key gets the next Pod),
`states` (the lives of jobs and runners), `limits`, `accounts`, `names`, `ids`.
"""
