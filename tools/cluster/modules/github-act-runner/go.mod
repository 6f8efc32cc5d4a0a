module paddock.test/cluster/github-act-runner

go 1.24.0

require github.com/ChristopherHX/github-act-runner v0.13.0

