"""`paddock up --demo …`: a fake GitHub with jobs, and the incidents of its chaos mode.

demo         organisations, their workflows, how often they run
incidents    one kind of harm, done to real processes and to the fake GitHub
chaos        one incident after the other, and paddock's finding for each
"""
