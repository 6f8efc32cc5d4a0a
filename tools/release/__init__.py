"""What to release, by the paths that a commit touches.

Elsewhere releases were cut by the scope in a commit's title. A fix for the hosts was titled
`fix(infra): …`, matched no component, and was never released; meanwhile 2,300 bootstraps failed. A
scope can be misspelt; the list of files that a commit touches cannot.
"""
