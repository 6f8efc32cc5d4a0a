"""What is to be released, by the paths a commit touches.

Elsewhere releases were cut by the scope in a commit's title. A fix for the hosts was titled
`fix(infra): …`, matched no component, and was never released while 2,300 bootstraps failed for want of
it. A scope can be misspelt; the list of files that a commit touches cannot.
"""
