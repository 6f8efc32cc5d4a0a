"""`paddock up --demo …`: a fake GitHub with work in it, and what goes wrong there.

demo         organisations, their workflows, how often they run
incidents    one thing that goes wrong, done to real processes and to the fake GitHub
chaos        one incident after the other, with what paddock made of each
"""
