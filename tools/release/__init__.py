"""What is to be released, by the paths a commit touches.

Elsewhere releases were cut by the scope in a commit's title. A fix for the hosts was titled
`fix(infra): …`, matched no component, and was released to nobody while 2,300 bootstraps failed for
want of it. Nobody reads a title before writing it; what a commit touches cannot be misspelt.
"""
