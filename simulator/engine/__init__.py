"""The simulator: the product's own services over the real store, in virtual time, with faults.

Some bugs need a lost reply, a crash and a late webhook in one minute. A hand-written test does not
find them, and they are hard to reproduce. Here every port call of every replica is a scheduling point.
A seeded scheduler decides which task continues and which fault occurs. A seed replays exactly.

    loop         time, and the order of things
    database     the real PostgreSQL, asked while time stands still
    machine      a replica as a process that can crash, stall and lose the network
    fleet, pods  nodes and Pods with their ground truth
    github       the fake GitHub behind the product's own client
    story        what users, operators and hardware do
    faults       what goes wrong, by name
    checks       the promises, checked against the fakes' ground truth and never against our rows
    simulation   one seed, from beginning to verdict
"""
