"""The simulator: the product's own services over the real store, in virtual time, with faults.

A bug that needs a lost reply, a crash and a late webhook in one minute is found by no test anybody
would write, and once seen is not seen again. Here every port call of every replica is a scheduling
point, a seeded scheduler decides who goes next and what goes wrong, and a seed replays exactly.

    loop         time, and the order of things
    database     the real PostgreSQL, asked while time stands still
    machine      a replica as a process that can crash, stall and lose the network
    fleet, pods  nodes and Pods with their ground truth
    github       the fake GitHub behind the product's own client
    story        what users, operators and hardware do
    faults       what goes wrong, by name
    checks       the promises, held against the fakes' ground truth and never against our rows
    simulation   one seed, from beginning to verdict
"""
