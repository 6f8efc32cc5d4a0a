"""Whether everything that paddock depends on is as needed: what `paddock doctor` examines.

A wrong permission appears as a job that waits, a wrong clock as a GitHub that refuses every token, a
connection pooler as two leaders. Each examination looks for one such cause directly, and says what to
do about it.
"""
