"""Replacements for GitHub on one machine: for `paddock up` without an App, and for tests.

    github    a fake GitHub, checked against GitHub's own contract
    runner    a program in place of actions/runner that dies in the same ways

Neither imports the product's rules: a fake that shared them would share their mistakes.
"""
