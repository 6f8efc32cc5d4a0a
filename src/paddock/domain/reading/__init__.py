"""The read model: one set of rows for `why`, lists, the dashboard, the API and the metrics.

`rows` has the lines of lists, `details` all that is known of one job, runner or pool, `overview` the
present state in numbers, and `filters` what lists can be asked for. `paddock.ports.reading` reads them.
"""
