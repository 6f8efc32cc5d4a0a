"""What takes GitHub's place on one machine: `paddock up` without an App, and the tests.

    github    a fake GitHub, held to GitHub's own contract
    runner    a program that stands in for actions/runner, and dies in every way that it does

Neither knows the product that it is used with: a fake that shared its rules would agree with its
mistakes.
"""
