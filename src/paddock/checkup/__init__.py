"""Whether everything that paddock stands on is as it needs it: what `paddock doctor` looks at.

A wrong permission shows itself as a job that waits, a clock that is off as a GitHub that refuses every
token, a pooler as two leaders. Each examination looks for one of these directly, and says what to do
about it.
"""
