"""What gets stuck, and what paddock does about it: one file for each stuck state.

Each file says what stuck means, how it should go, how it goes wrong, what paddock does, why its
threshold, why it cannot hurt a live job and what it does not cover; then come the threshold, the
predicates, the rules.

    a runner's start     unschedulable, never_started, silent_poller
    its claim and JIT    stale_claim, undelivered, started_unclaimed
    its registration     suspect, waiting_container, never_registered
    its wait for a job   surplus, no_job_in_time, zombie
    its job              executing
    its end              lingering, deletion_requested, retiring, forced_end, pod_ended, pod_gone
    after its end        ended_without_job
    Pods                 pod_without_row, unrecognised
    jobs                 missed_webhook, lost_runner, stale_queued, unassigned_job, job_gone,
                         expired_job

`table` has all rules in order, `diagnosis` takes the first that holds. A rule (`rule`) decides on
`evidence` with the help of `predicates`, may require answers (`required_answers`), and names one of
the `actions`. `thresholds` collects the settings. `records` is what the services read and write
beside that.
"""
